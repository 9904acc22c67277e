"""Outputs on their way to the client: a failure as the last of them, as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from sk_agents.http.errors import DEFAULT_RETRY_AFTER, problem_of
from sk_agents.http.ids import correlation_id_of
from sk_agents.http.sse import frame
from sk_agents.skagents.models import (
    ErrorEvent,
    IntermediateTaskResponse,
    InvokeFailure,
    InvokeResponse,
    Output,
    Outputs,
    PartialResponse,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

DISCONNECTS = {"http.disconnect", "websocket.disconnect"}


def failure_of(error: Exception, scope: Scope) -> InvokeFailure:
    problem = problem_of(error, scope)
    retry_after = int(problem.headers.get("Retry-After", DEFAULT_RETRY_AFTER))
    return InvokeFailure(problem.code, problem.detail, problem.status, retry_after=retry_after)


async def with_failure(outputs: Outputs, scope: Scope) -> AsyncGenerator[Sequence[Output], None]:
    """The outputs; any failure becomes the last of them."""
    try:
        async with aclosing(outputs) as batches:
            async for batch in batches:
                for output in batch:
                    if isinstance(output, InvokeFailure):
                        _log(scope, output)
                yield batch
    except Exception as error:
        # The operator's types and templates run in here, and a stream must say how it ended.
        yield [failure_of(error, scope)]


def _log(scope: Scope, failure: InvokeFailure) -> None:
    level = logging.WARNING if failure.status >= 500 else logging.INFO
    extra = {
        "correlation_id": correlation_id_of(scope),
        "code": failure.code,
        "run_id": failure.run_id,
    }
    logger.log(level, "request not answered", extra=extra)


async def frames(outputs: Outputs, scope: Scope) -> AsyncGenerator[Sequence[bytes], None]:
    """The outputs as server-sent events."""
    correlation_id = correlation_id_of(scope)
    async with aclosing(with_failure(outputs, scope)) as batches:
        async for batch in batches:
            yield [_frame(output, correlation_id) for output in batch]


def _frame(output: Output, correlation_id: str) -> bytes:
    match output:
        case PartialResponse():
            return frame("partial-response", output.model_dump_json().encode())
        case IntermediateTaskResponse():
            return frame("intermediate-task-response", output.model_dump_json().encode())
        case InvokeResponse():
            return frame("final-response", output.model_dump_json().encode())
        case InvokeFailure():
            event = ErrorEvent(
                error=output.message, code=output.code, correlation_id=correlation_id
            )
            return frame("error", event.model_dump_json().encode())


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns, or `None` if the client left first; then `work` was stopped."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await _stopped(leaving)
        await _stopped(working)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] not in DISCONNECTS:
        pass


async def _stopped(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        # Otherwise asyncio logs that an error was never looked at.
        task.exception()
