"""Which owners live, without a clock that the instances share.

A renewal writes a sign that no renewal had before, and for how long it is good. An instance that
sees a sign for the first time notes when that was by its own monotonic clock; once it has not
changed for as long as it is good, its owner is lost. So no two clocks are ever compared, and an
owner is taken for lost too late rather than too early: by the time until its last sign was seen.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sk_agents.engine.ports import Clock
from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.dynamodb.items import ONLY, key, number, text, values
from sk_agents.persistence.dynamodb.table import ConditionFailed, Refused, Table, Unanswered
from sk_agents.persistence.liveness import local_process_is_gone

# The table's own expiry removes what an owner left after a day.
FORGOTTEN_SECONDS = 86_400
MOST_KNOWN = 4_096


@dataclass(frozen=True, slots=True)
class Sign:
    """What was seen of an owner last; `beat` is empty if there was nothing to see."""

    beat: str
    alive_until: float = 0.0


NOTHING = Sign("")


class Leases:
    """For any number of threads."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._signs: OrderedDict[str, Sign] = OrderedDict()

    def renew(self, owner: str, ttl: float) -> None:
        """What `Store.renew` promises."""
        beat = uuid.uuid4().hex
        # Before it is sent: others see it later, and so think that the owner lives longer.
        sign = Sign(beat, self._clock.monotonic() + ttl)
        expires_at = int(self._clock.now().timestamp() + ttl + FORGOTTEN_SECONDS)
        item = {
            **key(f"w#{owner}"),
            "beat": text(beat),
            "lease_seconds": number(ttl),
            "expires_at": number(expires_at),
        }
        try:
            self._table.send_now("PutItem", Item=item)
        except Refused as error:
            raise StoreUnavailable(f"{self._table}: {error}") from error
        with self._lock:
            self._keep(owner, sign)

    async def retire(self, owner: str) -> None:
        try:
            await self._table.delete(key(f"w#{owner}"))
        except (Unanswered, ConditionFailed, Refused) as error:
            raise StoreUnavailable(f"{self._table}: {error}") from error
        with self._lock:
            self._signs.pop(owner, None)

    async def look(self, owners: Collection[str]) -> Mapping[str, Sign]:
        """The newest sign of each."""
        if not owners:
            return {}
        items = await self._table.get_all([(f"w#{owner}", ONLY) for owner in owners])
        now = self._clock.monotonic()
        found: dict[str, Sign] = {}
        with self._lock:
            for owner in owners:
                item = items.get((f"w#{owner}", ONLY))
                if item is None:
                    self._signs.pop(owner, None)
                    found[owner] = NOTHING
                    continue
                beat = item["beat"]["S"]
                known = self._signs.get(owner)
                if known is None or known.beat != beat:
                    known = Sign(beat, now + float(item["lease_seconds"]["N"]))
                    self._keep(owner, known)
                found[owner] = known
        return found

    def is_alive(self, owner: str, sign: Sign) -> bool:
        in_time = bool(sign.beat) and self._clock.monotonic() < sign.alive_until
        return in_time and not local_process_is_gone(owner)

    def unchanged(self, owner: str, sign: Sign) -> dict[str, Any]:
        """The part of a transaction that holds only if the owner has given no newer sign."""
        if not sign.beat:
            check: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        else:
            check = {
                "ConditionExpression": "attribute_not_exists(pk) OR beat = :beat",
                "ExpressionAttributeValues": values(beat=sign.beat),
            }
        return {"ConditionCheck": {"Key": key(f"w#{owner}"), **check}}

    def _keep(self, owner: str, sign: Sign) -> None:
        self._signs[owner] = sign
        self._signs.move_to_end(owner)
        if len(self._signs) > MOST_KNOWN:
            self._signs.popitem(last=False)
