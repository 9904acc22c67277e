"""One stateless run: a thread made for it, read as it grows, and removed however it ends.

Nobody can be asked here. A run that comes to wait for a person is a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
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
from sk_agents.engine.reading.live import Delta
from sk_agents.engine.reading.watch import Item
from sk_agents.exceptions import NotFound, TealError
from sk_agents.http.caller import Caller
from sk_agents.ska_types import ExtraData, ExtraDataElement
from sk_agents.skagents.conversation import Utterance, past_events
from sk_agents.skagents.models import Failure

logger = logging.getLogger(__name__)

SURFACE = "skagents"
# Tools that are running when their client leaves are waited for, but not for ever.
REMOVAL_SECONDS = 30.0
# What a failed run means over HTTP; every other failure of a model is a bad gateway's.
STATUSES = {"cancelled": 503, "llm_context": 422, "llm_rate_limited": 503, "run_timeout": 504}
MODEL_CODES = "llm_"


@dataclass(frozen=True, slots=True)
class Turn:
    """What an agent is asked, and what was said before."""

    agent: str
    parts: tuple[Part, ...]
    past: Sequence[Utterance] = ()
    response_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """A piece of the answer, or of what the model says before it uses tools."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    text: str
    usage: Usage
    extra_data: tuple[ExtraDataElement, ...] = ()


Piece = Spoken | Finished | Failure


class Turns:
    """Takes turns. Threads that are being removed are held on to until they are gone."""

    def __init__(self, ids: Ids | None = None) -> None:
        self.ids = ids or RandomIds()
        self._removals: set[asyncio.Task[None]] = set()

    async def take(
        self, engine: Engine, turn: Turn, caller: Caller
    ) -> AsyncGenerator[Sequence[Piece], None]:
        """The answer as it appears; the last piece is `Finished` or a `Failure`.

        Raises:
            TealError: the engine does not take the run on.
        """
        thread_id = self.ids.new()
        reading = _Reading()
        try:
            accepted = await self._begin(engine, thread_id, turn, caller)
            watched = engine.watch(thread_id, after=accepted.after, run_id=accepted.run_id)
            async with aclosing(watched) as batches:
                async for batch in batches:
                    pieces = [piece for item in batch for piece in reading.take(item)]
                    if pieces:
                        yield pieces
                    if reading.is_over:
                        return
        finally:
            await self._remove(engine, thread_id, caller.user_id)

    async def _begin(self, engine: Engine, thread_id: str, turn: Turn, caller: Caller) -> Accepted:
        new = NewThread(caller.user_id, surface=SURFACE, agent=turn.agent)
        if turn.past:
            await engine.catalog.restore(thread_id, new, past_events(thread_id, turn.past))
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
        """Goes on by itself if whoever waits for it is cut off."""
        task = asyncio.get_running_loop().create_task(_removed(engine, thread_id, user_id))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
        await asyncio.shield(task)


async def _removed(engine: Engine, thread_id: str, user_id: str) -> None:
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            await engine.delete(thread_id, user_id)
    except NotFound:
        # It was never made.
        return
    except (TealError, TimeoutError) as error:
        extra = {"thread_id": thread_id, "error": type(error).__name__}
        logger.warning("a stateless run was left behind", extra=extra)


@dataclass(slots=True)
class _Reading:
    """From the events of one run to the pieces of its answer."""

    is_over: bool = False
    _stream: tuple[int, int] = (0, 0)
    _said: list[str] = field(default_factory=list)
    _extra: list[ExtraDataElement] = field(default_factory=list)
    _answer: str = ""
    _failure: Failure | None = None

    def take(self, item: Item) -> Iterator[Piece]:
        if self.is_over:
            return
        match item:
            case Delta(kind="answer"):
                self._follow(item)
                yield Spoken(item.content)
            case Answered():
                self._answer = item.content
                if rest := self._unsaid(item):
                    yield Spoken(rest)
            case ToolFinished(extra_data=dict() as extra):
                self._extra.extend(ExtraData.model_validate(extra).items)
            case Failed():
                self._failure = failure(item.code, item.message, item.run_id)
            case ApprovalRequested():
                self.is_over = True
                yield _nobody_to_ask(item)
            case RunEnded():
                self.is_over = True
                yield self._end(item)

    def _follow(self, delta: Delta) -> None:
        stream = (delta.round, delta.attempt)
        if stream != self._stream:
            self._stream, self._said = stream, []
        self._said.append(delta.content)

    def _unsaid(self, answer: Answered) -> str:
        """What readers of the pieces have not seen: the end, or all if they saw something else."""
        said = "".join(self._said) if self._stream[0] == answer.round else ""
        return answer.content.removeprefix(said)

    def _end(self, ended: RunEnded) -> Piece:
        if self._failure is not None:
            return self._failure
        if ended.status is not RunStatus.COMPLETED:
            message = "The run was stopped before it had an answer."
            return failure("cancelled", message, ended.run_id)
        return Finished(self._answer, ended.usage, tuple(self._extra))


def failure(code: str, message: str, run_id: str | None = None) -> Failure:
    """The failure of a run, with the status its code stands for."""
    status = STATUSES.get(code) or (502 if code.startswith(MODEL_CODES) else 500)
    return Failure(code, message, status, run_id)


def _nobody_to_ask(asked: ApprovalRequested) -> Failure:
    if asked.kind == "outcome_unknown":
        message = "A tool was started and it is not known whether it took effect."
        return failure("tool_outcome_unknown", message, asked.run_id)
    message = "A tool needs a person's decision, and nobody is there to ask."
    return failure("approval_required", message, asked.run_id)
