"""The agent's own model, asked by a running tool.

A tool may be code of others that wants a model's answer, as servers of the Model Context Protocol
do. The user sees what would be sent and by whom, and nothing is sent without a yes. What is sent is
what was shown: neither the agent's instructions nor the conversation are added. It is paid for like
a round of the run, and its tokens are those of the tool's result.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sk_agents.engine.calls.questions import Questions
from sk_agents.engine.models import Message, Usage
from sk_agents.engine.run.context_window import tokens
from sk_agents.engine.run.rounds import BYTES_PER_TOKEN, Reply
from sk_agents.engine.run.run_context import RunContext
from sk_agents.engine.services import patiently
from sk_agents.engine.turns import (
    Completed,
    Completion,
    Prompt,
    Question,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    printable,
)
from sk_agents.exceptions import BudgetExceeded, ModelInterrupted, TealError, ToolError

logger = logging.getLogger(__name__)

SEND, DO_NOT_SEND = "send it to the model", "do not send it"
# Of all messages together: a person is to read them.
MOST_BYTES = 32 * 1024
FAILED = "The model could not be asked."


class Completions:
    """Those of one call. `usage` is what they have used so far."""

    def __init__(self, context: RunContext, questions: Questions) -> None:
        self._context = context
        self._questions = questions
        self.usage: Usage | None = None

    async def complete(self, wanted: Completion) -> Completed:
        """What the model answers, once the user has allowed it.

        Raises:
            ToolError: they did not, there was no answer in time, it is more than may be sent, the
                budget does not allow it, or the model failed.
        """
        agent = self._context.agent
        messages = [self._message(one) for one in wanted.messages]
        if sum(len(one.content.encode()) for one in messages) > MOST_BYTES:
            raise ToolError(f"No more than {MOST_BYTES} bytes can be sent to the model.")
        if not messages or tokens(messages) > agent.context_window.budget:
            raise ToolError("These messages cannot be sent to the model.")
        most = min(wanted.max_tokens, agent.max_tokens or agent.context_window.reserve)
        with self._questions.at_rest():
            text = _shown(wanted.asker, messages, most)
            answer = await self._questions.put(Question(text, choices=(SEND, DO_NOT_SEND)))
            if answer != SEND:
                raise ToolError("The user does not want this to be sent to the model.")
            reply = await self._paid(
                Prompt(
                    messages=messages,
                    temperature=wanted.temperature,
                    max_tokens=most,
                    reasoning_effort=agent.reasoning_effort,
                    limits=agent.limits.reply,
                )
            )
        return Completed("".join(reply.text), reply.finish_reason, reply.model)

    def _message(self, message: Message) -> Message:
        """As it is shown, stored and sent."""
        redaction = self._context.agent.redaction
        text = self._questions.closed(printable(message.content))
        hidden = text if redaction is None else redaction.text(text)
        return Message(role=message.role, content=hidden)

    async def _paid(self, prompt: Prompt) -> Reply:
        context, price = self._context, self._context.agent.price
        budget, spender = context.services.budget, context.spender
        estimate = Usage(
            prompt_tokens=tokens(prompt.messages), completion_tokens=prompt.max_tokens or 0
        )
        reserved = estimate if price is None else price.applied(estimate)
        try:
            reservation = await patiently(lambda: budget.reserve(spender, reserved))
        except BudgetExceeded as error:
            raise ToolError(str(error)) from error
        reply = Reply(context.run_id, context.run.next_round - 1, limits=prompt.limits)
        try:
            with context.services.observer.model_call(
                context.known.head, context.run, context.agent.name, reply.round
            ) as replied:
                await self._stream(prompt, reply)
                replied(reply.usage, reply.finish_reason, reply.model)
        except TealError as error:
            logger.warning(
                "model failed for a tool", extra={"run_id": context.run_id, "code": error.code}
            )
            raise ToolError(FAILED) from error
        except Exception as error:  # a model may be the operator's own class
            logger.exception("model failed for a tool", extra={"run_id": context.run_id})
            raise ToolError(FAILED) from error
        finally:
            # On the way out of a cancelled run, too: what was received has to be paid for.
            used = self._used(reply, estimate)
            self.usage = used if self.usage is None else self.usage + used
            await budget.settle(reservation, used)
        return reply

    async def _stream(self, prompt: Prompt, reply: Reply) -> None:
        """Raises TealError: the reply broke off, is too large, or cannot be had."""
        stream = self._context.agent.model.stream(prompt)
        try:
            async for pieces in stream:
                reply.has_begun = True
                for piece in pieces:
                    match piece:
                        case TextDelta() | ReasoningDelta():
                            reply.take(type(piece)(printable(piece.content)))
                        case TurnFinished():
                            reply.usage = piece.usage
                            reply.finish_reason = printable(piece.finish_reason)
                            reply.model = piece.model and printable(piece.model)
                            return
                        case _:
                            pass  # no tools were offered, and there is no next round
        finally:
            await stream.aclose()
        raise ModelInterrupted

    def _used(self, reply: Reply, estimate: Usage) -> Usage:
        """As the model has counted; of a reply that broke off, about as much as has arrived."""
        price, usage = self._context.agent.price, reply.usage
        if not usage.total_tokens and reply.has_begun:
            said = reply.text_bytes // BYTES_PER_TOKEN
            usage = Usage(prompt_tokens=estimate.prompt_tokens, completion_tokens=said)
        return usage if price is None else price.applied(usage)


def _shown(asker: str, messages: Sequence[Message], most: int) -> str:
    parts = [f"{one.role}:\n{one.content}" for one in messages]
    return "\n\n".join(
        (
            f"{asker} asks this agent's model for an answer of at most {most} tokens. This would "
            "be sent to the model, and the answer to the one who asks:",
            *parts,
        )
    )
