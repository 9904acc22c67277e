"""The one way to change a thread: a conditional commit, and the rules by which it is admitted.

The rules are pure and shared by every store, so that all of them refuse the same commits for the
same reasons. A store reads the head, asks `admit`, and writes what it returns, all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sk_agents.engine.events import (
    DELETING,
    KEPT_CALL,
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    BranchChanged,
    CancelRequested,
    Event,
    GrantChanged,
    Imported,
    Noted,
    Rated,
    ReviewExtended,
    RunEnded,
    RunQueued,
    RunStarted,
    Thinking,
    ThreadChanged,
    ToolFinished,
    ToolProposed,
    ToolStarted,
    numbered,
)
from sk_agents.engine.log.chain import extended
from sk_agents.engine.log.state import merge_metadata
from sk_agents.engine.models import (
    ALL_RATINGS,
    STATUS_AFTER,
    Audience,
    Entry,
    EntryKind,
    NewThread,
    Thread,
    ThreadStatus,
    review_key,
)
from sk_agents.engine.values import dataclass
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    LeaseHeld,
    LeaseLost,
    SequenceConflict,
    ThreadExists,
    ThreadNotFound,
)


@dataclass(frozen=True, slots=True)
class Absent:
    """The thread does not exist; this commit creates it."""

    new: NewThread


@dataclass(frozen=True, slots=True)
class Owned:
    """The caller holds the lease it took at `epoch`.

    `next_seq` is how far it has read: with `exact`, nothing was appended since; without, a commit
    that is sent again is looked for from there on, so a store need not search the whole log.
    """

    owner: str
    epoch: int
    next_seq: int = 1
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing was appended and no live owner holds the thread. Fences an owner whose time is up."""

    next_seq: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing was appended, whether the thread has an owner or not."""

    next_seq: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The approval is undecided and in time; with `overdue`, undecided and past its time.

    `next_seq` is how far the sender has read, as in `Owned`; with `exact`, nothing was appended
    since. A sender that decides several approvals names the one that is due first: then none is
    late, and each is as its sender has read. With `in_time`, the sender has seen on a better clock
    than the wall's that its time is not up.
    """

    approval_id: str
    overdue: bool = False
    next_seq: int = 1
    exact: bool = False
    in_time: bool = False


Guard = Absent | Owned | Quiet | Unchanged | Pending


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the lease. With `Absent` or `Quiet`."""

    owner: str


@dataclass(frozen=True, slots=True)
class ClaimIfFree:
    """Take the lease unless a live owner has it; the returned head names the owner."""

    owner: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give up the lease: the run has ended, or another instance shall drive it on."""


@dataclass(frozen=True, slots=True)
class Park:
    """Give up the lease: only a person can make this run go on."""


LeaseChange = Claim | ClaimIfFree | Release | Park


@dataclass(frozen=True, slots=True)
class Commit:
    """`commit_id` is unique per thread: sent again, it answers what it did the first time.

    `incarnation` is that of the thread as its sender knows it: a thread that was deleted and made
    again is another one, whatever its guard says. `None` means the thread that is there.
    """

    thread_id: str
    commit_id: str
    guard: Guard
    events: tuple[Event, ...] = ()
    lease: LeaseChange | None = None
    incarnation: str | None = None

    @property
    def needs_lease_state(self) -> bool:
        """Whether it matters if a live owner holds the thread; a store finds out only then."""
        return isinstance(self.guard, Quiet) or isinstance(self.lease, (Claim, ClaimIfFree))

    @property
    def makes_room(self) -> bool:
        """Whether it notes a deletion, which is not done before it is noted: a store that has no
        room by a limit of its own, not of the disk, takes it all the same."""
        return any(
            isinstance(event, Noted) and event.what in (DELETING, KEPT_CALL)
            for event in self.events
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """What a store must write: the new head, the numbered events, the index rows."""

    thread: Thread
    events: tuple[Event, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """`thread` is the head now; `events` are the commit's own, numbered and dated."""

    thread: Thread
    events: tuple[Event, ...]


# Most events of a run: they do not move a head.
_UNREMARKABLE = frozenset((Answered, Thinking, ToolFinished, ToolProposed, ToolStarted))
# What is looked for across threads.
_INDEXED = frozenset(
    (
        RunQueued,
        RunStarted,
        ApprovalRequested,
        ReviewExtended,
        ApprovalDecided,
        GrantChanged,
        Rated,
    )
)
# What its owner only commits when a run has come further. A start alone is none: the tool may be
# what takes its owner down each time.
_PROGRESS = frozenset((Answered, Thinking, ToolFinished, ToolProposed))


def admit(
    commit: Commit,
    head: Thread | None,
    *,
    leased: bool,
    approval: Entry | None,
    now: datetime,
    body: bytes | None = None,
) -> Admission:
    """Check the guard and derive everything the commit changes.

    `leased` says whether `head.owner` is a live owner and counts only if
    `commit.needs_lease_state`; `approval` is the index row that a `Pending` guard names, if any.
    `body` is the commit's record as a store keeps it before encryption: the head's chain covers
    it. A store that keeps no such bytes has no chain.

    Raises:
        ThreadExists, ThreadNotFound, SequenceConflict, LeaseHeld, LeaseLost, ApprovalNotFound,
        ApprovalAlreadyDecided, ApprovalExpired: the guard does not hold.
    """
    head = _checked(commit, head, leased=leased, approval=approval, now=now)
    events = tuple(
        [numbered(event, seq, now) for seq, event in enumerate(commit.events, head.next_seq)]
    )
    chain = head.chain
    if events:
        place = (head.next_seq, commit.commit_id)
        chain = extended(head, chain, *place, body) if body is not None else ""
    thread = _advanced(head, commit, events, chain, leased=leased, now=now)
    return Admission(thread, events, tuple(entries_of(thread, events)))


def claimed(head: Thread, owner: str, *, leased: bool, now: datetime) -> Thread:
    """The head after `owner` takes the lease. Only what its last owner did not give back was lost.

    Raises:
        LeaseHeld: a live owner has it.
    """
    if leased:
        raise LeaseHeld(thread_id=head.thread_id)
    recoveries = head.recoveries + (head.owner is not None)
    return head._replace(owner=owner, epoch=head.epoch + 1, recoveries=recoveries, updated_at=now)


def _checked(
    commit: Commit, head: Thread | None, *, leased: bool, approval: Entry | None, now: datetime
) -> Thread:
    guard = commit.guard
    if isinstance(guard, Absent):
        if head is not None:
            raise ThreadExists(thread_id=commit.thread_id)
        return _fresh(commit, guard.new, now)
    head = same_thread(commit.thread_id, head, commit.incarnation)
    match guard:
        case Owned():
            if (head.owner, head.epoch) != (guard.owner, guard.epoch):
                raise LeaseLost(thread_id=head.thread_id, epoch=head.epoch)
            if guard.exact:
                _check_seq(head, guard.next_seq)
        case Quiet():
            _check_seq(head, guard.next_seq)
            if leased:
                raise LeaseHeld(thread_id=head.thread_id)
        case Unchanged():
            _check_seq(head, guard.next_seq)
        case Pending():
            if guard.exact:
                _check_seq(head, guard.next_seq)
            _check_pending(guard, head, approval, now)
    return head


def same_thread(thread_id: str, head: Thread | None, incarnation: str | None) -> Thread:
    """The head, if the thread is there and the one that is meant.

    Raises:
        ThreadNotFound: there is none, or it was deleted and made again.
    """
    if head is None or incarnation not in (None, head.incarnation):
        raise ThreadNotFound(thread_id=thread_id)
    return head


def _check_seq(head: Thread, expected: int) -> None:
    if head.next_seq != expected:
        raise SequenceConflict(thread_id=head.thread_id, next_seq=head.next_seq)


def _check_pending(guard: Pending, head: Thread, approval: Entry | None, now: datetime) -> None:
    if approval is None or approval.thread_id != head.thread_id:
        raise ApprovalNotFound(approval_id=guard.approval_id)
    if not approval.open:
        raise ApprovalAlreadyDecided(approval_id=guard.approval_id)
    overdue = approval.due_at is not None and approval.due_at <= now
    if overdue and not guard.overdue and not guard.in_time:
        raise ApprovalExpired(approval_id=guard.approval_id)
    if guard.overdue and not overdue:
        raise SequenceConflict("This approval is still in time.", approval_id=guard.approval_id)


def _fresh(commit: Commit, new: NewThread, now: datetime) -> Thread:
    return Thread(
        thread_id=commit.thread_id,
        user_id=new.user_id,
        session_id=new.session_id,
        wire_id=new.wire_id,
        surface=new.surface,
        agent=new.agent,
        status=ThreadStatus.IDLE,
        runnable=False,
        epoch=0,
        owner=None,
        next_seq=1,
        active_run=None,
        head_run=None,
        queued=0,
        recoveries=0,
        metadata=new.metadata,
        created_at=now,
        updated_at=now,
        expires_at=new.expires_at,
        incarnation=commit.commit_id,
    )


def _advanced(
    head: Thread,
    commit: Commit,
    events: Sequence[Event],
    chain: str,
    *,
    leased: bool,
    now: datetime,
) -> Thread:
    """The head is a fold too, of just those events that move it."""
    status, active, tip, queued = head.status, head.active_run, head.head_run, head.queued
    runnable, recoveries, metadata = head.runnable, head.recoveries, head.metadata
    for event in events:
        if type(event) in _UNREMARKABLE:
            continue
        match event:
            case RunStarted():
                status, active, tip = ThreadStatus.RUNNING, event.run_id, event.run_id
                runnable, recoveries = True, 0
                queued -= event.message is None
            case RunEnded() if event.run_id == active:
                status, active = STATUS_AFTER[event.status], None
                runnable, recoveries = queued > 0, 0
            case RunEnded():
                queued -= 1
                runnable = runnable and (active is not None or queued > 0)
            case RunQueued():
                queued += 1
                runnable = runnable or active is None
            case ApprovalDecided() | CancelRequested() if event.run_id == active:
                status, runnable, recoveries = ThreadStatus.RUNNING, True, 0
            case BranchChanged():
                tip = event.head_run
            case ThreadChanged():
                metadata = merge_metadata(dict(metadata), event.metadata)
            case Imported() if active is None:
                status = event.status or status
            case _:
                pass
    if recoveries and isinstance(commit.guard, Owned):
        recoveries *= _PROGRESS.isdisjoint(map(type, events))
    owner, epoch = _holder(head, commit, leased=leased)
    if isinstance(commit.lease, Park):
        status, runnable = ThreadStatus.WAITING, False
    elif epoch > head.epoch and owner is not None and active is not None:
        status = ThreadStatus.RUNNING
    # Not by `_replace`, which takes three times as long: this is in every commit.
    return Thread(
        head.thread_id,
        head.user_id,
        head.session_id,
        head.wire_id,
        head.surface,
        head.agent,
        status,
        runnable,
        epoch,
        owner,
        head.next_seq + len(events),
        active,
        tip,
        queued,
        recoveries,
        metadata,
        head.created_at,
        now,
        head.expires_at,
        head.incarnation,
        chain,
        head.version,
    )


def _holder(head: Thread, commit: Commit, *, leased: bool) -> tuple[str | None, int]:
    """The owner and the epoch after the commit."""
    lease = commit.lease
    if isinstance(lease, (Claim, ClaimIfFree)) and not leased:
        return lease.owner, head.epoch + 1
    if isinstance(lease, (Release, Park)):
        return None, head.epoch
    if isinstance(commit.guard, Quiet):
        return None, head.epoch + 1
    return head.owner, head.epoch


def entries_of(thread: Thread, events: Sequence[Event]) -> Iterator[Entry]:
    """The index rows that these events of a thread make or replace, in this order."""
    for event in events:
        if type(event) not in _INDEXED:
            continue
        match event:
            case RunStarted() | RunQueued() if event.message is not None:
                yield _entry(thread, event, "run", event.run_id, is_open=False)
            case ApprovalRequested():
                due_at = event.expires_at
                yield _entry(thread, event, "approval", event.approval_id, due_at=due_at)
                if event.review is not None:
                    yield from _reviews(thread, event, event.review.audience, is_open=True)
            case ReviewExtended():
                due_at = event.expires_at
                yield _entry(thread, event, "approval", event.approval_id, due_at=due_at)
                yield from _reviews(thread, event, event.left, is_open=False)
                yield from _reviews(thread, event, event.audience, is_open=True)
            case ApprovalDecided():
                yield _entry(thread, event, "approval", event.approval_id, is_open=False)
                yield from _reviews(thread, event, event.audience, is_open=False)
            case GrantChanged():
                yield _entry(thread, event, "grant", event.grant_id, is_open=event.granted)
            case Rated():
                place, is_open = (thread.thread_id, ALL_RATINGS), event.rating is not None
                yield Entry("rating", event.run_id, *place, event.run_id, is_open)
            case _:
                pass


def _entry(
    thread: Thread,
    event: Event,
    kind: EntryKind,
    key: str,
    *,
    is_open: bool = True,
    due_at: datetime | None = None,
) -> Entry:
    return Entry(kind, key, thread.thread_id, thread.user_id, event.run_id, is_open, due_at)


def _reviews(
    thread: Thread,
    event: ApprovalRequested | ReviewExtended | ApprovalDecided,
    audience: Audience | None,
    *,
    is_open: bool,
) -> Iterator[Entry]:
    for key in audience.keys if audience is not None else ():
        place = review_key(event.approval_id, key)
        yield Entry("review", place, thread.thread_id, key, event.run_id, is_open)
