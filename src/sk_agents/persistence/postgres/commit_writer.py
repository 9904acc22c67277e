"""One statement at a time for all commits that wait.

`admit` decides on the heads that are known here, most of which this process wrote itself. The
statement's condition says whether a head was still that one; the commits of a thread whose head was
not are decided again, on what is read then. So a plain commit reads nothing.

Commits of one thread that wait together form a chain: each is admitted on the head that the one
before it leaves, and all of them are written with one new head, or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors

from sk_agents.engine.log.commits import (
    Absent,
    Admission,
    Commit,
    Committed,
    Pending,
    admit,
    claimed,
    entries_of,
    same_thread,
)
from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    InvalidInput,
    SchemaTooNew,
    StateCorrupt,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TealError,
)
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.encoding import (
    Record,
    ThreadCodec,
    check_replay,
    decode_record,
    encode_head,
    head_checksum,
    read_whole_log,
    record_checksum,
    unshared,
)
from sk_agents.persistence.liveness import local_process_is_gone
from sk_agents.persistence.postgres import statements
from sk_agents.persistence.postgres.arrays import (
    BoolArray,
    BytesArray,
    Int8Array,
    TextArray,
    TimeArray,
)
from sk_agents.persistence.postgres.connections import Rows, fetch, open_connection
from sk_agents.persistence.postgres.rows import entry
from sk_agents.postgres_access import AsyncConnection, PostgresAccess, is_lost, store_error

logger = logging.getLogger(__name__)

MAX_GROUP = 128
MAX_GROUP_BYTES = 4 * 1024 * 1024
MAX_KNOWN = 2_048
# Of how many commits of a thread the ids are remembered.
MAX_RECENT = 8
# How often a commit is decided again before its thread counts as busy.
MAX_TRIES = 200

# What a statement may fail with though each of its commits could be stored.
_TRY_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
# What a text or a size in a commit may be refused with.
_INVALID = (errors.DataError, errors.ProgramLimitExceeded, UnicodeEncodeError)


# One thread's own trouble, which must not become that of the others in its group.
Unreadable = StateCorrupt | SchemaTooNew


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head as it was read or written. `alive` says whether its owner was, when it was read.

    `recent` are the first places and ids of its last commits, without a gap: those of this process.
    """

    no: int
    version: int
    thread: Thread
    written: ThreadCodec
    checksum: int
    alive: bool | None = None
    recent: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True, eq=False)
class Job:
    """A commit, or the claim of `owner` if there is none. `sent` is what became of it if a
    statement whose answer was lost took effect: the head's version and checksum then."""

    thread_id: str
    commit: Commit | None
    owner: str
    body: bytes
    now: datetime
    future: asyncio.Future[Committed]
    must_read: bool = False
    tries: int = 0
    sent: tuple[int, int, Committed] | None = None

    @property
    def needs_lease_state(self) -> bool:
        return self.commit is None or self.commit.needs_lease_state

    @property
    def approval_id(self) -> str | None:
        guard = self.commit.guard if self.commit is not None else None
        return guard.approval_id if isinstance(guard, Pending) else None

    @property
    def makes_thread(self) -> bool:
        return self.commit is not None and isinstance(self.commit.guard, Absent)

    @property
    def first_seq(self) -> int | None:
        """The first place at which its record can lie if it was sent before."""
        if self.commit is None:
            return None
        return 1 if isinstance(self.commit.guard, Absent) else self.commit.guard.next_seq


@dataclass(slots=True, eq=False)
class Chain:
    """What is to become of one thread. `known` is `None` for one that is not there."""

    known: KnownHead | None
    codec: RecordCodec
    is_read: bool
    damage: Unreadable | None = None
    head: Thread | None = None
    records: list[tuple[int, str, bytes]] = field(default_factory=list)
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    admitted: dict[str, Record] = field(default_factory=dict)
    outcomes: list[tuple[Job, Committed | TealError]] = field(default_factory=list)
    takes_over: bool = False
    is_changed: bool = False
    written: ThreadCodec | None = None
    encoded: bytes = b""
    checksum: int = 0

    def __post_init__(self) -> None:
        if self.known is not None:
            self.head, self.written = self.known.thread, self.known.written

    @property
    def thread(self) -> Thread:
        """The head that is written."""
        assert self.head is not None
        return self.head

    def add(self, job: Job, admission: Admission) -> None:
        self.head, self.is_changed = admission.thread, True
        if admission.events and job.commit is not None:
            first_seq, commit_id = admission.events[0].seq, job.commit.commit_id
            self.records.append((first_seq, commit_id, job.body))
            self.admitted[commit_id] = Record(commit_id, first_seq, admission.events)
        for row in admission.entries:
            self.entries[row.kind, row.key] = row

    def record_of(self, commit_id: str) -> Record | None:
        return self.admitted.get(commit_id)

    def codec_of(self, thread: Thread) -> ThreadCodec:
        """How this thread is written, or will be."""
        if self.written is None:
            self.written = self.codec.for_new(thread)
        return self.written

    def seal(self) -> None:
        """Turn what is to be written into bytes."""
        written = self.codec_of(self.thread)
        self.encoded = written.encode_head(self.thread)
        self.checksum = head_checksum(self.thread.thread_id, self.encoded)
        self.records = [
            (first_seq, commit_id, written.seal_record(first_seq, commit_id, body))
            for first_seq, commit_id, body in self.records
        ]

    def next_known(self, no: int) -> KnownHead:
        """The head once this chain is written."""
        version, recent = (self.known.version, self.known.recent) if self.known else (0, ())
        recent += tuple((first_seq, commit_id) for first_seq, commit_id, _ in self.records)
        thread = unshared(self.thread)
        written = self.codec_of(thread)
        recent = recent[-MAX_RECENT:]
        return KnownHead(no, version + 1, thread, written, self.checksum, recent=recent)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read for a group: heads by thread, approvals by key, records by their job."""

    heads: dict[str, KnownHead | Unreadable | None]
    approvals: dict[str, Entry]
    sent_before: dict[Job, Record | Unreadable]


class CommitWriter:
    """Bound to one event loop, with a connection of its own from `start` until `stop`.

    `lease_clock` gives the time of leases, or `None` for the database's own.
    """

    def __init__(
        self,
        access: PostgresAccess,
        codec: RecordCodec,
        lease_clock: Callable[[], float | None],
    ) -> None:
        self._access = access
        self._codec = codec
        self._lease_clock = lease_clock
        self._connection: AsyncConnection | None = None
        self._known: OrderedDict[str, KnownHead] = OrderedDict()
        self._waiting: list[Job] = []
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.groups = 0
        self.jobs = 0
        self.reads = 0
        self.decided_again = 0

    def start(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """Write what is queued, then end."""
        self._stopping = True
        self._wake_up()
        if self._task is not None:
            await self._task
        if self._connection is not None:
            await self._connection.close()

    def commit(self, commit: Commit, body: bytes, now: datetime) -> asyncio.Future[Committed]:
        """What `Store.commit` promises."""
        return self._queue(commit.thread_id, commit, "", body, now)

    def claim(self, thread_id: str, owner: str, now: datetime) -> asyncio.Future[Committed]:
        """What `Store.claim` promises."""
        return self._queue(thread_id, None, owner, b"", now)

    def forget(self, thread_id: str) -> None:
        self._known.pop(thread_id, None)

    def _queue(
        self, thread_id: str, commit: Commit | None, owner: str, body: bytes, now: datetime
    ) -> asyncio.Future[Committed]:
        if self._stopping or self._task is None:
            raise StoreUnavailable(f"{self._access}: the store is closed")
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._waiting.append(Job(thread_id, commit, owner, body, now, future))
        self._wake_up()
        return future

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _serve(self) -> None:
        while self._waiting or not self._stopping:
            if not self._waiting:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
                continue
            group = self._next_group()
            self.groups += 1
            try:
                await self._write(group)
            except Exception as error:  # the writer must outlive what a commit raises
                _refuse(group, error if isinstance(error, TealError) else StoreError(str(error)))
                if not isinstance(error, TealError):
                    logger.exception("commits failed")

    def _next_group(self) -> list[Job]:
        room, size = MAX_GROUP_BYTES, 0
        for job in self._waiting[:MAX_GROUP]:
            room -= len(job.body)
            if room < 0 and size:
                break
            size += 1
        group, self._waiting = self._waiting[:size], self._waiting[size:]
        return group

    async def _write(self, group: list[Job]) -> None:
        """Try once; what was decided on an old head goes to the front of the queue again."""
        facts = await self._read_facts(group)
        chains, postponed = self._decide(group, facts)
        changed = [chain for chain in chains.values() if chain.is_changed]
        try:
            won = await self._send(changed) if changed else {}
        except _INVALID as error:
            await self._write_apart(group, error)
            return
        except psycopg.Error as error:
            await self._look_at(error, group, changed)
            return
        self._waiting[:0] = postponed
        for thread_id, chain in chains.items():
            self._settle(thread_id, chain, won)

    async def _write_apart(self, group: list[Job], error: Exception) -> None:
        """One of these cannot be stored: find it, and store the others."""
        if len(group) == 1:
            logger.info("a commit was refused by the database: %s", type(error).__name__)
            _refuse(group, InvalidInput("A text of this commit cannot be stored."))
            return
        for job in group:
            await self._write([job])

    async def _look_at(self, error: psycopg.Error, group: list[Job], sent: list[Chain]) -> None:
        """The statement failed. With its connection, if that was lost, went what it did."""
        if self._connection is not None and not is_lost(self._connection):
            if isinstance(error, _TRY_AGAIN):
                self._try_again(group)
            elif len(group) == 1:
                _refuse(group, store_error(error, self._access))
            else:
                for job in group:
                    await self._write([job])
            if isinstance(error, errors.ReadOnlySqlTransaction):
                await self._connection.close()  # the primary is elsewhere by now
            return
        logger.warning("the connection that commits was lost", extra={"commits": len(group)})
        lost_again = [job for job in group if job.sent is not None]
        _refuse(lost_again, self._outcome_unknown())
        for chain in sent:
            version = chain.known.version + 1 if chain.known is not None else 1
            for job, outcome in chain.outcomes:
                if isinstance(outcome, Committed):
                    job.sent = (version, chain.checksum, outcome)
        self._try_again([job for job in group if job not in lost_again])

    def _outcome_unknown(self) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"{self._access}: the connection was lost; send the same commit again."
        )

    def _try_again(self, jobs: Sequence[Job]) -> None:
        """On what is read then."""
        for job in jobs:
            self._known.pop(job.thread_id, None)
            job.must_read = True
            job.tries += 1
        self.decided_again += len(jobs)
        _refuse(
            [job for job in jobs if job.tries > MAX_TRIES],
            StoreBusy(f"{self._access}: the conversation changes all the time"),
        )
        self._waiting[:0] = [job for job in jobs if job.tries <= MAX_TRIES]

    def _settle(self, thread_id: str, chain: Chain, won: Mapping[Chain, int]) -> None:
        """Tell the callers, if what was decided holds."""
        if chain.is_changed and chain not in won or not (chain.is_changed or chain.is_read):
            self._try_again([job for job, _ in chain.outcomes])
            return
        if chain.is_changed:
            self._keep(thread_id, chain.next_known(won[chain]))
        for job, outcome in chain.outcomes:
            self.jobs += 1
            _resolve(job.future, outcome)

    def _keep(self, thread_id: str, known: KnownHead) -> None:
        self._known[thread_id] = known
        self._known.move_to_end(thread_id)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def _read_facts(self, group: list[Job]) -> Facts:
        """Raises StoreError: nothing of these commits was written, as far as is known."""
        try:
            while True:
                connection, is_new = await self._usable_connection()
                try:
                    heads = await self._read_heads(connection, group)
                    approvals = await self._read_approvals(connection, group)
                    sent = await self._find_sent(connection, group, heads)
                    return Facts(heads, approvals, sent)
                except psycopg.Error as error:
                    if not is_lost(connection):
                        raise store_error(error, self._access) from error
                    if is_new:
                        raise self._access.unreachable(error) from error
        except StoreError:
            unsure = [job for job in group if job.sent is not None]
            _refuse(unsure, self._outcome_unknown())
            raise

    async def _usable_connection(self) -> tuple[AsyncConnection, bool]:
        if self._connection is not None and not is_lost(self._connection):
            return self._connection, False
        self._connection = None
        self._connection = await open_connection(self._access)
        return self._connection, True

    async def _read_heads(
        self, connection: AsyncConnection, group: list[Job]
    ) -> dict[str, KnownHead | Unreadable | None]:
        wanted = {job.thread_id for job in group if self._must_read(job)}
        if not wanted:
            return {}
        self.reads += 1
        heads: dict[str, KnownHead | Unreadable | None] = dict.fromkeys(wanted)
        for thread_id, no, version, body, check, alive in await fetch(
            connection,
            statements.HEADS_TO_CHANGE,
            {"thread_ids": TextArray([*wanted]), "clock": self._lease_clock()},
        ):
            heads[thread_id] = self._read_head(thread_id, no, version, body, check, alive)
        return heads

    def _must_read(self, job: Job) -> bool:
        known = self._known.get(job.thread_id)
        if job.must_read or job.approval_id is not None:
            return True
        if known is None:
            return not job.makes_thread
        return job.needs_lease_state and known.thread.owner is not None

    def _read_head(
        self, thread_id: str, no: int, version: int, body: bytes, check: int, alive: bool
    ) -> KnownHead | Unreadable:
        try:
            thread, written = self._codec.decode_head(thread_id, body, check)
        except (StateCorrupt, SchemaTooNew) as damage:
            return damage
        before = self._known.get(thread_id)
        is_same = before is not None and (before.no, before.version) == (no, version)
        recent = before.recent if before is not None and is_same else ()
        return KnownHead(no, version, thread, written, check, alive, recent)

    async def _read_approvals(
        self, connection: AsyncConnection, group: list[Job]
    ) -> dict[str, Entry]:
        wanted = {job.approval_id for job in group if job.approval_id is not None}
        if not wanted:
            return {}
        values = {"kind": "approval", "keys": TextArray([*wanted])}
        rows = await fetch(connection, statements.ENTRIES, values)
        return {found.key: found for found in map(entry, rows)}

    async def _find_sent(
        self,
        connection: AsyncConnection,
        group: list[Job],
        heads: Mapping[str, KnownHead | Unreadable | None],
    ) -> dict[Job, Record | Unreadable]:
        """The records of those commits that may have been stored after what their sender read."""
        wanted: list[tuple[Job, KnownHead]] = []
        for job in group:
            known = heads.get(job.thread_id, self._known.get(job.thread_id))
            if isinstance(known, KnownHead) and _may_be_stored(job, known):
                wanted.append((job, known))
        if not wanted:
            return {}
        values = {
            "job": Int8Array([*range(len(wanted))]),
            "no": Int8Array([known.no for _, known in wanted]),
            "first_seq": Int8Array([max(job.first_seq or 0, 0) for job, _ in wanted]),
            "commit_id": TextArray([job.commit.commit_id for job, _ in wanted if job.commit]),
        }
        found: dict[Job, Record | Unreadable] = {}
        for number, first_seq, body, check in await fetch(
            connection, statements.SENT_BEFORE, values
        ):
            job, known = wanted[number]
            if job.commit is None or first_seq >= known.thread.next_seq:
                continue
            identity = (job.thread_id, first_seq, job.commit.commit_id, body, check)
            try:
                found[job] = decode_record(
                    *identity, known.thread.incarnation, written=known.written
                )
            except (StateCorrupt, SchemaTooNew) as damage:
                found[job] = damage
        return found

    def _decide(self, group: list[Job], facts: Facts) -> tuple[dict[str, Chain], list[Job]]:
        """A chain for each thread, and the commits that have to wait for what these do."""
        chains: dict[str, Chain] = {}
        postponed: list[Job] = []
        taken: dict[tuple[str, str], Chain] = {}
        for job in group:
            chain = chains.get(job.thread_id)
            if chain is None:
                chain = chains[job.thread_id] = self._chain(job.thread_id, facts)
            try:
                outcome, admission = _outcome(job, chain, facts)
            except _Later:
                job.must_read = True
                postponed.append(job)
                continue
            except TealError as refusal:
                outcome, admission = refusal, None
            if admission is not None:
                keys = [(row.kind, row.key) for row in admission.entries]
                if any(taken.setdefault(key, chain) is not chain for key in keys):
                    postponed.append(job)
                    continue
                chain.add(job, admission)
            chain.outcomes.append((job, outcome))
        for chain in chains.values():
            if chain.is_changed:
                chain.seal()
        return chains, postponed

    def _chain(self, thread_id: str, facts: Facts) -> Chain:
        if thread_id not in facts.heads:
            return Chain(self._known.get(thread_id), self._codec, is_read=False)
        found = facts.heads[thread_id]
        if isinstance(found, StateCorrupt | SchemaTooNew):
            return Chain(None, self._codec, is_read=True, damage=found)
        return Chain(found, self._codec, is_read=True)

    async def _send(self, chains: list[Chain]) -> dict[Chain, int]:
        """The threads that were written, with their numbers. Raises psycopg.Error."""
        connection, _ = await self._usable_connection()
        values = {**_columns(chains), "clock": self._lease_clock()}
        rows: Rows = await fetch(connection, statements.COMMIT, values)
        return {chains[number]: no for number, no in rows}


def restoring(
    codec: RecordCodec, thread: Thread, records: Sequence[StoredRecord]
) -> dict[str, Any]:
    """The parameters of `statements.COMMIT` that write a whole thread. Raises StateCorrupt: the
    records are not its log."""
    chain = Chain(None, codec, is_read=False, head=thread, is_changed=True)
    for record in read_whole_log(thread, records):
        for row in entries_of(thread, record.events):
            chain.entries[row.kind, row.key] = row
    chain.records = [(record.first_seq, record.commit_id, record.body) for record in records]
    chain.seal()
    return _columns([chain])


class _Later(Exception):
    """Whether this commit is admitted depends on what is not known in this group."""


def _outcome(
    job: Job, chain: Chain, facts: Facts
) -> tuple[Committed | TealError, Admission | None]:
    """What the caller gets if the chain is written, and what there is to write for that."""
    if chain.damage is not None:
        raise chain.damage
    known, head = chain.known, chain.head
    if job.sent is not None and known is not None and chain.is_read:
        if job.sent[:2] == (known.version, known.checksum):
            return job.sent[2], None
    if job.commit is None:
        free = same_thread(job.thread_id, head, None)
        leased, takes_over = _is_leased(chain)
        thread = claimed(free, job.owner, leased=leased, now=job.now)
        chain.takes_over = chain.takes_over or takes_over
        return Committed(thread, ()), Admission(thread, (), ())
    commit = job.commit
    before = facts.sent_before.get(job) or chain.record_of(commit.commit_id)
    if isinstance(before, StateCorrupt | SchemaTooNew):
        raise before
    if head is not None and before is not None:
        return Committed(head, check_replay(before, commit.events)), None
    approval = None
    if job.approval_id is not None:
        key = ("approval", job.approval_id)
        approval = chain.entries.get(key) or facts.approvals.get(job.approval_id)
    leased, takes_over = (False, False)
    if commit.needs_lease_state:
        leased, takes_over = _is_leased(chain)
    admission = admit(commit, head, leased=leased, approval=approval, now=job.now, body=job.body)
    if head is None or admission.thread.metadata is not head.metadata:
        encode_head(admission.thread)  # its metadata may have no JSON form
    chain.takes_over = chain.takes_over or takes_over
    return Committed(admission.thread, admission.events), admission


def _is_leased(chain: Chain) -> tuple[bool, bool]:
    """Whether a live owner holds the thread; and if not, whether the database must see to it that
    its last one has not come back."""
    owner = chain.head.owner if chain.head is not None else None
    if owner is None:
        return False, False
    known = chain.known
    if known is None or known.alive is None or known.thread.owner != owner:
        raise _Later
    if known.alive:
        return not local_process_is_gone(owner), False
    return False, True


def _may_be_stored(job: Job, known: KnownHead) -> bool:
    """Whether the log may hold this commit, behind what its sender had read of it."""
    first_seq = job.first_seq
    if job.commit is None or first_seq is None or first_seq >= known.thread.next_seq:
        return False
    is_covered = known.recent and known.recent[0][0] <= first_seq
    return not is_covered or any(id == job.commit.commit_id for _, id in known.recent)


def _columns(chains: list[Chain]) -> dict[str, Any]:
    """The parameters of `statements.COMMIT`."""
    # In one order for all instances, so that no two wait for each other.
    moved = sorted(
        ((n, chain) for n, chain in enumerate(chains) if chain.known is not None),
        key=lambda pair: pair[1].known.no if pair[1].known else 0,
    )
    made = sorted(
        ((n, chain) for n, chain in enumerate(chains) if chain.known is None),
        key=lambda pair: pair[1].thread.thread_id,
    )
    old = [(n, chain, chain.thread, chain.known) for n, chain in moved if chain.known is not None]
    new = [(n, chain, chain.thread) for n, chain in made]
    records = [
        (n, chain.thread, record) for n, chain in enumerate(chains) for record in chain.records
    ]
    entries = [(n, row) for n, chain in enumerate(chains) for row in chain.entries.values()]
    return {
        "chain": Int8Array([n for n, *_ in old]),
        "no": Int8Array([known.no for *_, known in old]),
        "version": Int8Array([known.version for *_, known in old]),
        "owner": TextArray([thread.owner for _, _, thread, _ in old]),
        "runnable": BoolArray([thread.runnable for _, _, thread, _ in old]),
        "updated_at": TimeArray([thread.updated_at for _, _, thread, _ in old]),
        "head": BytesArray([chain.encoded for _, chain, _, _ in old]),
        "checksum": Int8Array([chain.checksum for _, chain, _, _ in old]),
        "takes_over": BoolArray([chain.takes_over for _, chain, _, _ in old]),
        "new_chain": Int8Array([n for n, _, _ in new]),
        "new_thread_id": TextArray([thread.thread_id for _, _, thread in new]),
        "new_user_id": TextArray([thread.user_id for _, _, thread in new]),
        "new_surface": TextArray([thread.surface for _, _, thread in new]),
        "new_session_id": TextArray([thread.session_id for _, _, thread in new]),
        "new_owner": TextArray([thread.owner for _, _, thread in new]),
        "new_runnable": BoolArray([thread.runnable for _, _, thread in new]),
        "new_updated_at": TimeArray([thread.updated_at for _, _, thread in new]),
        "new_head": BytesArray([chain.encoded for _, chain, _ in new]),
        "new_checksum": Int8Array([chain.checksum for _, chain, _ in new]),
        "record_chain": Int8Array([n for n, _, _ in records]),
        "record_first_seq": Int8Array([first_seq for _, _, (first_seq, _, _) in records]),
        "record_commit_id": TextArray([commit_id for _, _, (_, commit_id, _) in records]),
        "record_body": BytesArray([body for _, _, (_, _, body) in records]),
        "record_checksum": Int8Array(
            [
                record_checksum(thread.thread_id, first_seq, commit_id, body, thread.incarnation)
                for _, thread, (first_seq, commit_id, body) in records
            ]
        ),
        "entry_chain": Int8Array([n for n, _ in entries]),
        "entry_kind": TextArray([row.kind for _, row in entries]),
        "entry_key": TextArray([row.key for _, row in entries]),
        "entry_user_id": TextArray([row.user_id for _, row in entries]),
        "entry_run_id": TextArray([row.run_id for _, row in entries]),
        "entry_open": BoolArray([row.open for _, row in entries]),
        "entry_due_at": TimeArray([row.due_at for _, row in entries]),
    }


def _refuse(jobs: Collection[Job], error: TealError) -> None:
    for job in jobs:
        _resolve(job.future, error)


def _resolve(future: asyncio.Future[Committed], outcome: Committed | TealError) -> None:
    if future.done():  # its caller was cancelled, or was told before
        return
    if isinstance(outcome, Committed):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
