"""Outputs on their way to the client: as server-sent events, as JSON, and the errors among them.

Errors have the shape that clients of the public project know: `detail` first.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope

from sk_agents.exceptions import TealError
from sk_agents.http.errors import DEFAULT_RETRY_AFTER, status_of
from sk_agents.http.ids import CORRELATION_HEADER, correlation_id_of
from sk_agents.http.sse import frame
from sk_agents.skagents.models import (
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
UNAVAILABLE = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}


def failure_of(error: TealError) -> InvokeFailure:
    status = status_of(error)
    # A message about the server itself may name hosts and files; the class's own does not.
    inside = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return InvokeFailure(error.code, str(type(error)() if inside else error), status)


async def with_failure(outputs: Outputs, scope: Scope) -> AsyncGenerator[Sequence[Output], None]:
    """The outputs; any failure becomes the last of them."""
    try:
        async with aclosing(outputs) as batches:
            async for batch in batches:
                for output in batch:
                    if isinstance(output, InvokeFailure):
                        _log(scope, output)
                yield batch
    except TealError as error:
        found = failure_of(error)
        _log(scope, found)
        yield [found]
    except Exception:
        # The operator's types and templates run in here, and a stream must say how it ended.
        logger.exception("invoke failed", extra={"correlation_id": correlation_id_of(scope)})
        yield [InvokeFailure("internal", str(TealError()))]


def error_response(scope: Scope, failure: InvokeFailure, detail: Any = None) -> JSONResponse:
    """`detail` in place of the message, where there is more to say than a sentence."""
    correlation_id = correlation_id_of(scope)
    headers = {CORRELATION_HEADER: correlation_id}
    if failure.status in UNAVAILABLE:
        headers["Retry-After"] = str(DEFAULT_RETRY_AFTER)
    if failure.status == HTTPStatus.REQUEST_TIMEOUT:
        # The rest of the body must not be taken for the next request's.
        headers["Connection"] = "close"
    if failure.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = {
        "detail": failure.message if detail is None else detail,
        "code": failure.code,
        "correlation_id": correlation_id,
    }
    return JSONResponse(body, failure.status, headers)


def refusal(scope: Scope, error: TealError | RequestValidationError) -> JSONResponse:
    """What is said to a request that is not taken on at all."""
    if isinstance(error, TealError):
        found = failure_of(error)
        _log(scope, found)
        return error_response(scope, found)
    # Pydantic's `input` and `ctx` would echo what was sent.
    errors = [{key: entry[key] for key in ("type", "loc", "msg")} for entry in error.errors()]
    return error_response(scope, InvokeFailure("invalid_input", "", 422), errors)


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
            error = {
                "error": output.message,
                "code": output.code,
                "correlation_id": correlation_id,
            }
            return frame("error", json.dumps(error).encode())


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
