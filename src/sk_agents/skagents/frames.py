"""Outputs as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.types import Scope

from sk_agents.http.ids import correlation_id_of
from sk_agents.http.sse import frame
from sk_agents.skagents.errors import told
from sk_agents.skagents.models import (
    Failure,
    IntermediateTaskResponse,
    InvokeResponse,
    Output,
    Outputs,
    PartialResponse,
)


async def frames(outputs: Outputs, scope: Scope) -> AsyncGenerator[Sequence[bytes], None]:
    correlation_id = correlation_id_of(scope)
    async with aclosing(told(outputs, scope)) as batches:
        async for batch in batches:
            yield [rendered(output, correlation_id) for output in batch]


def rendered(output: Output, correlation_id: str) -> bytes:
    match output:
        case PartialResponse():
            return frame("partial-response", output.model_dump_json().encode())
        case IntermediateTaskResponse():
            return frame("intermediate-task-response", output.model_dump_json().encode())
        case InvokeResponse():
            return frame("final-response", output.model_dump_json().encode())
        case Failure():
            error = {
                "error": output.message,
                "code": output.code,
                "correlation_id": correlation_id,
            }
            return frame("error", json.dumps(error).encode())
