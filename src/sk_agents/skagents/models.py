"""What clients of the stateless API receive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from sk_agents.engine.engine import Engine
from sk_agents.http.caller import Caller
from sk_agents.ska_types import IntermediateTaskResponse as IntermediateTaskResponse
from sk_agents.ska_types import InvokeResponse as InvokeResponse
from sk_agents.ska_types import PartialResponse as PartialResponse


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
