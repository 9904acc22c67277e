"""Reading a thread as it grows: stored events in order, and deltas of what is not stored yet.

A reader only reads. It can come and go, be slow, or read a run that another instance drives.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol, Self

from sk_agents.engine.events import Event, RunEnded, within
from sk_agents.engine.failpoints import announced
from sk_agents.engine.log.blobs import is_reference, with_contents
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import SETTLED, TERMINAL
from sk_agents.engine.ports import Subscription
from sk_agents.engine.reading.live import LiveDelta, LiveRun, StreamKey
from sk_agents.engine.reading.readers import Readers
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import RunNotFound, ShuttingDown, StoreUnavailable

logger = logging.getLogger(__name__)

# Readers of runs driven elsewhere look by themselves this often, should every signal be lost.
POLL_SECONDS = 1.0
PAGE = 500
# How often a reader that waits asks other instances for the text that follows what it has read.
ASKS = 2
# A reader holds no more of a log than this at a time, and one event: many may be stuck at once.
PAGE_BYTES = 64 * 1024

Item = Event | LiveDelta


class Outlet(Protocol):
    """Where deltas may go at once while their reader waits, without waking it.

    `is_open` is asked each time: an outlet whose client is slow closes for a while.
    """

    @property
    def is_open(self) -> bool: ...

    def take(self, deltas: Sequence[LiveDelta]) -> None: ...


@dataclass(slots=True, eq=False)
class _Position:
    """How far a reader has read: the events up to `last`, and `seen` of the live text."""

    services: Services
    thread_id: str
    run_id: str | None
    last: int
    incarnation: str | None
    outlet: Outlet | None
    seen: dict[StreamKey, tuple[int, int]] = field(default_factory=dict)
    seen_live: LiveRun | None = None

    def known(self) -> KnownThread | None:
        """What is known here of the thread that is read, not of one that has its id by now."""
        known = self.services.threads.known(self.thread_id)
        return known if known and known.head.incarnation == self.incarnation else None

    def live(self) -> LiveRun | None:
        """The open round, for a reader that has read exactly what its driver knows to be stored.

        A reader that is behind reads what is stored first. One may also be ahead, since a commit is
        readable before its sender has the answer: it may have read what the deltas are of.
        """
        live = self.services.live.get(self.thread_id)
        if live is None:
            return self._mirrored()
        known = self.known()
        if known is None or known.state.active_run != live.run_id:
            return None
        is_wanted = self.run_id is None or self.run_id == live.run_id
        return live if is_wanted and known.state.next_seq == self.last + 1 else None

    def _mirrored(self) -> LiveRun | None:
        """What another instance, which drives the run, has sent of it."""
        mirror = self.services.relay.mirror(self.thread_id)
        if mirror is None or mirror.incarnation != self.incarnation:
            return None
        is_wanted = self.run_id is None or self.run_id == mirror.run_id
        return mirror if is_wanted and mirror.next_seq == self.last + 1 else None

    def new_deltas(self, live: LiveRun) -> list[LiveDelta]:
        if live is not self.seen_live:
            self.seen_live, self.seen = live, {}
        return live.deltas_since(self.seen)

    def on_live_text(self) -> None:
        """Hand new deltas to the outlet, or wake the reader. A listener of `LiveRun`."""
        live = self.live()
        if live is None:
            # The reader has been woken for the events that come first.
            return
        outlet = self.outlet
        if outlet is None or not outlet.is_open:
            self.services.signals.notify(self.thread_id, local=True)
        elif deltas := self.new_deltas(live):
            try:
                outlet.take(deltas)
            except Exception:  # called by the run, which must outlive its readers
                logger.exception("deltas lost", extra={"run_id": live.run_id})


class Watch:
    """What follows `after`, as many items at a time as there are. Close it, however it ends.

    With `run_id` only that run's, ending with its end; without, the whole thread's, endlessly.
    `incarnation` names the thread in which `after` is a place; without, it is the one that is there
    when the reading begins. `readers` count this reader of the run. What an `outlet` takes is not
    given here again. No generator: the event loop would register and drop one for every turn.

    Raises:
        ThreadNotFound, StateCorrupt: as the store says, or the thread was deleted and made again.
        RunNotFound: the thread has no such run.
        ShuttingDown: this instance closes; another one, or this one restarted, has the rest.
        StoreUnavailable: the run's driver has more, which the store does not take now.
    """

    def __init__(
        self,
        services: Services,
        thread_id: str,
        *,
        after: int,
        run_id: str | None = None,
        incarnation: str | None = None,
        readers: Readers | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        self._services = services
        self._thread_id = thread_id
        self._run_id = run_id
        self._readers = readers
        self._position = _Position(services, thread_id, run_id, after, incarnation, outlet)
        self._subscription = services.signals.subscribe(thread_id)
        self._changes: Subscription | None = None
        self._given: Sequence[Item] = ()
        self._must_look = False
        # What the last look found: something stored, and a run that is driven here.
        self._found = (False, False)
        self._has_looked = self._has_ended = False
        # After which event other instances were asked for live text, and how often.
        self._asked_after, self._times_asked = -1, 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Item]:
        announced(self._given)
        try:
            self._given = () if self._has_ended else await self._next()
        except BaseException:
            await self.aclose()
            raise
        if self._given:
            return self._given
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """May be called more than once."""
        self._has_ended = True
        if self._changes is None:
            return
        self._changes = None
        if self._readers is not None and self._run_id is not None:
            self._readers.left(self._thread_id, self._run_id)
        self._services.relay.left(self._thread_id)
        self._services.threads.unpin(self._thread_id)
        await self._subscription.__aexit__(None, None, None)

    async def _next(self) -> Sequence[Item]:
        """What is new, once there is something; nothing if there will be no more."""
        changes = self._changes or await self._begin()
        while True:
            if self._has_looked and not await self._awaits_more(changes):
                return ()
            items = await self._look()
            if items:
                return items

    async def _begin(self) -> Subscription:
        services, thread_id = self._services, self._thread_id
        if self._position.incarnation is None:
            self._position.incarnation = await self._incarnation()
        self._must_look = self._position.known() is None
        changes = self._changes = await self._subscription.__aenter__()
        services.threads.pin(thread_id)
        services.relay.joined(thread_id)
        if self._readers is not None and self._run_id is not None:
            self._readers.joined(self._thread_id, self._run_id)
        return changes

    async def _incarnation(self) -> str:
        known = self._services.threads.known(self._thread_id)
        if known is None or self._thread_id not in self._services.live:
            # What this process does not drive may have been deleted elsewhere.
            return (await self._services.store.thread(self._thread_id)).incarnation
        return known.incarnation

    async def _look(self) -> Sequence[Item]:
        services, position, run_id = self._services, self._position, self._run_id
        events = None if self._must_look else self._remembered()
        if self._must_look and self._has_looked and not await self._has_changed():
            events = ()
        if events is None:
            events = await services.store.events_after(
                self._thread_id,
                position.last,
                PAGE,
                incarnation=position.incarnation,
                max_bytes=PAGE_BYTES,
            )
        events = within(events, PAGE_BYTES)
        if events:
            position.last = events[-1].seq
        items: list[Item] = [event for event in events if run_id in (None, event.run_id)]
        if any(map(is_reference, events)):
            items = await self._opened(items)
        self._has_ended = run_id is not None and any(type(item) is RunEnded for item in items)
        live = position.live()
        if live is not None:
            items.extend(position.new_deltas(live))
        self._found, self._has_looked = (bool(events), live is not None), True
        return items

    async def _opened(self, items: Sequence[Item]) -> list[Item]:
        """With the results that they refer to: what is read is what was said."""
        contents = (await self._services.threads.load(self._thread_id)).state.contents
        return [
            item if isinstance(item, LiveDelta) else with_contents(item, contents) for item in items
        ]

    async def _awaits_more(self, changes: Subscription) -> bool:
        """Wait until there may be something new; False if there will be nothing."""
        had_events, was_live = self._found
        if self._run_id is not None and not had_events and not was_live:
            if await self._is_over(self._run_id):
                return False
        if self._services.closing:
            raise ShuttingDown
        if self._thread_id in self._services.stuck:
            raise StoreUnavailable
        has_all = was_live or not had_events
        if has_all and not was_live:
            self._ask_for_live_text()
        self._must_look = has_all and not await _was_signalled(changes, self._position)
        return True

    def _ask_for_live_text(self) -> None:
        """Another instance may drive the run. Once more if nothing came: a message may be lost."""
        position = self._position
        if self._asked_after != position.last:
            self._asked_after, self._times_asked = position.last, 0
        if self._times_asked < ASKS and position.incarnation is not None:
            self._times_asked += 1
            self._services.relay.ask(self._thread_id, position.incarnation)

    async def _is_over(self, run_id: str) -> bool:
        """Whether the reader, having read so far, has nothing of this run left to wait for."""
        known, last = self._position.known(), self._position.last
        if known is None or known.state.next_seq <= last:
            known = await self._services.threads.load(self._thread_id)
        run = known.state.runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id=run_id)
        return run.phase in TERMINAL and known.state.next_seq == last + 1

    async def _has_changed(self) -> bool:
        """Whether the store has something for this reader, be it an error."""
        head, position = await self._services.head_poll.head(self._thread_id), self._position
        return (
            head is None
            or head.incarnation != position.incarnation
            or head.next_seq != position.last + 1
        )

    def _remembered(self) -> Sequence[Event] | None:
        """New events from memory; `None` if the store has to be asked."""
        known = self._position.known()
        events = known.after(self._position.last) if known is not None else None
        return events if events or self._thread_id in self._services.live else None


async def _was_signalled(changes: Subscription, position: _Position) -> bool:
    """Wait for a signal or the time to poll; until then, deltas go to the outlet."""
    live = position.live()
    if live is None:
        return await changes.wait(POLL_SECONDS)
    if live.is_ahead_of(position.seen):
        return True
    live.listeners.append(position.on_live_text)
    try:
        return await changes.wait(POLL_SECONDS)
    finally:
        live.listeners.remove(position.on_live_text)


async def wait_until_settled(
    services: Services, thread_id: str, run_id: str, seconds: float | None = None
) -> Run:
    """The run once it has ended or waits for a person, without reading along.

    Raises:
        TimeoutError: neither has come within `seconds`.
        ThreadNotFound, StateCorrupt: as the store says.
        RunNotFound: the thread has no such run.
        ShuttingDown: this instance closes; another one, or this one restarted, has the rest.
        StoreUnavailable: the run's driver has more, which the store does not take now.
    """
    end = monotonic() + seconds if seconds is not None else None
    was_signalled = True
    services.threads.pin(thread_id)
    try:
        async with services.signals.subscribe(thread_id) as changes:
            while True:
                run = await _up_to_date(services, thread_id, run_id, was_signalled)
                if run.status in SETTLED:
                    return run
                if services.closing:
                    raise ShuttingDown
                if thread_id in services.stuck:
                    raise StoreUnavailable
                left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - monotonic())
                if left <= 0:
                    raise TimeoutError
                was_signalled = await changes.wait(left)
    finally:
        services.threads.unpin(thread_id)


async def _up_to_date(services: Services, thread_id: str, run_id: str, was_signalled: bool) -> Run:
    """The run as memory has it, if that is all there is: it has ended, or is driven here."""
    known = services.threads.known(thread_id)
    run = known.state.runs.get(run_id) if known is not None else None
    if run is not None and was_signalled:
        status = run.status
        if status in TERMINAL or (thread_id in services.live and status not in SETTLED):
            return run
    known = await services.threads.load(thread_id)
    if not was_signalled:
        # Its driver may have failed at the log: one that cannot be read has no end either.
        await services.store.events_after(thread_id, known.state.next_seq - 1, 1)
    if run_id not in known.state.runs:
        raise RunNotFound(run_id=run_id)
    return known.state.runs[run_id]
