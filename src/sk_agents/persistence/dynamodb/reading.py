"""Heads and records read from the table. Every read of them is consistent.

A head and its log are several items, so they are not of one moment. That is no matter while a log
only grows; and of a thread that was removed, or made again, the head says so (`life`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from dataclasses import replace
from sys import maxsize

from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.dynamodb.items import (
    ONLY,
    HeadItem,
    RecordItem,
    fits,
    head_key,
    is_part,
    key,
    record_place,
    record_prefix,
    values,
)
from sk_agents.persistence.dynamodb.table import Item, Table

MOST_KNOWN = 16_384
# How often a thread is looked for that is removed and made again while it is read.
TRIES = 20
# A page of the log that is to have few bytes is not read as a whole megabyte.
USUAL_RECORD_BYTES = 1024


class Reader:
    """Remembers whose thread is which: that never changes while a thread lives."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._users: OrderedDict[str, str] = OrderedDict()

    def remember(self, thread_id: str, user_id: str) -> None:
        self._users[thread_id] = user_id
        self._users.move_to_end(thread_id)
        if len(self._users) > MOST_KNOWN:
            self._users.popitem(last=False)

    async def head(self, thread_id: str) -> HeadItem | None:
        """The head with all its bytes, if there is one.

        Raises:
            StateCorrupt: a part of it is missing.
        """
        if not fits(thread_id):
            return None
        for _ in range(TRIES):
            item = await self._head_item(thread_id)
            if item is None:
                return None
            head = HeadItem.read(item)
            if not head.parts:
                return head
            body = await self._parts(thread_id, f"h#{head.life}#{head.token}#")
            if len(body) == head.parts:
                return replace(head, body=b"".join(body), parts=0)
        raise StateCorrupt("A part of a stored head is missing.", thread_id=thread_id)

    async def heads(self, thread_ids: Collection[str]) -> list[HeadItem]:
        """Those that are there; one that is damaged is left out."""
        wanted = [thread_id for thread_id in dict.fromkeys(thread_ids) if fits(thread_id)]
        unknown = [thread_id for thread_id in wanted if thread_id not in self._users]
        pointers = await self._table.get_all([(f"t#{thread_id}", ONLY) for thread_id in unknown])
        for (pk, _), item in pointers.items():
            self.remember(pk.removeprefix("t#"), item["user_id"]["S"])
        places = {
            (f"u#{self._users[thread_id]}", thread_id): thread_id
            for thread_id in wanted
            if thread_id in self._users
        }
        items = await self._table.get_all(places)
        found = [HeadItem.read(item) for item in items.values()]
        # Made again, by another user; or too large for one item.
        moved = [thread_id for place, thread_id in places.items() if place not in items]
        large = [head.thread_id for head in found if head.parts]
        return [
            *(head for head in found if not head.parts),
            *(await self._one_by_one([*moved, *large])),
        ]

    async def heads_of(self, user_id: str) -> list[HeadItem]:
        """All heads of a user."""
        found: list[HeadItem] = []
        if not fits(f"u#{user_id}"):
            return found
        query = self._table.query("pk = :pk", values(pk=f"u#{user_id}"))
        async for page in query:
            found += map(HeadItem.read, page)
        large = [head.thread_id for head in found if head.parts]
        return [*(head for head in found if not head.parts), *(await self._one_by_one(large))]

    async def records(
        self,
        thread_id: str,
        life: str,
        due: int,
        *,
        most: int = maxsize,
        max_bytes: int | None = None,
    ) -> AsyncGenerator[RecordItem, None]:
        """The records in order, from the one in which the place `due` lies. Damaged ones have
        fewer parts, and so not their checksum.

        `most` and `max_bytes` say how many are wanted; it is for the caller to stop.
        """
        begin = record_place(life, due)
        exact = False
        async for record in self._from(thread_id, life, begin, most, max_bytes):
            if not exact and record.first_seq != due:
                earlier = await self._before(thread_id, life, begin)
                if earlier is not None:
                    yield earlier
            exact = True
            yield record
        if not exact:
            earlier = await self._before(thread_id, life, begin)
            if earlier is not None:
                yield earlier

    async def record(self, thread_id: str, life: str, first_seq: int) -> RecordItem | None:
        """The record that begins at this place."""
        place = record_place(life, first_seq)
        async with aclosing(self._from(thread_id, life, place, 1, None)) as records:
            async for record in records:
                return record if record.first_seq == first_seq else None
        return None

    async def _from(
        self, thread_id: str, life: str, begin: str, most: int, max_bytes: int | None
    ) -> AsyncGenerator[RecordItem, None]:
        limit = min(most, 1_000)
        if max_bytes is not None:
            limit = min(limit, max(1, max_bytes // USUAL_RECORD_BYTES))
        query = self._table.query(
            "pk = :pk AND sk BETWEEN :begin AND :end",
            values(pk=f"t#{thread_id}", begin=begin, end=record_prefix(life) + "~"),
            Limit=limit,
        )
        async for page in query:
            for item in page:
                if not is_part(item):
                    yield await self._whole_record(thread_id, life, item)

    async def _before(self, thread_id: str, life: str, place: str) -> RecordItem | None:
        """The last record that begins before this place."""
        query = self._table.query(
            "pk = :pk AND sk BETWEEN :begin AND :end",
            values(pk=f"t#{thread_id}", begin=record_prefix(life), end=place),
            ScanIndexForward=False,
            Limit=4,
        )
        async with aclosing(query) as pages:
            async for page in pages:
                for item in page:
                    if not is_part(item):
                        return await self._whole_record(thread_id, life, item)
        return None

    async def _whole_record(self, thread_id: str, life: str, item: Item) -> RecordItem:
        record = RecordItem.read(item)
        if not record.parts:
            return record
        place = record_place(life, record.first_seq)
        parts = await self._parts(thread_id, f"{place}#{record.token}#")
        return replace(record, body=b"".join(parts), parts=0)

    async def _head_item(self, thread_id: str) -> Item | None:
        user_id = self._users.get(thread_id)
        if user_id is not None:
            item = await self._table.get(head_key(user_id, thread_id))
            if item is not None:
                return item
            self._users.pop(thread_id, None)
        for _ in range(TRIES):
            pointer = await self._table.get(key(f"t#{thread_id}"))
            if pointer is None:
                return None
            user_id = pointer["user_id"]["S"]
            item = await self._table.get(head_key(user_id, thread_id))
            if item is not None:
                self.remember(thread_id, user_id)
                return item
        raise StateCorrupt("The head of a thread is missing.", thread_id=thread_id)

    async def _parts(self, thread_id: str, prefix: str) -> list[bytes]:
        found: list[bytes] = []
        query = self._table.query(
            "pk = :pk AND begins_with(sk, :prefix)", values(pk=f"t#{thread_id}", prefix=prefix)
        )
        async for page in query:
            found += [item["body"]["B"] for item in page]
        return found

    async def _one_by_one(self, thread_ids: Iterable[str]) -> list[HeadItem]:
        found = await asyncio.gather(*map(self.head, thread_ids), return_exceptions=True)
        heads: list[HeadItem] = []
        for head in found:
            if isinstance(head, BaseException) and not isinstance(head, StateCorrupt):
                raise head
            if isinstance(head, HeadItem):
                heads.append(head)
        return heads
