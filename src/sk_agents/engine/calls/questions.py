"""What a tool asks the user while it runs: on the same records as every other approval.

The run keeps its lease meanwhile, since the tool is at work; should its owner be lost, the call is
one that was started and has no result, whatever is answered then.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sk_agents.engine.calls.call import Approval
from sk_agents.engine.calls.steps import declined, digest_of
from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.models import ApprovalState, ToolCall
from sk_agents.engine.turns import Question, ToolSpec
from sk_agents.exceptions import ToolError

if TYPE_CHECKING:
    from sk_agents.engine.run.driver import Driver

# An answer given to another instance is looked for this often.
POLL_SECONDS = 1.0


class Questions:
    """Those of one call, and the time its tool has left: waiting for a person does not count."""

    def __init__(self, driver: Driver, wanted: ToolCall, spec: ToolSpec) -> None:
        self._driver = driver
        self._wanted = wanted
        self._spec = spec
        self._run_id = driver.run.run_id
        self._began = self._now()
        self._waited = 0.0
        self._waiting_since: float | None = None
        self._committing: asyncio.Task[None] | None = None

    async def settle(self) -> None:
        """Until whatever was asked is known here, also if its asker did not wait for that."""
        if self._committing is not None:
            await asyncio.wait({self._committing})
            self._committing.cancelled() or self._committing.exception()

    def time_left(self) -> float:
        """Seconds until the tool's limit; all of them while a person is asked."""
        if self._waiting_since is not None:
            return self._spec.timeout
        return self._spec.timeout - (self._now() - self._began - self._waited)

    async def ask(self, question: Question) -> Any:
        """The answer.

        Raises:
            ToolError: the user declined, nobody answered in time, or the run is to stop.
        """
        if self._waiting_since is not None:
            raise ToolError("One question at a time.")
        self._waiting_since = self._now()
        try:
            request = self._request(question)
            # Who stops asking half-way must not leave a question that we do not know of.
            self._committing = asyncio.ensure_future(self._driver.commit(request))
            await asyncio.shield(self._committing)
            return _answer_of(await self._decided(request.approval_id))
        finally:
            self._waited += self._now() - self._waiting_since
            self._waiting_since = None

    def _request(self, question: Question) -> ApprovalRequested:
        driver, wanted = self._driver, self._wanted
        lifetime = timedelta(seconds=driver.agent.limits.approval_seconds)
        arguments = {"question": question.text, "call": wanted.arguments}
        return ApprovalRequested(
            run_id=self._run_id,
            approval_id=f"approval_{driver.services.ids.new()}",
            call_id=wanted.id,
            kind="question",
            digest=digest_of(driver.thread_id, self._run_id, wanted, self._spec),
            shown={"tool_name": wanted.name, "arguments": arguments},
            choices=question.choices or None,
            answer_schema=dict(question.schema) if question.schema is not None else None,
            expires_at=driver.services.clock.now() + lifetime,
            asked_uptime=driver.services.clock.monotonic(),
        )

    async def _decided(self, approval_id: str) -> Approval:
        services, thread_id = self._driver.services, self._driver.thread_id
        async with services.signals.subscribe(thread_id) as changes:
            while True:
                run = self._driver.known.state.run(self._run_id)
                approval = run.calls[self._wanted.id].asked(approval_id)
                if approval.state is not ApprovalState.PENDING:
                    return approval
                if run.cancel_requested is not None:
                    raise ToolError("The run was cancelled.")
                if not await changes.wait(POLL_SECONDS):
                    await services.threads.load(thread_id)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _answer_of(approval: Approval) -> Any:
    if approval.state is ApprovalState.APPROVED and approval.decision is not None:
        return approval.decision.answer
    if approval.state is ApprovalState.REJECTED:
        raise ToolError(declined(approval))
    raise ToolError("Nobody answered in time.")
