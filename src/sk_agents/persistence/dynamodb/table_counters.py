"""Counters in the table: what all instances count together.

A step reads its counters, decides, and writes them if they are still what was read. Steps of one
process come one after the other, so that only those of different instances get in each other's way.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping, Sequence

from sk_agents.engine.ports import Clock, Count
from sk_agents.exceptions import InvalidInput, StoreBusy, StoreUnavailable
from sk_agents.persistence.counters import Counter, counted, live
from sk_agents.persistence.dynamodb.items import (
    COUNTER_SHARDS,
    counter_place,
    fits,
    key,
    number,
    text,
    values,
)
from sk_agents.persistence.dynamodb.table import (
    LONGEST_PAUSE,
    MOST_IN_TRANSACTION,
    ConditionFailed,
    Item,
    Refused,
    Table,
    Unanswered,
)

TRIES = 200
FIRST_PAUSE = 0.005
# The table's own expiry goes by the service's clock; ours may be behind it.
KEPT_SECONDS = 86_400

Place = tuple[str, str]


class TableCounters:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._turn = asyncio.Lock()

    async def count(self, additions: Sequence[Count]) -> list[int]:
        """What `Store.count` promises, for up to 100 counters.

        Of more, those with a limit come first: if one of them is refused, nothing was added. What
        is without a limit is only left out if the table cannot be reached any more.
        """
        if not all(fits(f"k{addition.key}") for addition in additions):
            raise InvalidInput("A counter's name is too long for a key of DynamoDB.")
        async with self._turn:
            sums: dict[str, int] = {}
            for part in _parts(additions):
                sums.update(zip((a.key for a in part), await self._step(part), strict=True))
        return [sums[addition.key] for addition in additions]

    async def sums(self, prefix: str) -> Mapping[str, int]:
        now = self._clock.now().timestamp()
        found: dict[str, int] = {}
        if not fits(f"k{prefix}"):
            return found
        for page in await asyncio.gather(
            *(self._shard(f"c#{shard}", prefix) for shard in range(COUNTER_SHARDS))
        ):
            for item in page:
                counter = live(_read(item), now)
                if counter is not None:
                    found[item["sk"]["S"][1:]] = counter.sum
        return found

    async def _shard(self, pk: str, prefix: str) -> list[Item]:
        found: list[Item] = []
        condition = "pk = :pk AND begins_with(sk, :prefix)"
        async for page in self._table.query(condition, values(pk=pk, prefix=f"k{prefix}")):
            found += page
        return found

    async def _step(self, additions: Sequence[Count]) -> list[int]:
        step = uuid.uuid4().hex
        pause = FIRST_PAUSE
        sums: list[int] = []
        for _ in range(TRIES):
            items = await self._table.get_all([counter_place(a.key) for a in additions])
            if any(item["step"]["S"] == step for item in items.values()):
                return sums  # stored, though the answer was lost
            before = {place[1][1:]: _read(item) for place, item in items.items()}
            now = self._clock.now().timestamp()
            sums, changed = counted(additions, before.get, now)
            try:
                await self._write(changed, before, step)
                return sums
            except ConditionFailed:
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(2 * pause, LONGEST_PAUSE)
            except (Unanswered, Refused) as error:
                raise StoreUnavailable(f"{self._table}: {error}") from error
        raise StoreBusy(f"{self._table}: a counter changes all the time")

    async def _write(
        self, changed: Mapping[str, Counter], before: Mapping[str, Counter], step: str
    ) -> None:
        puts = [
            _put(name, counter, before.get(name), step)
            for name, counter in changed.items()
            if counter != before.get(name)
        ]
        if len(puts) == 1:
            await self._table.send("PutItem", **puts[0])
        elif puts:
            await self._table.transact([{"Put": put} for put in puts])


def _parts(additions: Sequence[Count]) -> list[list[Count]]:
    """As many counters each as one transaction takes; a counter's additions are in one of them."""
    by_key: dict[str, list[Count]] = {}
    for addition in sorted(additions, key=lambda addition: addition.at_most is None):
        by_key.setdefault(addition.key, [])
    for addition in additions:
        by_key[addition.key].append(addition)
    groups = list(by_key.values())
    return [
        [addition for group in groups[start : start + MOST_IN_TRANSACTION] for addition in group]
        for start in range(0, len(groups), MOST_IN_TRANSACTION)
    ]


def _read(item: Item) -> Counter:
    return Counter(int(item["counted"]["N"]), float(item["forget_at"]["N"]))


def _put(name: str, counter: Counter, before: Counter | None, step: str) -> dict[str, object]:
    item = {
        **key(*counter_place(name)),
        "counted": number(counter.sum),
        "forget_at": number(counter.forget_at),
        "step": text(step),
        "expires_at": number(int(counter.forget_at) + KEPT_SECONDS),
    }
    if before is None:
        return {"Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
    return {
        "Item": item,
        "ConditionExpression": "counted = :counted AND forget_at = :forget_at",
        "ExpressionAttributeValues": values(counted=before.sum, forget_at=before.forget_at),
    }
