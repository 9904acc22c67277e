"""Reading a thread as it grows: what is stored, in order, and previews of what is not yet.

A reader only reads. It can come and go, be slow, or read a run that another instance drives.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.failpoints import announced
from sk_agents.engine.live import Delta, StreamKey
from sk_agents.engine.services import Services
from sk_agents.engine.transitions import TERMINAL
from sk_agents.exceptions import RunNotFound

# Readers of runs driven elsewhere look by themselves this often, should every signal be lost.
POLL_SECONDS = 1.0
PAGE = 500

Item = Event | Delta


async def watch_thread(
    services: Services, thread_id: str, *, after: int, run_id: str | None = None
) -> AsyncGenerator[Sequence[Item], None]:
    """What follows `after`, as many items at a time as there are.

    With `run_id` only that run's, ending with its end; without, the whole thread's, endlessly.

    Raises:
        ThreadNotFound, StateCorrupt: as the store says.
        RunNotFound: the thread has no such run.
    """
    seen: dict[StreamKey, tuple[int, int]] = {}
    last = after
    must_look = services.threads.known(thread_id) is None
    services.threads.pin(thread_id)
    try:
        async with services.signals.subscribe(thread_id) as changes:
            while True:
                events = await _events(services, thread_id, last, must_look)
                if events:
                    last = events[-1].seq
                items: list[Item] = [
                    event for event in events if run_id is None or event.run_id == run_id
                ]
                items.extend(_previews(services, thread_id, run_id, last, seen))
                if items:
                    yield items
                    announced(items)
                if run_id is not None and any(isinstance(item, RunEnded) for item in items):
                    return
                if run_id is not None and not events:
                    if await _is_over(services, thread_id, run_id, last):
                        return
                must_look = not events and not await changes.wait(POLL_SECONDS)
    finally:
        services.threads.unpin(thread_id)


async def _is_over(services: Services, thread_id: str, run_id: str, last: int) -> bool:
    """Whether a reader who has read as far as `last` has nothing of this run left to wait for."""
    known = services.threads.known(thread_id)
    if known is None or known.state.next_seq <= last:
        known = await services.threads.load(thread_id)
    run = known.state.runs.get(run_id)
    if run is None:
        raise RunNotFound(run_id=run_id)
    return run.phase in TERMINAL and known.state.next_seq == last + 1


async def _events(
    services: Services, thread_id: str, last: int, must_look: bool
) -> Sequence[Event]:
    """From memory if this process drives the run and knows them all, else from the store."""
    known = services.threads.known(thread_id)
    if known is not None and not must_look:
        remembered = known.after(last)
        if remembered or (remembered is not None and thread_id in services.live):
            return remembered
    return await services.store.events_after(thread_id, last, PAGE)


def _previews(
    services: Services,
    thread_id: str,
    run_id: str | None,
    last: int,
    seen: dict[StreamKey, tuple[int, int]],
) -> Sequence[Delta]:
    """None to a reader who is behind: what is stored comes before what follows from it."""
    live, known = services.live.get(thread_id), services.threads.known(thread_id)
    if live is None or known is None or run_id not in (None, live.run_id):
        return ()
    if known.state.next_seq > last + 1:
        return ()
    return list(live.since(seen))
