"""What a person is asked about a call, and what a tool asks the user while it runs.

A tool's questions are on the same records as every other approval. The run keeps its lease during
that, since the tool is at work; should its owner be lost, the call is one that was started and has
no result, whatever is answered then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sk_agents.engine.calls.call import Approval
from sk_agents.engine.calls.steps import declined, digest_of
from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.models import ApprovalKind, ApprovalState, Review, ToolCall
from sk_agents.engine.run.redacting import redacted_shown
from sk_agents.engine.run.run_context import RunContext
from sk_agents.engine.run.vault import closed
from sk_agents.engine.turns import Question, ToolSpec
from sk_agents.exceptions import ToolError

# An answer given to another instance is looked for this often.
POLL_SECONDS = 1.0


def approval_request(
    context: RunContext,
    wanted: ToolCall,
    spec: ToolSpec | None,
    kind: ApprovalKind,
    shown: dict[str, Any],
    choices: tuple[str, ...] | None,
    schema: dict[str, Any] | None,
    review: Review | None = None,
) -> ApprovalRequested:
    """Whatever it asks, its digest covers who may allow the call, and what will run, also where
    secrets in it are not shown; only whether the call may run is put to others than the
    requester."""
    clock, now = context.services.clock, context.services.clock.now()
    seconds = review.lifetime if review is not None and kind == "tool" else None
    lifetime = seconds or context.agent.limits.approval_seconds
    # An inbox is sorted by id: the oldest comes first, also among the calls of one round.
    millisecond, rest = divmod(int(now.timestamp() * 1_000_000), 1000)
    approval_id = f"approval_{millisecond:012x}{rest:03x}-{context.services.ids.new()}"
    return ApprovalRequested(
        run_id=context.run_id,
        approval_id=approval_id,
        call_id=wanted.id,
        kind=kind,
        digest=digest_of(context.thread_id, context.run_id, wanted, spec, review),
        shown=redacted_shown(context.agent.redaction, shown),
        choices=choices,
        answer_schema=schema,
        expires_at=now + timedelta(seconds=lifetime),
        asked_uptime=clock.monotonic(),
        review=review.model_copy(update={"lifetime": lifetime})
        if review is not None and kind == "tool"
        else None,
    )


class Questions:
    """Those of one call, and the time its tool has left: waiting for a person does not count."""

    def __init__(self, context: RunContext, wanted: ToolCall, spec: ToolSpec) -> None:
        self._context = context
        self._wanted = wanted
        self._spec = spec
        self._began = self._now()
        self._waited = 0.0
        self._waiting_since: float | None = None
        self._committing: asyncio.Task[None] | None = None

    async def committed(self) -> None:
        """Wait until the last question is stored, also if the tool did not wait for that."""
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
        with self.at_rest():
            return await self.put(question)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """The tool's time stands still: it waits for something of ours.

        Raises:
            ToolError: it does so already.
        """
        if self._waiting_since is not None:
            raise ToolError("One question at a time.")
        self._waiting_since = self._now()
        try:
            yield
        finally:
            self._waited += self._now() - self._waiting_since
            self._waiting_since = None

    async def put(self, question: Question) -> Any:
        """The answer, while the tool is at rest. Raises as `ask`."""
        request = self._request(question)
        # A tool that stops asking half-way must not leave a question that we do not know of.
        self._committing = asyncio.ensure_future(self._context.commit(request))
        await asyncio.shield(self._committing)
        return _answer_of(await self._decided(request.approval_id))

    def closed(self, text: str) -> str:
        """What the tool says, with placeholders again for the secrets that it was given."""
        said: str = closed(text, self._wanted, self._context.known.state.secrets)
        return said

    def _request(self, question: Question) -> ApprovalRequested:
        wanted, choices = self._wanted, question.choices or None
        arguments = {"question": self.closed(question.text), "call": wanted.arguments}
        shown = {"tool_name": wanted.name, "arguments": arguments}
        schema = dict(question.schema) if question.schema is not None else None
        return approval_request(
            self._context, wanted, self._spec, "question", shown, choices, schema
        )

    async def _decided(self, approval_id: str) -> Approval:
        context = self._context
        async with context.services.signals.subscribe(context.thread_id) as changes:
            while True:
                run = context.run
                approval = run.calls[self._wanted.id].asked(approval_id)
                if approval.state is not ApprovalState.PENDING:
                    return approval
                if run.cancel_requested is not None:
                    raise ToolError("The run was cancelled.")
                if not await changes.wait(POLL_SECONDS):
                    await context.services.threads.load(context.thread_id)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _answer_of(approval: Approval) -> Any:
    if approval.state is ApprovalState.APPROVED and approval.decision is not None:
        return approval.decision.answer
    if approval.state is ApprovalState.REJECTED:
        raise ToolError(declined(approval))
    raise ToolError("Nobody answered in time.")
