"""The two kinds of `skagents/v1`: `Chat` answers a conversation, `Sequential` works through tasks.

A task sees what was said before the first one, every earlier task's message and its answer. It does
not see the tool calls of an earlier task's agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from sk_agents.engine.engine import Engine
from sk_agents.engine.models import Part, Usage
from sk_agents.engine.ports import Ids
from sk_agents.exceptions import InvalidInput
from sk_agents.http.caller import Caller
from sk_agents.ska_types import EmbeddedImage, ExtraData, TokenUsage
from sk_agents.skagents.conversation import (
    ConversationMessage,
    context_message,
    embedded_image_part,
    history_messages,
)
from sk_agents.skagents.models import (
    IntermediateTaskResponse,
    InvokeFailure,
    InvokeResponse,
    Output,
    Outputs,
    PartialResponse,
)
from sk_agents.skagents.turn import AgentTurn, TextPiece, TurnPiece, TurnResult, TurnRunner
from sk_agents.skagents.v1.structured import StructuredOutput

if TYPE_CHECKING:
    # Imports Jinja2, 16 ms of a start that `skagents/v2alpha1` does without.
    from sk_agents.skagents.v1.config import SequentialConfig, SequentialTask


class ChatHandler:
    """`agent` is its name in the engine, `source` its name for clients."""

    def __init__(self, agent: str, source: str) -> None:
        self._agent = agent
        self._source = source
        self._runner = TurnRunner()

    def invoke_stream(self, engine: Engine, inputs: BaseModel, caller: Caller) -> Outputs:
        *past, last = _conversation(inputs)
        responses = ResponseBuilder.of(inputs, self._source, self._runner.ids)
        return self._stream(engine, responses, AgentTurn(self._agent, last.parts, past), caller)

    async def _stream(
        self, engine: Engine, responses: ResponseBuilder, turn: AgentTurn, caller: Caller
    ) -> Outputs:
        async with aclosing(self._runner.run(engine, turn, caller)) as batches:
            async for batch in batches:
                yield [_chat_output(responses, piece) for piece in batch]


class SequentialHandler:
    """`address` gives an agent's name in the engine, `source` is the file's name for clients."""

    def __init__(
        self,
        config: SequentialConfig,
        source: str,
        address: Callable[[str], str],
        output: StructuredOutput | None = None,
    ) -> None:
        self._tasks = config.tasks
        self._source = source
        self._address = address
        self._output = output
        self._runner = TurnRunner()

    def invoke_stream(self, engine: Engine, inputs: BaseModel, caller: Caller) -> Outputs:
        responses = ResponseBuilder.of(inputs, self._source, self._runner.ids)
        return self._stream(engine, responses, _TaskState(inputs), caller)

    async def _stream(
        self, engine: Engine, responses: ResponseBuilder, state: _TaskState, caller: Caller
    ) -> Outputs:
        for number, task in enumerate(self._tasks, 1):
            is_last = number == len(self._tasks)
            output = self._output if is_last else None
            parts = state.message(task, output.demand if output else "")
            schema = output.response_schema if output else None
            turn = AgentTurn(self._address(task.agent), parts, tuple(state.past), schema)
            result: TurnResult | None = None
            async with aclosing(self._runner.run(engine, turn, caller)) as batches:
                async for batch in batches:
                    result = next((piece for piece in batch if isinstance(piece, TurnResult)), None)
                    if outputs := list(_task_outputs(responses, batch, is_last)):
                        yield outputs
            if result is None:
                return
            state.add(task, parts, result)
            if not is_last:
                yield [responses.intermediate(number, task.name, result)]
        yield [await self._final(responses, state.total)]

    async def _final(self, responses: ResponseBuilder, total: TurnResult) -> Output:
        if self._output is None:
            return responses.final(total)
        fitted = await self._output.fit(total.text)
        if isinstance(fitted, InvokeFailure):
            return fitted
        return responses.final(replace(total, usage=total.usage + fitted.usage), fitted.value)


class _TaskState:
    """What the tasks of one request share.

    `total` has the text of the last task, and the usage and extra data of all tasks so far.
    """

    def __init__(self, inputs: BaseModel) -> None:
        self._values = dict(inputs)
        self.past = history_messages(self._values.pop("chat_history", None))
        self._image: Part | None = None
        if isinstance(self._values.get("embedded_image"), EmbeddedImage):
            self._image = embedded_image_part(self._values.pop("embedded_image"))
        self.total = TurnResult("", Usage())

    def message(self, task: SequentialTask, demand: str) -> tuple[Part, ...]:
        """The first task gets the image; the others find it in what was said before."""
        text = Part(content=task.instructions.rendered(self._values) + demand)
        image, self._image = self._image, None
        return (text, image) if image is not None else (text,)

    def add(self, task: SequentialTask, parts: tuple[Part, ...], result: TurnResult) -> None:
        self._values[f"_{task.name}"] = result.text
        self.past.append(ConversationMessage("user", parts))
        self.past.append(ConversationMessage("assistant", (Part(content=result.text),)))
        self.total = TurnResult(
            result.text,
            self.total.usage + result.usage,
            self.total.extra_data + result.extra_data,
        )


@dataclass(frozen=True, slots=True)
class ResponseBuilder:
    """Builds what the client receives: every response names its session, source and request."""

    session_id: str
    source: str
    request_id: str

    @classmethod
    def of(cls, inputs: BaseModel, source: str, ids: Ids) -> ResponseBuilder:
        """The session is the client's own if its input names one."""
        named: Any = getattr(inputs, "session_id", None)
        return cls(str(named) if named else ids.new(), source, ids.new())

    def partial(self, text: str) -> PartialResponse:
        return PartialResponse(**self._ids(), output_partial=text)

    def intermediate(self, number: int, name: str, result: TurnResult) -> IntermediateTaskResponse:
        response = InvokeResponse[None](**self._ids(), **_answer(result))
        return IntermediateTaskResponse(task_no=number, task_name=name, response=response)

    def final(
        self, result: TurnResult, output: BaseModel | None = None
    ) -> InvokeResponse[BaseModel | None]:
        return InvokeResponse(**self._ids(), **_answer(result), output_pydantic=output)

    def _ids(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "source": self.source,
            "request_id": self.request_id,
        }


def _answer(result: TurnResult) -> dict[str, Any]:
    usage = result.usage
    return {
        "token_usage": TokenUsage(
            completion_tokens=usage.completion_tokens,
            prompt_tokens=usage.prompt_tokens,
            total_tokens=usage.total_tokens,
        ),
        "extra_data": ExtraData(items=list(result.extra_data)) if result.extra_data else None,
        "output_raw": result.text,
    }


def _conversation(inputs: BaseModel) -> list[ConversationMessage]:
    """Everything for the model, the message to answer last.

    Raises:
        InvalidInput: there is none, or it is the assistant's own.
    """
    messages = [
        *context_message(getattr(inputs, "user_context", None)),
        *history_messages(getattr(inputs, "chat_history", None)),
    ]
    if not messages or messages[-1].role != "user":
        raise InvalidInput("chat_history must end with a message of the user.")
    return messages


def _chat_output(responses: ResponseBuilder, piece: TurnPiece) -> Output:
    match piece:
        case TextPiece():
            return responses.partial(piece.text)
        case TurnResult():
            return responses.final(piece)
        case InvokeFailure():
            return piece


def _task_outputs(
    responses: ResponseBuilder, pieces: Sequence[TurnPiece], is_last: bool
) -> Iterator[Output]:
    for piece in pieces:
        match piece:
            case TextPiece() if is_last:
                yield responses.partial(piece.text)
            case InvokeFailure():
                yield piece
