"""Stopping a run: a durable flag for whoever drives it, or its end if nobody does."""

from __future__ import annotations

from sk_agents.engine.calls import sealing
from sk_agents.engine.commands import CancelRun
from sk_agents.engine.events import Cancelled, CancelRequested, RunEnded
from sk_agents.engine.log.commits import Quiet, Unchanged
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import LeaseHeld


async def request_cancel(
    services: Services, known: KnownThread, run: Run, command: CancelRun
) -> None:
    """Commit what stops the run. Afterwards it has ended, or its owner must end it.

    Raises:
        SequenceConflict: the thread is no longer as `known` says.
    """
    asked = CancelRequested(run_id=run.run_id, requested_by=command.user_id, reason=command.reason)
    next_seq = known.state.next_seq
    if run.phase is RunStatus.QUEUED:
        cancelled = Cancelled(run_id=run.run_id)
        ended = RunEnded(run_id=run.run_id, status=RunStatus.CANCELLED)
        await services.commit(known, Unchanged(next_seq), asked, cancelled, ended)
        return
    if run.status is RunStatus.WAITING and not known.state.queue:
        try:
            await services.commit(known, Quiet(next_seq), asked, *sealing.cancelled(run))
            return
        except LeaseHeld:
            # Not parked yet, or never to be: whoever holds it has to end it.
            pass
    lease = services.claim_if_free()
    await services.commit(known, Unchanged(next_seq), asked, lease=lease)
