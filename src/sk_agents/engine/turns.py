"""What the engine exchanges with models and tools: prompts, pieces of replies, calls' results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from sk_agents.engine.models import Attachment, Effect, Message, Usage
from sk_agents.engine.values import dataclass


def printable(text: str) -> str:
    """What can be stored and sent: halves of a surrogate pair that found each other are joined,
    the others become the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `parameters` is a JSON schema of an object.

    A call of a `question` is put to the user instead of being asked about: its arguments `choices`
    and `schema`, if it has them, say what may be answered, and it runs once it has its answer.
    One that `requires_authorization` is not run without the caller's header: they are asked for it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect = Effect.AT_MOST_ONCE
    definition_digest: str = ""
    timeout: float = 60.0
    question: bool = False
    requires_authorization: bool = False
    title: str = ""  # what people read instead of the name, if its author says it


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """How much one reply may hold; it is read no further than to the first limit it passes.

    `text_bytes` count text and reasoning together, `argument_bytes` those of all calls.
    """

    calls: int = 64
    text_bytes: int = 1_048_576
    argument_bytes: int = 8_388_608


@dataclass(frozen=True, slots=True)
class Prompt:
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    response_schema: Mapping[str, Any] | None = None
    limits: ReplyLimits = ReplyLimits()
    tool_choice: str | None = None
    """`auto`, `none`, `required` or the name of the tool that must be called."""
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True, slots=True)
class PreviewTable:
    """What a call would do, as rows of texts under their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class PreviewPicture:
    """The same as a picture, a data URI."""

    uri: str


Preview = str | PreviewTable | PreviewPicture


@dataclass(frozen=True, slots=True)
class TextDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    content: str


@dataclass(frozen=True, slots=True)
class CallRequested:
    """One whole call, its arguments as the model spelt them: unparsed and not yet trusted."""

    provider_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """What the model wants to get back with the results of its calls, such as signed thoughts.

    Only the client that made it understands it; `data` is kept with the round as it is.
    """

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The last piece of every complete stream; a stream without it broke off.

    `model` is the one that answered, if the provider says: a name may stand for several.
    """

    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str | None = field(default=None, compare=False)


ModelPiece = TextDelta | ReasoningDelta | CallRequested | ReasoningState | TurnFinished


class ModelStream(Protocol):
    """A reply as it comes. Any asynchronous generator of pieces is one."""

    def __aiter__(self) -> AsyncIterator[Sequence[ModelPiece]]: ...

    def __anext__(self) -> Awaitable[Sequence[ModelPiece]]: ...

    def aclose(self) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class ToolChunk:
    """A piece of a running tool's output, for people who read along."""

    content: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's whole output, for the model. `content` says of each attachment what it is: a model
    that cannot see is shown nothing else of it."""

    content: str
    extra_data: Mapping[str, Any] | None = None
    usage: Usage | None = None
    attachments: tuple[Attachment, ...] = ()


class ToolPieces(Protocol):
    """What a running tool gives out. Any asynchronous generator of it is one."""

    def __aiter__(self) -> AsyncIterator[ToolChunk | ToolResult]: ...

    def __anext__(self) -> Awaitable[ToolChunk | ToolResult]: ...

    def aclose(self) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a running tool wants to know from the user."""

    text: str
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a running tool wants the agent's model to answer. `asker` says to people who wants it;
    the messages are texts alone."""

    asker: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """What the model answered; `model` is its name, if the provider says."""

    text: str
    finish_reason: str
    model: str | None


Ask = Callable[[Question], Awaitable[Any]]
Settle = Callable[[Usage], Awaitable[None]]
Reserve = Callable[[Usage], Awaitable[Settle]]
Complete = Callable[[Completion], Awaitable[Completed]]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves.

    `answer` is the user's, when the call is a question. `ask` puts one to the user while the tool
    goes on running, its time limit aside: the answer, or `ToolError` if there will be none; it is
    `None` where no person can be asked. `complete` does so with what the agent's model is to
    answer, which is asked once the user allows it. A tool that has a model of its own holds by
    `reserve` what that may use at most, and settles with what it has used; `ToolError`: the budget
    does not allow it.
    """

    thread_id: str
    run_id: str
    call_id: str
    user_id: str
    idempotency_key: str
    authorization: str | None = None
    answer: Any = None
    ask: Ask | None = None
    complete: Complete | None = None
    reserve: Reserve | None = None
