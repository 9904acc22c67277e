"""Commits that wait are decided together and written at once: for stores behind a network.

`admit` decides on the heads that are known here, most of which this process wrote itself. What is
sent holds only if a head is still that one (`mark`); the commits of a thread whose head was not are
decided again, on what is read then. So a plain commit reads nothing.

Commits of one thread that wait together form a chain: each is admitted on the head that the one
before it leaves, and all of them are written with one new head, or none.

A store derives its writer from `CommitWriter` and adds how heads are read and chains are sent.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Generic, TypeVar

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
from sk_agents.engine.values import dataclass
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
    unshared,
)
from sk_agents.persistence.liveness import local_process_is_gone

logger = logging.getLogger(__name__)

MAX_GROUP = 128
MAX_GROUP_BYTES = 4 * 1024 * 1024
MAX_KNOWN = 2_048
# Of how many commits of a thread the ids are remembered.
MAX_RECENT = 8
# How often a commit is decided again before its thread counts as busy.
MAX_TRIES = 200

# What tells one written head of a thread from all others.
Mark = TypeVar("Mark")

# One thread's own trouble, which must not become that of the others in its group.
Unreadable = StateCorrupt | SchemaTooNew


class NotStorable(Exception):
    """One of these commits holds what the store cannot keep. Nothing was written."""


class DecideAgain(Exception):
    """Nothing was written, though each commit could be."""


class AnswerLost(Exception):
    """The connection was lost: all of it was written, some of it, or nothing."""


class NotSecured(Exception):
    """What was written is there, but not yet as safe as the operator asked for."""


@dataclass(frozen=True, slots=True)
class KnownHead(Generic[Mark]):
    """A head as it was read or written. `alive` says whether its owner was, when it was read.

    `no` is the store's own number of the thread, if it has one. `recent` are the first places and
    ids of its last commits, without a gap: those of this process.
    """

    mark: Mark
    thread: Thread
    written: ThreadCodec
    alive: bool | None = None
    recent: tuple[tuple[int, str], ...] = ()
    no: int = 0


@dataclass(slots=True, eq=False)
class CommitJob(Generic[Mark]):
    """A commit, or the claim of `owner` if there is none. `sent` is what became of it if a
    sending whose answer was lost took effect, with the head's mark then."""

    thread_id: str
    commit: Commit | None
    owner: str
    body: bytes
    now: datetime
    future: asyncio.Future[Committed]
    must_read: bool = False
    tries: int = 0
    sent: tuple[Mark, Committed] | None = None

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
class Chain(Generic[Mark]):
    """What is to become of one thread. `known` is `None` for one that is not there."""

    known: KnownHead[Mark] | None
    codec: RecordCodec
    is_read: bool
    damage: Unreadable | None = None
    head: Thread | None = None
    records: list[tuple[int, str, bytes]] = field(default_factory=list)
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    admitted: dict[str, Record] = field(default_factory=dict)
    outcomes: list[tuple[CommitJob[Mark], Committed | TealError]] = field(default_factory=list)
    takes_over: bool = False
    is_changed: bool = False
    written: ThreadCodec | None = None
    encoded: bytes = b""
    checksum: int = 0
    mark: Mark | None = None

    def __post_init__(self) -> None:
        if self.known is not None:
            self.head, self.written = self.known.thread, self.known.written

    @property
    def thread(self) -> Thread:
        """The head that is written."""
        assert self.head is not None
        return self.head

    @property
    def new_mark(self) -> Mark:
        """That of the head that is written."""
        assert self.mark is not None
        return self.mark

    @property
    def has_succeeded(self) -> bool:
        """Whether a caller is going to be told so."""
        return any(isinstance(outcome, Committed) for _, outcome in self.outcomes)

    def add(self, job: CommitJob[Mark], admission: Admission) -> None:
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
        thread = self.thread
        written = self.codec_of(thread)
        self.encoded = written.encode_head(thread)
        self.checksum = head_checksum(thread.thread_id, self.encoded)
        self.records = [
            (first_seq, commit_id, written.seal_record(first_seq, commit_id, body))
            for first_seq, commit_id, body in self.records
        ]

    def next_known(self, no: int) -> KnownHead[Mark]:
        """The head once this chain is written."""
        recent = self.known.recent if self.known is not None else ()
        recent += tuple([(first_seq, commit_id) for first_seq, commit_id, _ in self.records])
        thread = unshared(self.thread)
        written = self.codec_of(thread)
        return KnownHead(self.new_mark, thread, written, recent=recent[-MAX_RECENT:], no=no)


@dataclass(frozen=True, slots=True)
class Facts(Generic[Mark]):
    """What was read for a group: heads by thread, approvals by key, records by their job."""

    heads: dict[str, KnownHead[Mark] | Unreadable | None]
    approvals: dict[str, Entry]
    sent_before: dict[CommitJob[Mark], Record | Unreadable]


class CommitWriter(ABC, Generic[Mark]):
    """Bound to one event loop, from `start` until `stop`. `place` names the store in messages."""

    def __init__(self, place: object, codec: RecordCodec) -> None:
        self._place = place
        self._codec = codec
        self._known: OrderedDict[str, KnownHead[Mark]] = OrderedDict()
        self._waiting: list[CommitJob[Mark]] = []
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.groups = 0
        self.jobs = 0
        self.reads = 0
        self.decided_again = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """Write what is queued, then end."""
        self._stopping = True
        self._wake_up()
        if self._task is not None:
            await self._task

    def commit(self, commit: Commit, body: bytes, now: datetime) -> asyncio.Future[Committed]:
        """What `Store.commit` promises."""
        return self._queue(commit.thread_id, commit, "", body, now)

    def claim(self, thread_id: str, owner: str, now: datetime) -> asyncio.Future[Committed]:
        """What `Store.claim` promises."""
        return self._queue(thread_id, None, owner, b"", now)

    def forget(self, thread_id: str) -> None:
        self._known.pop(thread_id, None)

    @abstractmethod
    async def _read_heads(
        self, thread_ids: Collection[str]
    ) -> dict[str, KnownHead[Mark] | Unreadable]:
        """Those of them that exist, each with whether its owner lives."""

    @abstractmethod
    async def _read_approvals(self, wanted: Mapping[str, str]) -> dict[str, Entry]:
        """The entries of these approvals by key; `wanted` says in which thread each is decided."""

    @abstractmethod
    async def _read_sent(
        self, wanted: Sequence[tuple[CommitJob[Mark], KnownHead[Mark]]]
    ) -> dict[CommitJob[Mark], tuple[int, bytes, int]]:
        """Where a record of the job's commit id lies at or behind its `first_seq`, with the
        record's bytes and checksum."""

    @abstractmethod
    async def _send(self, chains: list[Chain[Mark]]) -> dict[Chain[Mark], int]:
        """Write each chain as a whole if its head is still the known one and, where it takes over,
        if the head's owner has not come back. Those that were written, with the threads' numbers.

        Raises:
            NotStorable, DecideAgain, TealError: nothing was written.
            AnswerLost: nothing is known.
        """

    @abstractmethod
    def _mark_of(self, chain: Chain[Mark]) -> Mark:
        """The mark of the head that a sealed chain writes."""

    async def _secure(self, *, has_written: bool) -> None:
        """Return once what callers are going to be told is as safe as it has to be.

        Raises:
            NotSecured: it is not.
        """

    def _queue(
        self, thread_id: str, commit: Commit | None, owner: str, body: bytes, now: datetime
    ) -> asyncio.Future[Committed]:
        if self._stopping or self._task is None:
            raise StoreUnavailable(f"{self._place}: the store is closed")
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._waiting.append(CommitJob(thread_id, commit, owner, body, now, future))
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
            await self._attempt(self._next_group())

    async def _attempt(self, group: list[CommitJob[Mark]]) -> None:
        self.groups += 1
        try:
            await self._write(group)
        except Exception as error:  # the writer must outlive what a commit raises
            _refuse(group, error if isinstance(error, TealError) else StoreError(str(error)))
            if not isinstance(error, TealError):
                logger.exception("commits failed")

    def _next_group(self) -> list[CommitJob[Mark]]:
        room, size = MAX_GROUP_BYTES, 0
        for job in self._waiting[:MAX_GROUP]:
            room -= len(job.body)
            if room < 0 and size:
                break
            size += 1
        group, self._waiting = self._waiting[:size], self._waiting[size:]
        return group

    async def _write(self, group: list[CommitJob[Mark]]) -> None:
        """Try once; what was decided on an old head goes to the front of the queue again."""
        facts = await self._read_facts(group)
        chains, postponed = self._decide(group, facts)
        changed = [chain for chain in chains.values() if chain.is_changed]
        try:
            won = await self._send(changed) if changed else {}
            if any(chain.has_succeeded for chain in chains.values()):
                await self._secure(has_written=bool(won))
        except NotStorable as error:
            await self._write_apart(group, error)
        except DecideAgain:
            self._try_again(group)
        except NotSecured as error:
            self._leave_unsure(group, error)
        except AnswerLost:
            self._look_whether_written(group, changed)
        except StoreUnavailable:
            raise
        except TealError as error:
            await self._write_apart(group, error)
        else:
            self._waiting[:0] = postponed
            for thread_id, chain in chains.items():
                self._settle(thread_id, chain, won)

    async def _write_apart(self, group: list[CommitJob[Mark]], error: Exception) -> None:
        """One of these cannot be stored: find it, and store the others."""
        if len(group) > 1:
            for job in group:
                await self._write([job])
        elif isinstance(error, TealError):
            _refuse(group, error)
        else:
            logger.info("a commit was refused by the database: %s", type(error.__cause__).__name__)
            _refuse(group, InvalidInput("A text of this commit cannot be stored."))

    def _leave_unsure(self, group: list[CommitJob[Mark]], error: NotSecured) -> None:
        for job in group:
            self.forget(job.thread_id)
        _refuse(group, CommitOutcomeUnknown(f"{self._place}: {error}"))

    def _look_whether_written(self, group: list[CommitJob[Mark]], sent: list[Chain[Mark]]) -> None:
        logger.warning("the connection that commits was lost", extra={"commits": len(group)})
        lost_again = [job for job in group if job.sent is not None]
        _refuse(lost_again, self._outcome_unknown())
        for chain in sent:
            for job, outcome in chain.outcomes:
                if isinstance(outcome, Committed):
                    job.sent = (chain.new_mark, outcome)
        self._try_again([job for job in group if job not in lost_again])

    def _outcome_unknown(self) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"{self._place}: the connection was lost; send the same commit again."
        )

    def _try_again(self, jobs: Sequence[CommitJob[Mark]]) -> None:
        """On what is read then."""
        for job in jobs:
            self._known.pop(job.thread_id, None)
            job.must_read = True
            job.tries += 1
        self.decided_again += len(jobs)
        _refuse(
            [job for job in jobs if job.tries > MAX_TRIES],
            StoreBusy(f"{self._place}: the conversation changes all the time"),
        )
        self._waiting[:0] = [job for job in jobs if job.tries <= MAX_TRIES]

    def _settle(self, thread_id: str, chain: Chain[Mark], won: Mapping[Chain[Mark], int]) -> None:
        """Tell the callers, if what was decided holds."""
        if chain.is_changed and chain not in won or not (chain.is_changed or chain.is_read):
            self._try_again([job for job, _ in chain.outcomes])
            return
        if chain.is_changed:
            self._keep(thread_id, chain.next_known(won[chain]))
        for job, outcome in chain.outcomes:
            self.jobs += 1
            _resolve(job.future, outcome)

    def _keep(self, thread_id: str, known: KnownHead[Mark]) -> None:
        self._known[thread_id] = known
        self._known.move_to_end(thread_id)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def _read_facts(self, group: list[CommitJob[Mark]]) -> Facts[Mark]:
        """Raises StoreError: nothing of these commits was written, as far as is known."""
        try:
            heads: dict[str, KnownHead[Mark] | Unreadable | None] = dict.fromkeys(
                job.thread_id for job in group if self._must_read(job)
            )
            if heads:
                self.reads += 1
                heads.update(await self._read_heads(heads))
            approvals: dict[str, Entry] = {}
            wanted = {job.approval_id: job.thread_id for job in group if job.approval_id}
            if wanted:
                approvals = await self._read_approvals(wanted)
            return Facts(heads, approvals, await self._find_sent(group, heads))
        except StoreError:
            _refuse([job for job in group if job.sent is not None], self._outcome_unknown())
            raise

    def _must_read(self, job: CommitJob[Mark]) -> bool:
        known = self._known.get(job.thread_id)
        if job.must_read or job.approval_id is not None:
            return True
        if known is None:
            return not job.makes_thread
        return job.needs_lease_state and known.thread.owner is not None

    def _read_head(
        self, thread_id: str, no: int, mark: Mark, body: bytes, check: int, alive: bool
    ) -> KnownHead[Mark] | Unreadable:
        """A head from what the store keeps of it."""
        try:
            thread, written = self._codec.decode_head(thread_id, body, check)
        except (StateCorrupt, SchemaTooNew) as damage:
            return damage
        before = self._known.get(thread_id)
        is_same = before is not None and (before.no, before.mark) == (no, mark)
        recent = before.recent if before is not None and is_same else ()
        return KnownHead(mark, thread, written, alive, recent, no)

    async def _find_sent(
        self,
        group: list[CommitJob[Mark]],
        heads: Mapping[str, KnownHead[Mark] | Unreadable | None],
    ) -> dict[CommitJob[Mark], Record | Unreadable]:
        """The records of those commits that may have been stored after what their sender read."""
        wanted: dict[CommitJob[Mark], KnownHead[Mark]] = {}
        for job in group:
            known = heads.get(job.thread_id, self._known.get(job.thread_id))
            if isinstance(known, KnownHead) and _may_be_stored(job, known):
                wanted[job] = known
        if not wanted:
            return {}
        found: dict[CommitJob[Mark], Record | Unreadable] = {}
        rows = await self._read_sent([*wanted.items()])
        for job, (first_seq, body, check) in rows.items():
            known = wanted[job]
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

    def _decide(
        self, group: list[CommitJob[Mark]], facts: Facts[Mark]
    ) -> tuple[dict[str, Chain[Mark]], list[CommitJob[Mark]]]:
        """A chain for each thread, and the commits that have to wait for what these do."""
        chains: dict[str, Chain[Mark]] = {}
        postponed: list[CommitJob[Mark]] = []
        taken: dict[tuple[str, str], Chain[Mark]] = {}
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
                chain.mark = self._mark_of(chain)
        return chains, postponed

    def _chain(self, thread_id: str, facts: Facts[Mark]) -> Chain[Mark]:
        if thread_id not in facts.heads:
            return Chain(self._known.get(thread_id), self._codec, is_read=False)
        found = facts.heads[thread_id]
        if isinstance(found, StateCorrupt | SchemaTooNew):
            return Chain(None, self._codec, is_read=True, damage=found)
        return Chain(found, self._codec, is_read=True)


def whole_chain(codec: RecordCodec, thread: Thread, records: Sequence[StoredRecord]) -> Chain[Mark]:
    """A chain that writes a whole thread of another store. Raises StateCorrupt: the records are not
    its log."""
    chain: Chain[Mark] = Chain(None, codec, is_read=False, head=thread, is_changed=True)
    for record in read_whole_log(thread, records):
        for row in entries_of(thread, record.events):
            chain.entries[row.kind, row.key] = row
    chain.records = [(record.first_seq, record.commit_id, record.body) for record in records]
    chain.seal()
    return chain


class _Later(Exception):
    """Whether this commit is admitted depends on what is not known in this group."""


def _outcome(
    job: CommitJob[Mark], chain: Chain[Mark], facts: Facts[Mark]
) -> tuple[Committed | TealError, Admission | None]:
    """What the caller gets if the chain is written, and what there is to write for that."""
    if chain.damage is not None:
        raise chain.damage
    known, head = chain.known, chain.head
    if job.sent is not None and known is not None and chain.is_read:
        if job.sent[0] == known.mark:
            return job.sent[1], None
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


def _is_leased(chain: Chain[Mark]) -> tuple[bool, bool]:
    """Whether a live owner holds the thread; and if not, whether the store must see to it that its
    last one has not come back."""
    owner = chain.head.owner if chain.head is not None else None
    if owner is None:
        return False, False
    known = chain.known
    if known is None or known.alive is None or known.thread.owner != owner:
        raise _Later
    if known.alive:
        return not local_process_is_gone(owner), False
    return False, True


def _may_be_stored(job: CommitJob[Mark], known: KnownHead[Mark]) -> bool:
    """Whether the log may hold this commit, behind what its sender had read of it."""
    first_seq = job.first_seq
    if job.commit is None or first_seq is None or first_seq >= known.thread.next_seq:
        return False
    is_covered = known.recent and known.recent[0][0] <= first_seq
    return not is_covered or any(id == job.commit.commit_id for _, id in known.recent)


def _refuse(jobs: Collection[CommitJob[Mark]], error: TealError) -> None:
    for job in jobs:
        _resolve(job.future, error)


def _resolve(future: asyncio.Future[Committed], outcome: Committed | TealError) -> None:
    if future.done():  # its caller was cancelled, or was told before
        return
    if isinstance(outcome, Committed):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
