"""Why there is no answer, in the shape that clients of the public project know: `detail` first."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse
from starlette.types import Scope

from sk_agents.exceptions import TealError
from sk_agents.http.errors import DEFAULT_RETRY_AFTER, status_of
from sk_agents.http.ids import CORRELATION_HEADER, correlation_id_of
from sk_agents.skagents.models import Failure, Output, Outputs

logger = logging.getLogger(__name__)

UNAVAILABLE = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}


def failure_of(error: TealError) -> Failure:
    status = status_of(error)
    # A message about the server itself may name hosts and files; the class's own does not.
    inside = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Failure(error.code, str(type(error)() if inside else error), status)


async def told(outputs: Outputs, scope: Scope) -> AsyncGenerator[Sequence[Output], None]:
    """The outputs; a failure is the last of them, whatever it was."""
    try:
        async with aclosing(outputs) as batches:
            async for batch in batches:
                for output in batch:
                    if isinstance(output, Failure):
                        _log(scope, output)
                yield batch
    except TealError as error:
        found = failure_of(error)
        _log(scope, found)
        yield [found]
    except Exception:
        # The operator's types and templates run in here, and a stream must say how it ended.
        logger.exception("invoke failed", extra={"correlation_id": correlation_id_of(scope)})
        yield [Failure("internal", str(TealError()))]


def error_response(scope: Scope, failure: Failure, detail: Any = None) -> JSONResponse:
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
    return error_response(scope, Failure("invalid_input", "", 422), errors)


def _log(scope: Scope, failure: Failure) -> None:
    level = logging.WARNING if failure.status >= 500 else logging.INFO
    extra = {
        "correlation_id": correlation_id_of(scope),
        "code": failure.code,
        "run_id": failure.run_id,
    }
    logger.log(level, "request not answered", extra=extra)
