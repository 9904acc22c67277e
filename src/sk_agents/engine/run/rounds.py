"""One model call: the prompt out, the stream in, a whole reply back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sk_agents.engine.events import Answered, Event, ModelRestarted, Thinking
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Usage
from sk_agents.engine.run.context import Context, compaction, cut_to_fit, tokens
from sk_agents.engine.run.transcript import conversation
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    ReplyLimits,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ReplyTooLarge,
    TealError,
)

if TYPE_CHECKING:
    from sk_agents.engine.run.driver import Driver

logger = logging.getLogger(__name__)

# A reply that broke off is asked for once more.
ATTEMPTS = 2


@dataclass(slots=True)
class Reply:
    run_id: str
    round: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallRequested] = field(default_factory=list)
    usage: Usage = Usage()
    finish_reason: str = "stop"
    limits: ReplyLimits = ReplyLimits()
    text_bytes: int = 0
    argument_bytes: int = 0

    def take_text(self, content: str) -> None:
        """Raises ReplyTooLarge."""
        self._count_text(content)
        self.text.append(content)

    def take_reasoning(self, content: str) -> None:
        """Raises ReplyTooLarge."""
        self._count_text(content)
        self.reasoning.append(content)

    def take_call(self, call: CallRequested) -> None:
        """Raises ReplyTooLarge."""
        if len(self.calls) >= self.limits.calls:
            raise ReplyTooLarge(f"The model asks for more than {self.limits.calls} calls at once.")
        self.argument_bytes += _bytes(call.arguments)
        if self.argument_bytes > self.limits.argument_bytes:
            most = self.limits.argument_bytes
            raise ReplyTooLarge(f"The arguments of the model's calls are larger than {most} bytes.")
        self.calls.append(call)

    def _count_text(self, content: str) -> None:
        self.text_bytes += _bytes(content)
        if self.text_bytes > self.limits.text_bytes:
            most = self.limits.text_bytes
            raise ReplyTooLarge(f"The model's reply is larger than {most} bytes.")

    def answer(self) -> Answered:
        return Answered(
            run_id=self.run_id,
            round=self.round,
            content="".join(self.text),
            finish_reason=self.finish_reason,
            usage=self.usage,
        )

    def thoughts(self) -> Iterator[Event]:
        """What was reasoned and, beside tool calls, what was said."""
        if self.reasoning:
            content = "".join(self.reasoning)
            yield Thinking(run_id=self.run_id, round=self.round, content=content)
        if self.calls and self.text:
            content = "".join(self.text)
            yield Thinking(run_id=self.run_id, round=self.round, content=content, spoken=True)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


class ModelRound:
    def __init__(self, driver: Driver, run: Run) -> None:
        self._driver = driver
        self._run = run
        self.number = 1 + run.rounds
        self._attempt = run.attempt(self.number)

    async def ask(self) -> Reply:
        """The whole reply, previewed to readers as it comes.

        Raises:
            ModelError: there is none to be had.
        """
        driver = self._driver
        await self._compact(driver.agent.context)
        last = self._attempt + ATTEMPTS - 1
        while True:
            try:
                with driver.services.observer.model_call(
                    driver.known.head, self._run, driver.agent.name, self.number
                ) as replied:
                    reply = await self._stream()
                    replied(reply.usage, reply.finish_reason)
                return reply
            except (ModelInterrupted, ContextTooLong) as error:
                if self._attempt >= last:
                    raise
                if isinstance(error, ContextTooLong) and not await self._compact_harder():
                    raise
                self._attempt += 1
                await self._driver.commit(
                    ModelRestarted(
                        run_id=self._run.run_id,
                        round=self.number,
                        attempt=self._attempt,
                        reason=error.code,
                    )
                )

    async def _compact(self, context: Context) -> bool:
        """Leave out old turns if the prompt would not fit; False if nothing was left out."""
        driver = self._driver
        known = driver.known
        event = compaction(known.state, known.transcript, context, driver.agent.instruction_tokens)
        if event is None:
            return False
        await driver.commit(event)
        return True

    async def _compact_harder(self) -> bool:
        """The provider counts otherwise than we do: aim for half of what we sent."""
        return await self._compact(Context(self._driver.known.transcript.tokens // 2, reserve=0))

    async def _stream(self) -> Reply:
        driver = self._driver
        live = driver.live
        live.begin(self.number, self._attempt)
        reply = Reply(self._run.run_id, self.number, limits=driver.agent.limits.reply)
        prompt = self._prompt()
        failpoint("model_called")
        try:
            stream = driver.agent.model.stream(prompt)
            try:
                async for pieces in stream:
                    failpoint("model_streaming")
                    said = len(reply.text) + len(reply.reasoning)
                    is_whole = self._take(reply, pieces)
                    if len(reply.text) + len(reply.reasoning) > said:
                        # Also of the last pieces: readers see them while they are being stored.
                        live.call_listeners()
                    if is_whole:
                        return reply
            finally:
                await stream.aclose()
        except TealError:
            raise
        except Exception as error:  # a model may be the operator's own class
            logger.exception("model failed", extra={"run_id": reply.run_id})
            raise ModelError from error
        raise ModelInterrupted

    def _take(self, reply: Reply, pieces: Sequence[ModelPiece]) -> bool:
        """Add the pieces to the reply and the preview; True with the last one.

        Raises:
            ReplyTooLarge: there is no use in reading on.
        """
        live = self._driver.live
        for piece in pieces:
            match piece:
                case TextDelta():
                    reply.take_text(piece.content)
                    live.add_text("answer", piece.content)
                case ReasoningDelta():
                    reply.take_reasoning(piece.content)
                    live.add_text("thinking", piece.content)
                case CallRequested():
                    reply.take_call(piece)
                case TurnFinished():
                    price = self._driver.agent.price
                    reply.usage = price.applied(piece.usage) if price else piece.usage
                    reply.finish_reason = piece.finish_reason
                    return True
        return False

    def _prompt(self) -> Prompt:
        agent = self._driver.agent
        known = self._driver.known
        messages = conversation(known.state, known.transcript, agent.instructions)
        size = known.transcript.tokens + agent.instruction_tokens + tokens(messages.now)
        fits = size <= agent.context.budget
        return Prompt(
            messages=messages if fits else cut_to_fit(messages, agent.context),
            tools=agent.toolbox.specs(),
            temperature=agent.temperature,
            max_tokens=agent.max_tokens,
            reasoning_effort=agent.reasoning_effort,
            response_schema=self._run.response_schema,
            limits=agent.limits.reply,
        )
