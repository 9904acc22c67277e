"""The one way to change a thread: a conditional commit. `admission.py` holds its rules."""

from __future__ import annotations

from dataclasses import dataclass

from sk_agents.engine.events import Event
from sk_agents.engine.models import Entry, NewThread, Thread


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
    """Nothing was appended, whoever holds the thread."""

    next_seq: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The approval is undecided and in time; with `overdue`, undecided and past its time.

    `next_seq` is how far the sender has read, as in `Owned`; with `exact`, nothing was appended
    since. Who decides several approvals names the one that is due first: then none is late, and
    each is as its sender has read. With `in_time`, the sender has seen on a better clock than the
    wall's that its time is not up.
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
    """Take the lease unless a live owner has it; the returned head says who does."""

    owner: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give up the lease: the run has ended, or somebody else shall drive it on."""


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
    def asks_who_leads(self) -> bool:
        """Whether it matters if a live owner holds the thread; finding out costs a store time."""
        return isinstance(self.guard, Quiet) or isinstance(self.lease, Claim | ClaimIfFree)


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
