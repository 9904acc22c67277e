"""Reading a thread as it grows: what is stored, in order, and previews of what is not yet.

A reader only reads. It can come and go, be slow, or read a run that another instance drives.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.failpoints import announced
from sk_agents.engine.live import Delta, LiveRun, StreamKey
from sk_agents.engine.services import Services
from sk_agents.engine.transitions import TERMINAL
from sk_agents.exceptions import RunNotFound, ShuttingDown

# Readers of runs driven elsewhere look by themselves this often, should every signal be lost.
POLL_SECONDS = 1.0
PAGE = 500

Item = Event | Delta


class RunReaders(Protocol):
    """Who wants to know that a run is read."""

    def joined(self, thread_id: str, run_id: str) -> None: ...

    def left(self, thread_id: str, run_id: str) -> None: ...


async def watch_thread(
    services: Services,
    thread_id: str,
    *,
    after: int,
    run_id: str | None = None,
    readers: RunReaders | None = None,
) -> AsyncGenerator[Sequence[Item], None]:
    """What follows `after`, as many items at a time as there are.

    With `run_id` only that run's, ending with its end; without, the whole thread's, endlessly.
    `readers` are told of one who reads a run.

    Raises:
        ThreadNotFound, StateCorrupt: as the store says.
        RunNotFound: the thread has no such run.
        ShuttingDown: this instance closes; another one, or this one restarted, has the rest.
    """
    seen: dict[StreamKey, tuple[int, int]] = {}
    seen_run = run_id
    last = after
    must_look = services.threads.known(thread_id) is None
    services.threads.pin(thread_id)
    if readers is not None and run_id is not None:
        readers.joined(thread_id, run_id)
    try:
        async with services.signals.subscribe(thread_id) as changes:
            while True:
                events = None if must_look else _remembered(services, thread_id, last)
                if events is None:
                    events = await services.store.events_after(thread_id, last, PAGE)
                if events:
                    last = events[-1].seq
                items: list[Item] = [
                    event for event in events if run_id is None or event.run_id == run_id
                ]
                is_ended = run_id is not None and any(type(item) is RunEnded for item in items)
                live = _live(services, thread_id, run_id, last)
                if live is not None:
                    if live.run_id != seen_run:
                        seen_run, seen = live.run_id, {}
                    items.extend(live.since(seen))
                if items:
                    yield items
                    announced(items)
                if is_ended:
                    return
                if run_id is not None and not events and live is None:
                    if await _is_over(services, thread_id, run_id, last):
                        return
                if services.closing:
                    raise ShuttingDown
                has_all = live is not None or not events
                must_look = has_all and not await changes.wait(POLL_SECONDS)
    finally:
        if readers is not None and run_id is not None:
            readers.left(thread_id, run_id)
        services.threads.unpin(thread_id)


def _live(services: Services, thread_id: str, run_id: str | None, last: int) -> LiveRun | None:
    """The run that is driven here, for a reader who has read as far as `last`.

    None to one who is behind: what is stored comes before what follows from it.
    """
    live, known = services.live.get(thread_id), services.threads.known(thread_id)
    if live is None or known is None or known.state.active_run != live.run_id:
        return None
    is_wanted = run_id is None or run_id == live.run_id
    return live if is_wanted and known.state.next_seq <= last + 1 else None


async def _is_over(services: Services, thread_id: str, run_id: str, last: int) -> bool:
    """Whether a reader who has read as far as `last` has nothing of this run left to wait for."""
    known = services.threads.known(thread_id)
    if known is None or known.state.next_seq <= last:
        known = await services.threads.load(thread_id)
    run = known.state.runs.get(run_id)
    if run is None:
        raise RunNotFound(run_id=run_id)
    return run.phase in TERMINAL and known.state.next_seq == last + 1


def _remembered(services: Services, thread_id: str, last: int) -> Sequence[Event] | None:
    """What follows `last`, if this process drives the run or at least knows more than that."""
    known = services.threads.known(thread_id)
    events = known.after(last) if known is not None else None
    return events if events or thread_id in services.live else None
