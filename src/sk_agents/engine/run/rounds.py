"""One model call: the prompt out, the stream in, a whole reply back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sk_agents.engine.events import (
    Answered,
    Compacted,
    Event,
    ModelRestarted,
    SteeringDelivered,
    Thinking,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.models import Message, Usage
from sk_agents.engine.ports import RedactionStream, RoundPlan, Scene
from sk_agents.engine.run.context_window import ContextWindow, compaction, cut_to_fit, tokens
from sk_agents.engine.run.conversation import Conversation, conversation
from sk_agents.engine.run.run_context import RunContext
from sk_agents.engine.services import patiently
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    ReasoningState,
    ReplyLimits,
    TextDelta,
    TurnFinished,
    printable,
)
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    OutputInvalid,
    ReplyTooLarge,
    TealError,
)

logger = logging.getLogger(__name__)

# A reply that broke off is asked for once more.
ATTEMPTS = 2
# Where the model does not count.
BYTES_PER_TOKEN = 4
NO_USAGE = Usage()


@dataclass(slots=True)
class Reply:
    run_id: str
    round: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallRequested] = field(default_factory=list)
    state: Mapping[str, Any] | None = None
    usage: Usage = NO_USAGE
    finish_reason: str = "stop"
    model: str | None = None
    limits: ReplyLimits = ReplyLimits()
    plan: RoundPlan | None = None
    text_bytes: int = 0
    argument_bytes: int = 0
    has_begun: bool = False
    # What to ask a person before the run spends more.
    budget_question: str | None = None

    def take(self, piece: TextDelta | ReasoningDelta) -> None:
        """Raises ReplyTooLarge."""
        self.text_bytes += _bytes(piece.content)
        if self.text_bytes > self.limits.text_bytes:
            most = self.limits.text_bytes
            raise ReplyTooLarge(f"The model's reply is larger than {most} bytes.")
        into = self.text if isinstance(piece, TextDelta) else self.reasoning
        into.append(piece.content)

    def take_call(self, call: CallRequested) -> None:
        """Raises ReplyTooLarge."""
        call = CallRequested(*map(printable, (call.provider_id, call.name, call.arguments)))
        if len(self.calls) >= self.limits.calls:
            raise ReplyTooLarge(f"The model asks for more than {self.limits.calls} calls at once.")
        self.argument_bytes += _bytes(call.arguments)
        if self.argument_bytes > self.limits.argument_bytes:
            most = self.limits.argument_bytes
            raise ReplyTooLarge(f"The arguments of the model's calls are larger than {most} bytes.")
        self.calls.append(call)

    def answer(self) -> Answered:
        return Answered(
            run_id=self.run_id,
            round=self.round,
            content="".join(self.text),
            finish_reason=self.finish_reason,
            usage=self.usage,
        )

    def thoughts(self, *, is_last: bool = True) -> Iterator[Event]:
        """What was reasoned and, beside tool calls or if it is not the last word, what was said."""
        if self.reasoning:
            content = "".join(self.reasoning)
            yield Thinking(run_id=self.run_id, round=self.round, content=content)
        if self.text and (self.calls or not is_last):
            content = "".join(self.text)
            yield Thinking(run_id=self.run_id, round=self.round, content=content, spoken=True)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


class ModelRound:
    def __init__(self, context: RunContext) -> None:
        self._context = context
        run = context.run
        self.number = run.next_round
        self._attempt = run.attempt(self.number)
        self._reply: Reply | None = None
        # Without redaction there are none.
        self._redacted: dict[type[TextDelta] | type[ReasoningDelta], RedactionStream] = {}
        self._prompt_tokens = 0
        self._plan = context.agent.plan
        # For answers that could not be used.
        self._wasted = NO_USAGE

    async def ask(self) -> Reply:
        """The whole reply, streamed to readers as it comes. It is paid for once, however often the
        model was asked for it.

        Raises:
            ModelError: there is none to be had.
            BudgetExceeded: it may not be asked for.
        """
        context = self._context
        if context.run.undelivered:
            await self._deliver()
        whole = self._conversation()
        if event := self._compaction(context.agent.context_window):
            await context.commit(event)
            whole = self._conversation()
        if context.agent.director is not None:
            self._plan = await context.agent.director.plan(self._scene())
            if self._plan.answer is not None:
                return await self._given(self._plan.answer)
            whole = self._conversation()
        prompt, budget, spender = self._prompt(whole), context.services.budget, context.spender
        estimate = self._estimate()
        reservation = await patiently(lambda: budget.reserve(spender, estimate))
        try:
            reply = await self._replied(prompt)
        finally:
            # On the way out of a cancelled run, too: what was received has to be paid for.
            question = await budget.settle(reservation, self._used(estimate))
        reply.budget_question = question
        return reply

    def _scene(self) -> Scene:
        known = self._context.known
        messages = conversation(known.state, known.transcript)
        head = known.head
        return Scene(head.thread_id, head.user_id, known.state, self._context.run, messages)

    async def _given(self, answer: str) -> Reply:
        """An answer that no model has to give, such as what a tool has returned."""
        if self._plan.check is not None:
            await self._plan.check(answer)
        return Reply(self._context.run_id, self.number, text=[answer])

    def _estimate(self) -> Usage:
        """What the call will use at most, by our own count of the prompt's tokens."""
        agent = self._context.agent
        usage = Usage(
            prompt_tokens=min(self._prompt_tokens, agent.context_window.budget),
            completion_tokens=self._plan.max_tokens or agent.context_window.reserve,
        )
        return agent.price.applied(usage) if agent.price is not None else usage

    def _used(self, estimate: Usage) -> Usage:
        """As the model has counted; of a reply that broke off, about as much as has arrived."""
        reply, price = self._reply, self._context.agent.price
        if reply is None or reply.usage.total_tokens or not reply.has_begun:
            return reply.usage if reply is not None else NO_USAGE
        usage = Usage(
            prompt_tokens=estimate.prompt_tokens,
            completion_tokens=(reply.text_bytes + reply.argument_bytes) // BYTES_PER_TOKEN,
        )
        return price.applied(usage) if price is not None else usage

    async def _replied(self, prompt: Prompt) -> Reply:
        context = self._context
        last = self._attempt + ATTEMPTS - 1
        while True:
            try:
                with context.services.observer.model_call(
                    context.known.head, context.run, context.agent.name, self.number
                ) as replied:
                    reply = await self._stream(prompt)
                    replied(reply.usage, reply.finish_reason, reply.model)
                if self._plan.check is not None:
                    await self._check(reply, self._plan.check)
                return reply
            except (ModelInterrupted, ContextTooLong, OutputInvalid) as error:
                if self._attempt >= last:
                    raise
                if isinstance(error, ContextTooLong) and not await self._compact_harder():
                    raise
                self._attempt += 1
                await context.commit(
                    ModelRestarted(
                        run_id=context.run_id,
                        round=self.number,
                        attempt=self._attempt,
                        reason=error.code,
                    )
                )
                prompt = self._prompt(self._conversation())

    async def _check(self, reply: Reply, check: Callable[[str], Awaitable[None]]) -> None:
        """Raises ModelError. What an unusable answer has used is paid for all the same."""
        reply.usage = self._wasted + reply.usage
        if not reply.calls:
            self._wasted = reply.usage
            await check("".join(reply.text))

    async def _deliver(self) -> None:
        """Store which messages this call gets before it begins: they stand in the same place of
        every later prompt, also if another instance makes it."""
        await self._context.commit(
            SteeringDelivered(
                run_id=self._context.run_id,
                round=self.number,
                message_ids=tuple(one.said.message_id for one in self._context.run.undelivered),
            )
        )

    def _conversation(self) -> Conversation:
        """What the model is to see, counted."""
        known, instructions = self._context.known, self._plan.instructions
        whole = conversation(known.state, known.transcript, instructions)
        self._prompt_tokens = known.transcript.tokens + tokens(instructions) + tokens(whole.now)
        return whole

    def _compaction(self, window: ContextWindow) -> Compacted | None:
        """What leaves out old turns, if the conversation does not fit and that can help."""
        known = self._context.known
        return compaction(known.state, known.transcript, window, self._prompt_tokens)

    async def _compact_harder(self) -> bool:
        """The provider counts otherwise than we do: aim for half of what we sent. False if nothing
        was left out."""
        sent = self._context.known.transcript.tokens
        self._conversation()
        event = self._compaction(ContextWindow(sent // 2, reserve=0))
        if event is not None:
            await self._context.commit(event)
        return event is not None

    async def _stream(self, prompt: Prompt) -> Reply:
        context = self._context
        agent, live = context.agent, context.live
        live.begin(self.number, self._attempt)
        reply = self._reply = Reply(
            context.run_id, self.number, limits=agent.limits.reply, plan=self._plan
        )
        if agent.redaction is not None:
            streams = (agent.redaction.stream(), agent.redaction.stream())
            self._redacted = dict(zip((TextDelta, ReasoningDelta), streams, strict=True))
        failpoint("model_called")
        try:
            stream = self._plan.model.stream(prompt)
            try:
                async for pieces in stream:
                    reply.has_begun = True
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
        """Add the pieces to the reply and the live text; True with the last one.

        Raises:
            ReplyTooLarge: there is no use in reading on.
        """
        for piece in pieces:
            match piece:
                case TextDelta() | ReasoningDelta():
                    if self._redacted:
                        piece = type(piece)(self._redacted[type(piece)].feed(piece.content))
                    self._say(reply, piece)
                case CallRequested():
                    reply.take_call(piece)
                case ReasoningState():
                    reply.state = self._without_secrets(piece.data)
                case TurnFinished():
                    for kind, stream in self._redacted.items():
                        self._say(reply, kind(stream.end()))
                    price = self._context.agent.price
                    reply.usage = price.applied(piece.usage) if price else piece.usage
                    reply.finish_reason = printable(piece.finish_reason)
                    reply.model = printable(piece.model) if piece.model is not None else None
                    return True
        return False

    def _without_secrets(self, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """It holds thoughts that a provider has signed: they are kept whole or not at all."""
        redaction = self._context.agent.redaction
        return state if redaction is None or redaction.value(state) == state else None

    def _say(self, reply: Reply, piece: TextDelta | ReasoningDelta) -> None:
        if piece.content:
            if not piece.content.isascii():
                piece = type(piece)(printable(piece.content))
            reply.take(piece)
            kind: Literal["answer", "thinking"]
            kind = "answer" if isinstance(piece, TextDelta) else "thinking"
            if not (self._plan.is_held and kind == "answer"):
                self._context.live.add_text(kind, piece.content)

    def _prompt(self, whole: Conversation) -> Prompt:
        agent, plan = self._context.agent, self._plan
        messages: Sequence[Message] = whole
        if plan.history is not None:
            messages = [*plan.instructions, *plan.history]
            self._prompt_tokens = tokens(messages)
        elif self._prompt_tokens > agent.context_window.budget:
            messages = cut_to_fit(whole, agent.context_window)
        tools = agent.toolbox.specs()
        if plan.offered is not None:
            tools = tuple(spec for spec in tools if spec.name in plan.offered)
        return Prompt(
            messages=messages,
            tools=tools,
            temperature=plan.temperature,
            max_tokens=plan.max_tokens,
            reasoning_effort=plan.reasoning_effort,
            response_schema=plan.response_schema or self._context.run.response_schema,
            limits=agent.limits.reply,
            tool_choice=plan.tool_choice if tools else None,
            parallel_tool_calls=plan.parallel_tool_calls if tools else None,
        )
