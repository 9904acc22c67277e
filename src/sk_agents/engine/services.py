"""What every part of a running engine shares, and the one way its parts commit."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Self, TypeVar

from sk_agents.engine.defaults import NoAudit, NoBudget, NoCopies, NoObserver
from sk_agents.engine.events import Event
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.blobs import with_references
from sk_agents.engine.log.commits import (
    Claim,
    ClaimIfFree,
    Commit,
    Committed,
    Guard,
    LeaseChange,
)
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import (
    Audit,
    Budget,
    Clock,
    Copies,
    Ids,
    Observer,
    Peers,
    PortableStore,
    Redaction,
    Signals,
    Store,
)
from sk_agents.engine.reading.head_poll import HeadPoll
from sk_agents.engine.reading.live import LiveRun
from sk_agents.engine.reading.live_relay import LiveRelay
from sk_agents.engine.run.lease_keeper import LeaseKeeper
from sk_agents.engine.threads.known import KnownThread, KnownThreads
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    Conflict,
    InvalidInput,
    NotFound,
    SchemaTooNew,
    StateCorrupt,
    StoreBroken,
    StoreError,
    StoreFull,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How often a commit of unknown outcome is sent again before its sender gives up.
RESENDS = 3
# How long a commit whose sender is gone may still be on its way to the store.
CLAIMING_SECONDS = 60.0
# Between two tries of what the store does not take, in seconds.
PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
# What passes when the store is there again, or has room.
STORE_TROUBLE = (StoreError, StoreFull)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do it until the store is there for it: a run does not fail because a disk is full for a
    while. Ends with the caller's own time."""
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            return await work()
        except (StoreBroken, SchemaTooNew):
            raise
        except STORE_TROUBLE:
            await asyncio.sleep(pause)
    raise AssertionError("the pauses have no end")


class BackgroundTask(ABC):
    """Work that goes on from entry to exit."""

    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._work())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    async def _work(self) -> None: ...


@dataclass(slots=True)
class Services:
    store: Store
    signals: Signals
    clock: Clock
    ids: Ids
    lease: LeaseKeeper
    threads: KnownThreads
    observer: Observer = field(default_factory=NoObserver)
    budget: Budget = field(default_factory=NoBudget)
    audit: Audit = field(default_factory=NoAudit)
    copies: Copies = field(default_factory=NoCopies)
    peers: Peers | None = None
    # Of the agents that have one, by name; under an empty name the default agent's.
    redactions: Mapping[str, Redaction] = field(default_factory=dict)
    # The runs that are driven here, by thread, and the text of those that are driven elsewhere.
    live: dict[str, LiveRun] = field(default_factory=dict)
    relay: LiveRelay = field(init=False)
    head_poll: HeadPoll = field(init=False)
    # Threads whose lease we may have taken without driving them: the caller was cut off, or the
    # store failed, in between. The sweeper looks at each of them until the time given here.
    claiming: dict[str, float] = field(default_factory=dict)
    # Readers are to go on elsewhere.
    closing: bool = False
    # Threads whose driver waits for the store to take what it has: their readers get an error.
    stuck: set[str] = field(default_factory=set)
    # Set once the store must not be used on: this process has to end.
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    on_broken: Callable[[], None] | None = None
    _commit_prefix: str = field(init=False)
    _is_readable_as_a_whole: bool = field(init=False)
    _commits: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._commit_prefix = self.ids.new()
        self._is_readable_as_a_whole = isinstance(self.store, PortableStore)
        self.lease.on_broken = self.note_broken
        self.head_poll = HeadPoll(self.store)
        self.relay = LiveRelay(self.peers, self.live, self.threads, self.signals)

    def next_commit_id(self) -> str:
        """The prefix is this process's own, so a counter does for the rest."""
        return f"{self._commit_prefix}-{next(self._commits)}"

    def redaction(self, agent: str | None) -> Redaction | None:
        return self.redactions.get(agent or "")

    @property
    def owner(self) -> str:
        return self.lease.owner

    def claim_if_free(self) -> ClaimIfFree | None:
        """For a change from outside that makes a run go on. An instance that closes claims nothing:
        the run is left to others, who would wait for its end otherwise."""
        return None if self.closing else ClaimIfFree(self.owner)

    async def commit(
        self,
        known: KnownThread,
        guard: Guard,
        *events: Event,
        lease: LeaseChange | None = None,
    ) -> Committed:
        """Commit to a known thread, learn what it changed, and wake all who wait for it.

        Raises:
            Conflict, StoreError: as `Store.commit`.
        """
        commit = self.new_commit(known, guard, events, lease)
        done = await self.send(commit)
        await self.learn(known, done)
        return done

    def new_commit(
        self,
        known: KnownThread,
        guard: Guard,
        events: tuple[Event, ...],
        lease: LeaseChange | None,
    ) -> Commit:
        events = with_references(events, known.state.contents)
        return Commit(
            known.head.thread_id, self.next_commit_id(), guard, events, lease, known.incarnation
        )

    async def send(self, commit: Commit) -> Committed:
        """Send it until its outcome is known, or the sender gives up."""
        if isinstance(commit.lease, Claim | ClaimIfFree):
            await self._keep_leases_alive()
        try:
            failpoint("committing")
            try:
                done = await self.store.commit(commit)
            except CommitOutcomeUnknown:
                done = await self._sent_again(commit)
            self.copies.stored(done.thread, done.events)
            if not self._is_readable_as_a_whole:
                # Before the tool that these events start.
                await self.audit.keep_calls(done.thread, done.events)
            return done
        except (Conflict, NotFound, InvalidInput):
            raise
        except BaseException as error:
            self.look_at(error)
            if isinstance(commit.lease, Claim | ClaimIfFree):
                self._may_have_claimed(commit.thread_id)
            raise

    async def _sent_again(self, commit: Commit) -> Committed:
        for _ in range(RESENDS - 1):
            try:
                return await self.store.commit(commit)
            except CommitOutcomeUnknown:
                continue
        return await self.store.commit(commit)

    async def holds(self, known: KnownThread, epoch: int, *, since: float) -> bool:
        """Whether the lease taken at `epoch`, ours at `since`, is ours for some time to come."""
        if self.lease.is_fresh and self.lease.has_held_since(since):
            return True
        if not await self.lease.freshen():
            return False
        head = await self.store.thread(known.head.thread_id)
        return (head.epoch, head.incarnation) == (epoch, known.incarnation)

    async def _keep_leases_alive(self) -> None:
        """Before one is claimed. All have run out after the store was away, or this process asleep:
        others would take the run from us at once, and after a few times give it up as lost."""
        if not self.lease.is_fresh:
            await self.lease.freshen()

    async def claim(self, known: KnownThread) -> Thread:
        """Take over an orphan.

        Raises:
            LeaseHeld, ThreadNotFound, StoreError: as `Store.claim`.
        """
        await self._keep_leases_alive()
        try:
            head = await self.store.claim(known.head.thread_id, self.owner)
            if head.incarnation != known.incarnation:
                # What was claimed is not what was lost: the sweeper drives it or gives it back.
                self._may_have_claimed(head.thread_id)
            await self.threads.catch_up(known, head)
        except (Conflict, NotFound, StateCorrupt):
            raise
        except BaseException as error:
            self.look_at(error)
            self._may_have_claimed(known.head.thread_id)
            raise
        self.observer.recovered()
        return head

    async def learn(self, known: KnownThread, done: Committed) -> None:
        """Take over what a commit did, and what others did just before it, and tell who waits."""
        await self._take_over(known, done)
        self.signals.notify(known.head.thread_id)

    async def learn_as_driver(self, known: KnownThread, done: Committed) -> None:
        """The same for a commit that its driver mostly follows up at once, such as by starting a
        tool, whose task starts another. Readers come two steps of the event loop later, while that
        works."""
        await self._take_over(known, done)
        loop, thread_id = asyncio.get_running_loop(), known.head.thread_id
        loop.call_soon(lambda: loop.call_soon(self.signals.notify, thread_id))

    async def _take_over(self, known: KnownThread, done: Committed) -> None:
        first_seq = done.thread.next_seq - len(done.events)
        if first_seq > known.state.next_seq:
            try:
                await self.threads.catch_up(known, done.thread)
            except BaseException:
                if done.thread.owner == self.owner:
                    self._may_have_claimed(known.head.thread_id)
                raise
        else:
            known.take(done.thread, done.events)
        self.observer.stored(known.head, known.state, done.events)
        live = self.live.get(known.head.thread_id)
        if live is not None:
            live.stored(done.events)
        self.threads.keep(known)

    def look_at(self, error: BaseException) -> None:
        """To be called with every error of the store: it may be its last."""
        if isinstance(error, StoreBroken):
            self.note_broken(error)

    def note_broken(self, error: StoreBroken) -> None:
        """Stop renewing leases, so that others take the runs over, and have the process end."""
        if self.broken.is_set():
            return
        logger.critical("the store is broken, this process must end: %s", error)
        self.broken.set()
        self.lease.stop_renewing()
        if self.on_broken is not None:
            self.on_broken()

    def dismiss_readers(self) -> None:
        """Each reader of a thread gets what is there, then `ShuttingDown`."""
        self.closing = True
        for thread_id in self.threads.pinned:
            self.signals.notify(thread_id, local=True)

    def _may_have_claimed(self, thread_id: str) -> None:
        self.claiming[thread_id] = self.clock.monotonic() + CLAIMING_SECONDS
