"""One stateless run: a thread made for it, read as it grows, and removed however it ends.

There is no person to ask here: a run that would wait for one fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from sk_agents.engine.commands import Accepted, StartRun
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import (
    Answered,
    ApprovalRequested,
    Failed,
    RunEnded,
    ToolFinished,
)
from sk_agents.engine.models import NewThread, Part, RunStatus, Usage, UserInput
from sk_agents.engine.ports import Ids
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.reading.watch import Item
from sk_agents.exceptions import NotFound, TealError
from sk_agents.http.caller import Caller
from sk_agents.http.errors import run_failure_retry
from sk_agents.ska_types import ExtraData, ExtraDataElement
from sk_agents.skagents.conversation import ConversationMessage, past_events
from sk_agents.skagents.models import InvokeFailure

logger = logging.getLogger(__name__)

SURFACE = "skagents"
# Tools that run when their client leaves are waited for, but no longer than this.
REMOVAL_SECONDS = 30.0
# What a failed run means over HTTP; every other failure of a model is a bad gateway's.
STATUSES = {
    "budget_exceeded": 429,
    "cancelled": 503,
    "guardrail_tripped": 422,
    "llm_context": 422,
    "llm_rate_limited": 503,
    "output_invalid": 502,
    "run_timeout": 504,
}
MODEL_CODES = "llm_"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """The message for an agent, and the conversation before it."""

    agent: str
    parts: tuple[Part, ...]
    past: Sequence[ConversationMessage] = ()
    response_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer, or of the model's text before it uses tools."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    text: str
    usage: Usage
    extra_data: tuple[ExtraDataElement, ...] = ()


TurnPiece = TextPiece | TurnResult | InvokeFailure


class TurnRunner:
    """Runs turns. Keeps the tasks that remove threads, so that they are not collected early."""

    def __init__(self, ids: Ids | None = None) -> None:
        self.ids = ids or RandomIds()
        self._removals: set[asyncio.Task[None]] = set()

    async def run(
        self, engine: Engine, turn: AgentTurn, caller: Caller
    ) -> AsyncGenerator[Sequence[TurnPiece], None]:
        """The answer as it appears; the last piece is `TurnResult` or an `InvokeFailure`.

        Raises:
            TealError: the engine does not take the run on.
        """
        thread_id = self.ids.new()
        reader = _TurnReader()
        try:
            accepted = await self._begin(engine, thread_id, turn, caller)
            watched = engine.watch(thread_id, after=accepted.after, run_id=accepted.run_id)
            async with aclosing(watched) as batches:
                async for batch in batches:
                    pieces = [piece for item in batch for piece in reader.take(item)]
                    if pieces:
                        yield pieces
                    if reader.is_over:
                        return
        finally:
            await self._remove(engine, thread_id, caller.user_id)

    async def _begin(
        self, engine: Engine, thread_id: str, turn: AgentTurn, caller: Caller
    ) -> Accepted:
        new = NewThread(caller.user_id, surface=SURFACE, agent=turn.agent)
        if turn.past:
            past = [_redacted(engine, turn.agent, message) for message in turn.past]
            await engine.catalog.restore(thread_id, new, past_events(thread_id, past))
        return await engine.start(
            StartRun(
                thread_id=thread_id,
                user_id=caller.user_id,
                run_id=self.ids.new(),
                message=UserInput(parts=turn.parts),
                new=new,
                fresh=not turn.past,
                response_schema=turn.response_schema,
                authorization=caller.authorization,
            )
        )

    async def _remove(self, engine: Engine, thread_id: str, user_id: str) -> None:
        """Goes on by itself if the request that waits for it is cancelled."""
        task = asyncio.get_running_loop().create_task(_removed(engine, thread_id, user_id))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
        await asyncio.shield(task)


def _redacted(engine: Engine, agent: str, message: ConversationMessage) -> ConversationMessage:
    said = engine.catalog.redacted(agent, UserInput(parts=message.parts))
    return replace(message, parts=said.parts)


async def _removed(engine: Engine, thread_id: str, user_id: str) -> None:
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            await engine.delete(thread_id, user_id)
    except NotFound:
        # It was never created.
        return
    except (TealError, TimeoutError) as error:
        extra = {"thread_id": thread_id, "error": type(error).__name__}
        logger.warning("a stateless run could not be removed", extra=extra)


@dataclass(slots=True)
class _TurnReader:
    """From the events of one run to the pieces of its answer."""

    is_over: bool = False
    _stream: tuple[int, int] = (0, 0)
    _shown: list[str] = field(default_factory=list)
    _extra: list[ExtraDataElement] = field(default_factory=list)
    _answer: str = ""
    _failure: InvokeFailure | None = None

    def take(self, item: Item) -> Iterator[TurnPiece]:
        if self.is_over:
            return
        match item:
            case LiveDelta(kind="answer"):
                self._follow(item)
                yield TextPiece(item.content)
            case Answered():
                self._answer = item.content
                if rest := self._unshown(item):
                    yield TextPiece(rest)
            case ToolFinished(extra_data=dict() as extra):
                self._extra.extend(ExtraData.model_validate(extra).items)
            case Failed():
                self._failure = run_failure(item.code, item.message, item.run_id)
            case ApprovalRequested():
                self.is_over = True
                yield _needs_a_person(item)
            case RunEnded():
                self.is_over = True
                yield self._end(item)

    def _follow(self, delta: LiveDelta) -> None:
        stream = (delta.round, delta.attempt)
        if stream != self._stream:
            self._stream, self._shown = stream, []
        self._shown.append(delta.content)

    def _unshown(self, answer: Answered) -> str:
        """What the client has not seen yet: the end, or all of it if it saw another attempt."""
        shown = "".join(self._shown) if self._stream[0] == answer.round else ""
        return answer.content.removeprefix(shown)

    def _end(self, ended: RunEnded) -> TurnPiece:
        if self._failure is not None:
            return self._failure
        if ended.status is not RunStatus.COMPLETED:
            message = "The run was stopped before it had an answer."
            return run_failure("cancelled", message, ended.run_id)
        return TurnResult(self._answer, ended.usage, tuple(self._extra))


def run_failure(code: str, message: str, run_id: str | None = None) -> InvokeFailure:
    """The failure of a run, with the status its code stands for."""
    status = STATUSES.get(code) or (502 if code.startswith(MODEL_CODES) else 500)
    return InvokeFailure(code, message, status, run_id, run_failure_retry(code))


def _needs_a_person(asked: ApprovalRequested) -> InvokeFailure:
    if asked.kind == "outcome_unknown":
        message = "A tool was started and it is not known whether it took effect."
        return run_failure("tool_outcome_unknown", message, asked.run_id)
    message = "A tool needs a person's decision, and this API has no person to ask."
    return run_failure("approval_required", message, asked.run_id)
