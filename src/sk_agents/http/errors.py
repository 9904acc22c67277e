"""From exceptions to HTTP: the one table of statuses and codes, and the body that most clients get.

`problem_of` turns any exception into a `Problem`: status, code, detail and headers. A surface with
error bodies of its own renders the same `Problem` in its own way. What a failure of the server was
about goes to the log, never into the body.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import time
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Scope

from sk_agents import exceptions
from sk_agents.exceptions import (
    InsufficientScope,
    NotOwner,
    TealError,
    Unauthenticated,
    UpstreamFailed,
)
from sk_agents.http.ids import correlation_id_of

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
    exceptions.UpstreamFailed: HTTPStatus.BAD_GATEWAY,
    exceptions.ShuttingDown: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.LimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    exceptions.StoreFull: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
DEFAULT_RETRY_AFTER = 1
HOUR_SECONDS = 3600
RUN_TIMEOUTS = frozenset({"llm_timeout", "run_timeout"})
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
# A long list of wrong items would make a longer list of errors.
MAX_ERRORS = 20
# A key is named in an error only if it looks like one: nothing else of the input is repeated.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Problem(Exception):
    """What an error is for the client. An endpoint that knows its answer may raise one.

    `members` are further fields of the body, `error` is what it was made of.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
        error: Exception | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = dict(members or {})
        self.error = error


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """How a surface spells problems; `schema` describes its bodies under the name `name`."""

    render: Callable[[Scope, Problem], ASGIApp]
    media_type: str
    name: str
    schema: Mapping[str, Any]


def status_of(error: TealError) -> HTTPStatus:
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def problem_json(scope: Scope, problem: Problem) -> Response:
    """The problem as `application/problem+json` (RFC 9457), with our `code` and an id."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "correlation_id": correlation_id_of(scope),
        **problem.members,
    }
    return Response(
        orjson.dumps(body),
        problem.status,
        headers=problem.headers,
        media_type="application/problem+json",
    )


PROBLEM_JSON = ErrorStyle(
    problem_json,
    "application/problem+json",
    "Problem",
    {
        "type": "object",
        "description": "An error (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code", "correlation_id"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string", "description": "What went wrong, for programs."},
            "correlation_id": {"type": "string", "description": "Finds the request in the logs."},
            "errors": {
                "type": "array",
                "description": "What is not valid, and where.",
                "items": {
                    "type": "object",
                    "required": ["loc", "msg", "type"],
                    "properties": {
                        "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                        "msg": {"type": "string"},
                        "type": {"type": "string"},
                    },
                },
            },
        },
    },
)


def detail_json(scope: Scope, problem: Problem) -> Response:
    """The problem as FastAPI's clients know errors: `detail` first, here with our `code`."""
    members = dict(problem.members)
    body = {
        "detail": members.pop("errors", problem.detail),
        "code": problem.code,
        "correlation_id": correlation_id_of(scope),
        **members,
    }
    return Response(
        orjson.dumps(body), problem.status, headers=problem.headers, media_type="application/json"
    )


DETAIL_JSON = ErrorStyle(
    detail_json,
    "application/json",
    "Error",
    {
        "type": "object",
        "description": "Why there is no answer.",
        "required": ["detail", "code", "correlation_id"],
        "properties": {
            "detail": {
                "description": "What is wrong: a sentence, or a list of wrong fields.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
            },
            "code": {"type": "string"},
            "correlation_id": {"type": "string"},
        },
    },
)


def problem_of(error: Exception, scope: Scope) -> Problem:
    """The client's view of any error that a request raised; failures of the server are logged."""
    match error:
        case Problem():
            return error
        case TealError():
            return _teal_problem(error, scope)
        case RequestValidationError():
            return Problem(
                422,
                "invalid_input",
                "The request is not valid.",
                members={"errors": validation_errors(error)},
                error=error,
            )
        case HTTPException():
            return _http_problem(error, scope)
        case _:
            _log(scope, error, None, exc_info=error)
            return Problem(500, "internal", str(TealError()), error=error)


def validation_errors(error: RequestValidationError) -> list[dict[str, Any]]:
    """What is not valid, and where. Pydantic's `input` and `ctx` would repeat what was sent."""
    return [
        {"loc": [*map(_shown, entry["loc"])], "msg": entry["msg"], "type": entry["type"]}
        for entry in error.errors()[:MAX_ERRORS]
    ]


def _shown(part: int | str) -> int | str:
    return part if isinstance(part, int) or _PLAIN_KEY.fullmatch(part) else "?"


def _teal_problem(error: TealError, scope: Scope) -> Problem:
    status = status_of(error)
    detail = str(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, UpstreamFailed):
        # The message may name hosts and files; the class's own sentence does not.
        detail = str(type(error)())
        _log(scope, error, str(error))
    return Problem(
        status,
        error.code,
        detail,
        headers=_headers(status, error),
        members=error.attributes.get("members"),
        error=error,
    )


def run_failure_status(code: str) -> HTTPStatus:
    """What a run that failed with this code means over HTTP."""
    if code in RUN_TIMEOUTS:
        return HTTPStatus.GATEWAY_TIMEOUT
    if code == exceptions.BudgetExceeded.code:
        return HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.BAD_GATEWAY if code.startswith("llm_") else HTTPStatus.INTERNAL_SERVER_ERROR


def run_failure_retry(code: str) -> int:
    """After how many seconds it may be otherwise. Which budget it was is not known any more; none
    counts from nothing before the next full hour (UTC)."""
    if code == exceptions.BudgetExceeded.code:
        return HOUR_SECONDS - int(time()) % HOUR_SECONDS
    return DEFAULT_RETRY_AFTER


def run_failure_headers(code: str) -> dict[str, str]:
    """What goes with `run_failure_status`."""
    is_limit = run_failure_status(code) == HTTPStatus.TOO_MANY_REQUESTS
    return {"Retry-After": str(run_failure_retry(code))} if is_limit else {}


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
        if isinstance(error, NotOwner) or str(error) == str(Unauthenticated()):
            return "Bearer"
        return f'Bearer error="invalid_token", error_description="{_quoted(error)}"'
    return None


def _quoted(error: TealError) -> str:
    return str(error).encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")


def _http_problem(error: HTTPException, scope: Scope) -> Problem:
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "_").replace("-", "_")
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed_methods(scope))
    return Problem(status, code, str(error.detail), headers=headers, error=error)


def _allowed_methods(scope: Scope) -> list[str]:
    """Of all routes at this path: the framework names those of the first one alone."""
    asked = {key: scope[key] for key in ("type", "path", "root_path", "headers")}
    routes = scope["app"].router.routes
    return [
        method
        for method in METHODS
        if any(route.matches({**asked, "method": method})[0] is Match.FULL for route in routes)
    ]


def _log(scope: Scope, error: Exception, reason: str | None, **options: Any) -> None:
    logger.error(
        "request failed",
        extra={
            "correlation_id": correlation_id_of(scope),
            "path": scope["path"],
            "error": type(error).__name__,
            "reason": reason,
        },
        **options,
    )
