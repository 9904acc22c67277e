"""Commits as transactions of DynamoDB: head, records and entries, if the head is the known one.

`CommitWriter` decides; here the commits of different threads are written at once, each thread's in
its order. A change of the head alone is a conditional put, which costs half of what a transaction
does. What is too large for an item is written before, in parts that nothing names until the
transaction is taken.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sk_agents.engine.log.commits import entries_of
from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, StoreError, TealError
from sk_agents.persistence import commit_writer as shared
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.commit_writer import (
    Chain,
    CommitJob,
    CommitWriter,
    KnownHead,
    Unreadable,
)
from sk_agents.persistence.dynamodb.items import (
    ONLY,
    HeadItem,
    RecordItem,
    deletions,
    entry_item,
    entry_name,
    fits,
    pointer_item,
    puts,
    read_entry,
    record_place,
    split,
    values,
)
from sk_agents.persistence.dynamodb.leases import Leases, Sign
from sk_agents.persistence.dynamodb.reading import Reader
from sk_agents.persistence.dynamodb.table import (
    MOST_IN_TRANSACTION,
    ConditionFailed,
    Item,
    Refused,
    Table,
    Unanswered,
)
from sk_agents.persistence.dynamodb.unfinished import Unfinished, note
from sk_agents.persistence.encoding import read_whole_log, record_checksum

# A thread's life, the version of its head and the head's checksum.
Mark = tuple[str, int, int]

# Of one thread in one transaction, which may have 100 items and 4 MB.
MOST_COMMITS = 20
MOST_BYTES = 2 * 1024 * 1024

IS_KNOWN = "life_id = :life AND head_version = :version"
IS_NEW = "attribute_not_exists(pk)"


class TableWriter(CommitWriter[Mark]):
    def __init__(
        self,
        table: Table,
        codec: RecordCodec,
        reader: Reader,
        leases: Leases,
        unfinished: Unfinished,
    ) -> None:
        super().__init__(table, codec)
        self._table = table
        self._reader = reader
        self._leases = leases
        self._unfinished = unfinished
        self._running: dict[str, asyncio.Task[None]] = {}
        # What was seen of the owner that a thread's head names, when the head was read.
        self._signs: dict[str, Sign] = {}
        # By what the parts of a head that is too large for one item are known.
        self._tokens: OrderedDict[str, str] = OrderedDict()

    async def _serve(self) -> None:
        """Groups of different threads at once."""
        while self._waiting or self._running or not self._stopping:
            while group := self._next_group():
                thread_id = group[0].thread_id
                task = asyncio.get_running_loop().create_task(self._attempt(group))
                self._running[thread_id] = task
                task.add_done_callback(partial(self._ended, thread_id))
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def _ended(self, thread_id: str, task: asyncio.Task[None]) -> None:
        del self._running[thread_id]
        self._wake_up()

    def _next_group(self) -> list[CommitJob[Mark]]:
        """The commits that wait for one thread that none is written to."""
        group: list[CommitJob[Mark]] = []
        left: list[CommitJob[Mark]] = []
        room = MOST_BYTES
        for job in self._waiting:
            wanted = job.thread_id if not group else group[0].thread_id
            is_free = job.thread_id == wanted and wanted not in self._running
            if is_free and len(group) < MOST_COMMITS and (room >= len(job.body) or not group):
                group.append(job)
                room -= len(job.body)
            else:
                # Later ones of this thread come after it.
                room = 0 if group and job.thread_id == group[0].thread_id else room
                left.append(job)
        self._waiting = left
        return group

    async def _read_heads(
        self, thread_ids: Collection[str]
    ) -> dict[str, KnownHead[Mark] | Unreadable]:
        found: dict[str, KnownHead[Mark] | Unreadable] = {}
        for thread_id in thread_ids:
            try:
                head = await self._read_whole(thread_id)
            except (StateCorrupt, SchemaTooNew) as damage:
                found[thread_id] = damage
                continue
            if head is not None:
                found[thread_id] = await self._known_head(head)
        return found

    async def _read_whole(self, thread_id: str) -> HeadItem | None:
        """The head, once all entries of its log are written."""
        head = await self._reader.head(thread_id)
        if head is not None and head.behind is not None:
            await self._unfinished.index(head)
        return head

    async def _known_head(self, head: HeadItem) -> KnownHead[Mark] | Unreadable:
        thread_id = head.thread_id
        self._keep_token(thread_id, head.token)
        known = self._read_head(thread_id, 0, head.mark, head.body, head.checksum, False)
        if not isinstance(known, KnownHead) or known.thread.owner is None:
            return known
        owner = known.thread.owner
        self._signs[thread_id] = sign = (await self._leases.look([owner]))[owner]
        alive = self._leases.is_alive(owner, sign)
        return KnownHead(known.mark, known.thread, known.written, alive, known.recent)

    async def _read_approvals(self, wanted: Mapping[str, str]) -> dict[str, Entry]:
        places = [(f"e#approval#{name}", ONLY) for name in wanted if fits(name)]
        items = await self._table.get_all(places)
        entries = map(read_entry, items.values())
        return {entry.key: entry for entry in entries}

    async def _read_sent(
        self, wanted: Sequence[tuple[CommitJob[Mark], KnownHead[Mark]]]
    ) -> dict[CommitJob[Mark], tuple[int, bytes, int]]:
        found: dict[CommitJob[Mark], tuple[int, bytes, int]] = {}
        for job, known in wanted:
            assert job.commit is not None and job.first_seq is not None
            records = self._reader.records(job.thread_id, known.mark[0], max(job.first_seq, 1))
            async with aclosing(records) as rows:
                async for row in rows:
                    if row.commit_id == job.commit.commit_id and row.first_seq >= job.first_seq:
                        found[job] = (row.first_seq, row.body, row.checksum)
                        break
        return found

    def _mark_of(self, chain: Chain[Mark]) -> Mark:
        if chain.known is None:
            return uuid.uuid4().hex, 1, chain.checksum
        life, version, _ = chain.known.mark
        return life, version + 1, chain.checksum

    async def _send(self, chains: list[Chain[Mark]]) -> dict[Chain[Mark], int]:
        try:
            return {chain: 0 for chain in chains if await self._is_written(chain)}
        except Unanswered as error:
            raise shared.AnswerLost from error
        except Refused as error:
            raise shared.NotStorable from error

    async def _is_written(self, chain: Chain[Mark]) -> bool:
        """Whether the head was still the known one. The group has one chain."""
        written = WrittenThread(chain)
        await self._table.write_all(puts(written.parts))
        signs = self._signs
        actions = written.actions()
        if chain.takes_over and chain.known is not None and chain.known.thread.owner is not None:
            owner = chain.known.thread.owner
            actions.append(self._leases.unchanged(owner, signs[chain.thread.thread_id]))
        try:
            if len(actions) == 1:
                await self._table.send("PutItem", **actions[0]["Put"])
            else:
                await self._table.transact(actions)
        except Unanswered:
            raise
        except ConditionFailed as failed:
            if not failed.may_be_ours or not await self._is_stored(chain):
                await self._drop(written.parts)
                return False
        except (Refused, TealError):
            await self._drop(written.parts)
            raise
        await self._after(chain, written)
        return True

    async def _is_stored(self, chain: Chain[Mark]) -> bool:
        """Whether the head is the one that was sent, though no answer said so."""
        head = await self._reader.head(chain.thread.thread_id)
        return head is not None and head.mark == chain.new_mark

    async def _after(self, chain: Chain[Mark], written: WrittenThread) -> None:
        thread = chain.thread
        self._reader.remember(thread.thread_id, thread.user_id)
        before = self._tokens.get(thread.thread_id)
        self._keep_token(thread.thread_id, written.head.token)
        try:
            if before:
                await self._unfinished.drop_parts(
                    thread.thread_id, f"h#{written.head.life}#{before}#"
                )
            if written.head.behind is not None:
                await self._unfinished.index(written.stored_head)
        except StoreError as error:
            # It is stored; whoever reads the head next goes on with it.
            raise shared.NotSecured(str(error)) from error

    async def _drop(self, parts: Sequence[Item]) -> None:
        """Parts that nothing names; if that fails, they stay and are in no reader's way."""
        with suppress(Unanswered, Refused, StoreError):
            await self._table.write_all(deletions(parts))

    def _keep_token(self, thread_id: str, token: str) -> None:
        self._tokens.pop(thread_id, None)
        if token:
            self._tokens[thread_id] = token
            if len(self._tokens) > shared.MAX_KNOWN:
                self._tokens.popitem(last=False)


class WrittenThread:
    """The items of a sealed chain. `parts` come first; `actions` are one transaction."""

    def __init__(self, chain: Chain[Mark]) -> None:
        self._chain = chain
        life, version, _ = chain.new_mark
        thread = chain.thread
        rows = [record_item(thread, life, *record) for record in chain.records]
        self.parts = [part for _, parts in rows for part in parts]
        self._records = self._named([record for record, _ in rows])
        body, token, parts = split(thread.thread_id, f"h#{life}", chain.encoded)
        self.parts += parts
        self._entries = list(chain.entries.values())
        # Beside them: the head, the way to it, and the sign of an owner that was lost.
        room = MOST_IN_TRANSACTION - len(rows) - 3
        is_behind = len(self._entries) > room
        self.head = HeadItem(
            thread.thread_id,
            thread.user_id,
            life,
            version,
            body,
            chain.checksum,
            token,
            len(parts),
            (version, rows[0][0].first_seq if rows else 1) if is_behind else None,
        )

    @property
    def stored_head(self) -> HeadItem:
        """As it is read, with all its bytes."""
        return replace(self.head, body=self._chain.encoded, parts=0)

    def actions(self) -> list[dict[str, Any]]:
        chain, head = self._chain, self.head
        put: dict[str, Any] = {"Item": head.item(chain.thread)}
        if chain.known is None:
            put["ConditionExpression"] = IS_NEW
        else:
            life, version, _ = chain.known.mark
            put["ConditionExpression"] = IS_KNOWN
            put["ExpressionAttributeValues"] = values(life=life, version=version)
        actions = [{"Put": put}]
        if chain.known is None:
            pointer = pointer_item(chain.thread, head.life)
            actions.append({"Put": {"Item": pointer, "ConditionExpression": IS_NEW}})
        items = [record.item(head.thread_id, head.life) for record in self._records]
        if head.behind is None:
            items += [entry_item(entry, head.life, head.version) for entry in self._entries]
        else:
            items.append(note(head.thread_id, head.life))
        return [*actions, *({"Put": {"Item": item}} for item in items)]

    def _named(self, records: list[RecordItem]) -> list[RecordItem]:
        """The last record names all entries of the chain, for the removal of the thread."""
        if not records:
            return records
        names = frozenset(map(entry_name, self._chain.entries.values()))
        return [*records[:-1], replace(records[-1], entries=names)]


def record_item(
    thread: Thread, life: str, first_seq: int, commit_id: str, body: bytes
) -> tuple[RecordItem, list[Item]]:
    """The item of a sealed record, and its parts if it is too large for one."""
    check = record_checksum(thread.thread_id, first_seq, commit_id, body, thread.incarnation)
    whole, token, parts = split(thread.thread_id, record_place(life, first_seq), body)
    return RecordItem(first_seq, commit_id, whole, check, token, len(parts)), parts


async def restore(
    table: Table,
    codec: RecordCodec,
    unfinished: Unfinished,
    thread: Thread,
    records: Sequence[StoredRecord],
) -> None:
    """Write a whole thread of another store: its records first, where nothing names them yet.

    Raises:
        ConditionFailed: there is one of this id.
        StateCorrupt: the records are not its log.
    """
    life = uuid.uuid4().hex
    items, chain = await asyncio.to_thread(_whole_thread, codec, life, thread, records)
    written = WrittenThread(chain)
    await table.write_all(puts([*items, *written.parts]))
    await table.transact(written.actions())
    if written.head.behind is not None:
        await unfinished.index(written.stored_head)


def _whole_thread(
    codec: RecordCodec, life: str, thread: Thread, records: Sequence[StoredRecord]
) -> tuple[list[Item], Chain[Mark]]:
    """The items of its records, and a chain that writes the rest."""
    chain: Chain[Mark] = Chain(None, codec, is_read=False, head=thread, is_changed=True)
    names: list[frozenset[str]] = []
    for record in read_whole_log(thread, records):
        entries = list(entries_of(thread, record.events))
        chain.entries.update({(entry.kind, entry.key): entry for entry in entries})
        names.append(frozenset(map(entry_name, entries)))
    chain.records = [(record.first_seq, record.commit_id, record.body) for record in records]
    chain.seal()
    chain.mark = (life, 1, chain.checksum)
    items: list[Item] = []
    for sealed, named in zip(chain.records, names, strict=True):
        record_of, parts = record_item(thread, life, *sealed)
        items += [replace(record_of, entries=named).item(thread.thread_id, life), *parts]
    chain.records = []
    return items, chain
