"""Waiting for what becomes of a run, without reading along."""

from __future__ import annotations

import asyncio

from sk_agents.engine.log.state import Run
from sk_agents.engine.log.transitions import SETTLED, TERMINAL
from sk_agents.engine.reading.watch import POLL_SECONDS
from sk_agents.engine.services import Services
from sk_agents.exceptions import RunNotFound, ShuttingDown, StoreUnavailable


async def settled(
    services: Services, thread_id: str, run_id: str, seconds: float | None = None
) -> Run:
    """The run once it has ended or waits for a person.

    Raises:
        TimeoutError: neither has come within `seconds`.
        ThreadNotFound, StateCorrupt: as the store says.
        RunNotFound: the thread has no such run.
        ShuttingDown: this instance closes; another one, or this one restarted, has the rest.
        StoreUnavailable: the run's driver has more to tell, which the store does not take now.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds if seconds is not None else None
    was_told = True
    services.threads.pin(thread_id)
    try:
        async with services.signals.subscribe(thread_id) as changes:
            while True:
                run = await _up_to_date(services, thread_id, run_id, was_told)
                if run.status in SETTLED:
                    return run
                if services.closing:
                    raise ShuttingDown
                if thread_id in services.stuck:
                    raise StoreUnavailable
                left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - loop.time())
                if left <= 0:
                    raise TimeoutError
                was_told = await changes.wait(left)
    finally:
        services.threads.unpin(thread_id)


async def _up_to_date(services: Services, thread_id: str, run_id: str, was_told: bool) -> Run:
    """As it is known here, if that is all there is: it has ended, or runs on in this process."""
    known = services.threads.known(thread_id)
    run = known.state.runs.get(run_id) if known is not None else None
    if run is not None and was_told:
        status = run.status
        if status in TERMINAL or (thread_id in services.live and status not in SETTLED):
            return run
    known = await services.threads.load(thread_id)
    if not was_told:
        # Whoever drove it may have failed at the log: one that cannot be read tells no end either.
        await services.store.events_after(thread_id, known.state.next_seq - 1, 1)
    if run_id not in known.state.runs:
        raise RunNotFound(run_id=run_id)
    return known.state.runs[run_id]
