"""What becomes of a result whose owner was taken for lost while its tool ran.

The new owner asks a person about the call. The result that comes after all is attached to that
question; it never settles the call by itself.
"""

from __future__ import annotations

import logging

from sk_agents.engine.calls.call import Call
from sk_agents.engine.events import LateResult, ToolFinished
from sk_agents.engine.log.commits import Pending
from sk_agents.engine.models import CallState
from sk_agents.engine.services import STORE_TROUBLE, Services
from sk_agents.exceptions import Conflict, NotFound, StateCorrupt

logger = logging.getLogger(__name__)

# How often, and for how many seconds each time, the question is waited for.
LOOKS = 60
LOOK_SECONDS = 0.5


async def attach_late_result(services: Services, thread_id: str, finished: ToolFinished) -> None:
    """Attach the result to the open question about its call, once there is one."""
    extra = {"thread_id": thread_id, "call_id": finished.call_id}
    async with services.signals.subscribe(thread_id) as changes:
        for _ in range(LOOKS):
            try:
                if await _attached(services, thread_id, finished):
                    return
            except (NotFound, StateCorrupt):
                break
            except (Conflict, *STORE_TROUBLE):
                logger.info("late result not attached yet", extra=extra)
            await changes.wait(LOOK_SECONDS)
    logger.warning("late result dropped", extra=extra)


async def _attached(services: Services, thread_id: str, finished: ToolFinished) -> bool:
    """Whether there is nothing left to do."""
    known = await services.threads.load(thread_id)
    call = known.state.run(finished.run_id).calls[finished.call_id]
    if call.finished is not None or call.late_result is not None:
        return True
    if not _is_asked_about(call):
        return False
    assert call.approval is not None
    late = LateResult(run_id=finished.run_id, call_id=finished.call_id, result=finished.result)
    guard = Pending(call.approval.request.approval_id, next_seq=known.state.next_seq)
    await services.commit(known, guard, late)
    return True


def _is_asked_about(call: Call) -> bool:
    return call.state is CallState.UNKNOWN and call.waits
