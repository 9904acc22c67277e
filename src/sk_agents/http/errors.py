"""From exceptions to HTTP: the one status table and the one error body.

Bodies are `application/problem+json` (RFC 9457) with our `code` and the request's id. What a
failure of the server was about goes to the log, never into the body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import Scope

from sk_agents import exceptions
from sk_agents.exceptions import InsufficientScope, TealError, Unauthenticated
from sk_agents.http.correlation import HEADER, correlation_id_of
from sk_agents.http.response_headers import missing_defaults

logger = logging.getLogger(__name__)

# The nearest class of an error's ancestry decides.
STATUS_OF: Mapping[type[TealError], HTTPStatus] = {
    TealError: HTTPStatus.INTERNAL_SERVER_ERROR,
    exceptions.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    exceptions.AuthorizerUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.Forbidden: HTTPStatus.FORBIDDEN,
    exceptions.NotFound: HTTPStatus.NOT_FOUND,
    exceptions.Conflict: HTTPStatus.CONFLICT,
    exceptions.InvalidInput: HTTPStatus(422),
    exceptions.MalformedRequest: HTTPStatus.BAD_REQUEST,
    exceptions.CursorExpired: HTTPStatus.GONE,
    exceptions.UnsupportedMedia: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    exceptions.TooLarge: HTTPStatus(413),
    exceptions.SlowRequest: HTTPStatus.REQUEST_TIMEOUT,
    exceptions.StillRunning: HTTPStatus.GATEWAY_TIMEOUT,
    exceptions.ShuttingDown: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.LimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    exceptions.StoreFull: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
# All other errors are our own mistakes.
EXPECTED = (TealError, RequestValidationError, HTTPException)
DEFAULT_RETRY_AFTER = 1
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


def status_of(error: TealError) -> HTTPStatus:
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def problem(
    request: Request,
    status: int,
    *,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> ProblemResponse:
    """An error body; `members` are further fields of it."""
    correlation_id = correlation_id_of(request.scope)
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "correlation_id": correlation_id,
        **members,
    }
    answer = ProblemResponse(body, status, {HEADER: correlation_id, **(headers or {})})
    # The answer to a mistake of ours is sent past every layer that would add them.
    answer.raw_headers.extend(missing_defaults(answer.raw_headers))
    return answer


def install_error_handlers(app: FastAPI) -> None:
    for kind in EXPECTED:
        app.add_exception_handler(kind, handle_error)
    app.add_exception_handler(Exception, handle_unknown_error)


async def handle_error(request: Request, error: Exception) -> ProblemResponse:
    """The answer to a request that raised one of the errors that are `EXPECTED`."""
    match error:
        case TealError():
            return _teal_problem(request, error)
        case RequestValidationError():
            return _validation_problem(request, error)
        case HTTPException():
            return _http_problem(request, error)
        case _:
            raise error


def _teal_problem(request: Request, error: TealError) -> ProblemResponse:
    status = status_of(error)
    detail = str(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # The message may name hosts and files; the class's own sentence does not.
        detail = str(type(error)())
        _log(request, error, str(error))
    return problem(request, status, code=error.code, detail=detail, headers=_headers(status, error))


def _headers(status: HTTPStatus, error: TealError) -> dict[str, str]:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        challenge = _challenge(error)
        return {"WWW-Authenticate": challenge} if challenge else {}
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        return {"Retry-After": str(error.attributes.get("retry_after", DEFAULT_RETRY_AFTER))}
    if status == HTTPStatus.REQUEST_TIMEOUT:
        # The rest of the body must not be taken for the next request's.
        return {"Connection": "close"}
    return {}


def _challenge(error: TealError) -> str | None:
    """What a client can do about it (RFC 6750, 3)."""
    if isinstance(error, InsufficientScope):
        scope = f', scope="{error.scope}"' if error.attributes.get("scope") else ""
        return f'Bearer error="insufficient_scope", error_description="{_quoted(error)}"{scope}'
    if isinstance(error, Unauthenticated):
        if str(error) == str(Unauthenticated()):
            return "Bearer"
        return f'Bearer error="invalid_token", error_description="{_quoted(error)}"'
    return None


def _quoted(error: TealError) -> str:
    return str(error).encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")


def _validation_problem(request: Request, error: RequestValidationError) -> ProblemResponse:
    # Pydantic's `input` and `ctx` would echo what was sent.
    errors = [{key: entry[key] for key in ("loc", "msg", "type")} for entry in error.errors()]
    return problem(
        request, 422, code="invalid_input", detail="The request is not valid.", errors=errors
    )


def _http_problem(request: Request, error: HTTPException) -> ProblemResponse:
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "_").replace("-", "_")
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed_methods(request.scope))
    return problem(request, status, code=code, detail=str(error.detail), headers=headers)


def _allowed_methods(scope: Scope) -> list[str]:
    """Of all routes at this path: the framework names those of the first one alone."""
    asked = {key: scope[key] for key in ("type", "path", "root_path", "headers")}
    routes = scope["app"].router.routes
    return [
        method
        for method in METHODS
        if any(route.matches({**asked, "method": method})[0] is Match.FULL for route in routes)
    ]


async def handle_unknown_error(request: Request, error: Exception) -> ProblemResponse:
    _log(request, error, None)
    return problem(request, 500, code="internal", detail=str(TealError()))


def _log(request: Request, error: Exception, reason: str | None) -> None:
    logger.error(
        "request failed",
        extra={
            "correlation_id": correlation_id_of(request.scope),
            "path": request.url.path,
            "error": type(error).__name__,
            "reason": reason,
        },
    )
