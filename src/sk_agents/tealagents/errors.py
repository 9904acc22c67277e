"""Errors as FastAPI's clients know them: what is wrong is in `detail`, whatever else beside it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from sk_agents.exceptions import TealError
from sk_agents.http.errors import DEFAULT_RETRY_AFTER, status_of
from sk_agents.http.ids import correlation_id_of
from sk_agents.tealagents.models import RequestFailure

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

# Attributes of an error that are for the client.
SHOWN = ("decisions", "pause", "status")
TIMEOUTS = frozenset({"llm_timeout", "run_timeout"})
MODEL = "llm_"


def guarded(endpoint: Endpoint) -> Endpoint:
    """Answer what the endpoint refuses, or cannot do."""

    async def answer(request: Request) -> ASGIApp:
        try:
            return await endpoint(request)
        except TealError as error:
            return _refusal(request, error)
        except RequestValidationError as error:
            found = [{key: one[key] for key in ("loc", "msg", "type")} for one in error.errors()]
            return _response(request, 422, "invalid_input", found)

    return answer


def failure_response(request: Request, failure: RequestFailure) -> JSONResponse:
    """A request that was taken on and could not be brought to an answer."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    if failure.code in TIMEOUTS:
        status = HTTPStatus.GATEWAY_TIMEOUT
    elif failure.code.startswith(MODEL):
        status = HTTPStatus.BAD_GATEWAY
    ids = failure.model_dump(include={"session_id", "task_id", "request_id"})
    members = {**ids, "status": "Failed", "run_correlation_id": failure.correlation_id}
    return _response(request, status, failure.code, failure.error, members=members)


def _refusal(request: Request, error: TealError) -> JSONResponse:
    status, detail = status_of(error), str(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # The message may name hosts and files; the class's own sentence does not.
        detail = str(type(error)())
        logger.error(
            "request failed",
            extra={
                "correlation_id": correlation_id_of(request.scope),
                "path": request.url.path,
                "error": type(error).__name__,
                "reason": str(error),
            },
        )
    members = {name: error.attributes[name] for name in SHOWN if name in error.attributes}
    if "ids" in error.attributes:
        members |= error.attributes["ids"].fields()
    code = error.attributes.get("code", error.code)
    return _response(
        request, status, code, detail, members=members, headers=_headers(status, error)
    )


def _headers(status: HTTPStatus, error: TealError) -> dict[str, str]:
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return {"WWW-Authenticate": "Bearer"}
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.SERVICE_UNAVAILABLE:
            return {"Retry-After": str(error.attributes.get("retry_after", DEFAULT_RETRY_AFTER))}
        case HTTPStatus.REQUEST_TIMEOUT:
            # The rest of the body must not be taken for the next request's.
            return {"Connection": "close"}
    return {}


def _response(
    request: Request,
    status: int,
    code: str,
    detail: Any,
    *,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    correlation_id = correlation_id_of(request.scope)
    body = {"detail": detail, "code": code, "correlation_id": correlation_id, **(members or {})}
    return JSONResponse(body, status, dict(headers or {}))
