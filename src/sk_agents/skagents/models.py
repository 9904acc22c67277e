"""What clients of the stateless API receive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from sk_agents.engine.engine import Engine
from sk_agents.http.caller import Caller
from sk_agents.ska_types import ExtraData, TokenUsage

T = TypeVar("T")


class InvokeResponse(BaseModel, Generic[T]):
    """An answer: its text, and the same as the configured type if there is one."""

    session_id: str
    source: str
    request_id: str
    token_usage: TokenUsage
    extra_data: ExtraData | None = None
    output_raw: str | None = None
    output_pydantic: T | None = None


class IntermediateTaskResponse(BaseModel):
    """The answer of a task that others follow; `task_no` counts from 1."""

    task_no: int
    task_name: str
    response: InvokeResponse[None]


class PartialResponse(BaseModel):
    """A piece of the answer as it appears."""

    session_id: str
    source: str
    request_id: str
    output_partial: str


class ErrorEvent(BaseModel):
    """Why a stream ends without an answer."""

    error: str
    code: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class InvokeFailure:
    """There is no answer; `message` may be shown, `status` is what it means over HTTP.

    `run_id` is the run that failed, as the engine's log names it.
    """

    code: str
    message: str
    status: int = 500
    run_id: str | None = None
    retry_after: int = 1


Output = (
    PartialResponse | IntermediateTaskResponse | InvokeResponse[BaseModel | None] | InvokeFailure
)
"""The last output of a stream is an `InvokeResponse` or an `InvokeFailure`."""

Outputs = AsyncGenerator[Sequence[Output], None]
"""At each step the outputs that arrived together."""


class Handler(Protocol):
    """Answers requests for one agent file."""

    def invoke_stream(self, engine: Engine, inputs: BaseModel, caller: Caller) -> Outputs:
        """The answer as it appears. Closing it stops the work.

        Raises:
            InvalidInput: at once, the input fits its type, but there is no way to answer it;
                while it is read, it does not fit a task's instructions.
            TealError: while it is read, the engine does not take it on.
        """
        ...
