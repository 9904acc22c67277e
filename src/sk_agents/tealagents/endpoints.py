"""From HTTP to the handler and back; errors as FastAPI's clients know them, with `detail` first.

Bodies are read as bytes and checked once; nothing is parsed twice on the way to the model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.engine.models import RunStatus
from sk_agents.engine.ports import Quota
from sk_agents.exceptions import InvalidInput, LimitExceeded, TealError
from sk_agents.http.body import body_of
from sk_agents.http.caller import Caller, current_caller
from sk_agents.http.errors import DEFAULT_RETRY_AFTER, status_of
from sk_agents.http.health import Health
from sk_agents.http.ids import canonical_uuid, correlation_id_of, idempotency_key
from sk_agents.http.limits import HeldStream, limits_of, quota_of
from sk_agents.http.sse import EventStream, Frames, LiveWriter
from sk_agents.tealagents import handle
from sk_agents.tealagents.models import RequestFailure, ResumeRequest, UserMessage
from sk_agents.tealagents.v1alpha1.agent import AcceptedRequest, Progress
from sk_agents.tealagents.v1alpha1.config import SURFACE, ServedTealAgent
from sk_agents.tealagents.v1alpha1.handler import TealAgentsV1Alpha1Handler
from sk_agents.tealagents.v1alpha1.render import RequestRenderer

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

# Attributes of an error that are for the client.
SHOWN = ("decisions", "pause", "status")
TIMEOUTS = frozenset({"llm_timeout", "run_timeout"})
MODEL = "llm_"

MESSAGE: TypeAdapter[UserMessage] = TypeAdapter(UserMessage)
RESUME: TypeAdapter[ResumeRequest] = TypeAdapter(ResumeRequest)


class JsonResponse:
    """An ASGI response with nothing to it but its body."""

    def __init__(self, content: Any, status: int = 200) -> None:
        self._body = orjson.dumps(content, option=orjson.OPT_UTC_Z)
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = str(len(self._body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class _StreamOutlet:
    """Writes the text of an answer into its stream as it appears."""

    def __init__(self, renderer: RequestRenderer) -> None:
        self._renderer = renderer
        self.live = LiveWriter()

    @property
    def is_open(self) -> bool:
        return self.live.is_open

    def write(self, text: str) -> None:
        self.live.write(b"".join(self._renderer.frames([text])))


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One agent's endpoints. The engine is the running application's."""

    version: ClassVar[str] = "v1alpha1"

    served: ServedTealAgent
    health: Health

    async def invoke(self, request: Request) -> ASGIApp:
        caller = await current_caller(request)
        message = await self._message(request)
        handler = self._handler(request)
        key = idempotency_key(request.scope)
        quota = self._quota(request)
        accepted = await handler.begin(
            caller, message, key=key, on_disconnect="continue", quota=quota
        )
        return self._reply(request, handler, accepted, await handler.outcome(accepted))

    async def invoke_stream(self, request: Request) -> ASGIApp:
        caller = await current_caller(request)
        message = await self._message(request)
        handler = self._handler(request)
        key, quota = idempotency_key(request.scope), self._quota(request)
        return await self._streamed(
            request, handler, caller, handler.begin(caller, message, key=key, quota=quota)
        )

    async def resume(self, request: Request) -> ASGIApp:
        handler, _, decided = await self._resumed(request)
        accepted = await decided
        return self._reply(request, handler, accepted, await handler.outcome(accepted))

    async def resume_stream(self, request: Request) -> ASGIApp:
        handler, caller, decided = await self._resumed(request)
        return await self._streamed(request, handler, caller, decided)

    async def task(self, request: Request) -> ASGIApp:
        caller, task_id = await current_caller(request), _id(request, "task_id")
        task = await self._handler(request).task(caller, task_id)
        return JsonResponse(task.model_dump(mode="json"))

    async def delete_task(self, request: Request) -> ASGIApp:
        caller, task_id = await current_caller(request), _id(request, "task_id")
        await self._handler(request).delete(caller, task_id)
        limits_of(request).quotas[SURFACE].release_chat(caller.user_id)
        return Response(status_code=204)

    async def session(self, request: Request) -> ASGIApp:
        caller, session_id = await current_caller(request), _id(request, "session_id")
        cursor = request.query_params.get("cursor")
        session = await self._handler(request).session(caller, session_id, cursor)
        return JsonResponse(session.model_dump(mode="json"))

    async def request(self, request: Request) -> ASGIApp:
        caller, request_id = await current_caller(request), _id(request, "request_id")
        state = await self._handler(request).request(
            caller, request_id, _task_id(request), _root(request)
        )
        return JsonResponse(state)

    async def cancel(self, request: Request) -> ASGIApp:
        caller, request_id = await current_caller(request), _id(request, "request_id")
        handler = self._handler(request)
        accepted, progress = await handler.cancel(caller, request_id, _task_id(request))
        return self._reply(request, handler, accepted, progress)

    async def ready(self, request: Request) -> ASGIApp:
        report = await self.health.ready()
        return JsonResponse(report, 200 if report["status"] == "healthy" else 503)

    async def live(self, request: Request) -> ASGIApp:
        return JsonResponse(self.health.live())

    def _handler(self, request: Request) -> TealAgentsV1Alpha1Handler:
        return handle(self.version, request.app.state.engines.tasks, self.served)

    async def _message(self, request: Request) -> UserMessage:
        return await body_of(request, MESSAGE, images=True)

    def _quota(self, request: Request) -> Quota:
        return quota_of(request, request.app.state.engines.tasks, SURFACE)

    async def _resumed(
        self, request: Request
    ) -> tuple[TealAgentsV1Alpha1Handler, Caller, Coroutine[Any, Any, AcceptedRequest]]:
        """The handler, the caller, and the decision, which is still to be awaited."""
        caller, request_id = await current_caller(request), _id(request, "request_id")
        body = await body_of(request, RESUME, optional=True)
        resume, task_id = _resume(request, body), _task_id(request)
        key, handler = idempotency_key(request.scope), self._handler(request)
        return handler, caller, handler.decide(caller, request_id, resume, key=key, task_id=task_id)

    async def _streamed(
        self,
        request: Request,
        handler: TealAgentsV1Alpha1Handler,
        caller: Caller,
        starting: Coroutine[Any, Any, AcceptedRequest],
    ) -> ASGIApp:
        """Its stream, in a slot of the caller's that is taken before anything is started."""
        slots = limits_of(request).slots
        try:
            slot = slots.held(caller.user_id)
        except LimitExceeded:
            starting.close()
            raise
        try:
            stream = self._stream(request, handler, await starting)
        except BaseException:
            slot.release()
            raise
        return HeldStream(slots, caller.user_id, stream, slot)

    def _reply(
        self,
        request: Request,
        handler: TealAgentsV1Alpha1Handler,
        accepted: AcceptedRequest,
        progress: Progress,
    ) -> ASGIApp:
        renderer = handler.renderer(accepted.ids, _root(request))
        if progress.ended is RunStatus.FAILED or progress.is_rejected:
            content = renderer.outcome(progress)
            if isinstance(content, RequestFailure):
                return failure_response(request, content)
            return JsonResponse(content.model_dump())
        return JsonResponse(renderer.state(progress))

    def _stream(
        self, request: Request, handler: TealAgentsV1Alpha1Handler, accepted: AcceptedRequest
    ) -> EventStream:
        renderer = handler.renderer(accepted.ids, _root(request))
        outlet = _StreamOutlet(renderer)

        async def frames() -> Frames:
            batches = handler.loop.follow(accepted, outlet)
            try:
                async for pieces in batches:
                    yield renderer.frames(pieces)
            except TealError as error:
                yield [renderer.error_frame(error, correlation_id_of(request.scope))]
            finally:
                await batches.aclose()

        return EventStream(
            frames(),
            idle_frame=renderer.keepalive(),
            keepalive=self.served.keepalive,
            live=outlet.live,
        )


def _id(request: Request, name: str) -> str:
    return canonical_uuid(request.path_params[name])


def _task_id(request: Request) -> str | None:
    given = request.query_params.get("task_id")
    return canonical_uuid(given) if given is not None else None


def _root(request: Request) -> str:
    """The prefix that a proxy in front of the server puts before its paths."""
    root: str = request.scope.get("root_path", "")
    return root


def _resume(request: Request, body: ResumeRequest) -> ResumeRequest:
    """The body together with the query: `?action=approve&pause=7`.

    Raises:
        InvalidInput: body and query differ, or the query is not valid.
    """
    query = request.query_params
    given: dict[str, Any] = {}
    if (action := query.get("action")) is not None and body.decisions is None:
        if action not in ("approve", "reject") or body.action not in (None, action):
            raise InvalidInput("The action is approve or reject, the same wherever it is given.")
        given["action"] = action
    elif action is not None:
        raise InvalidInput("Give either an action or decisions.")
    if (pause := query.get("pause")) is not None:
        if not (pause.isascii() and pause.isdecimal() and len(pause) < 16):
            raise InvalidInput("The pause is a number.")
        if body.pause not in (None, int(pause)):
            raise InvalidInput("The pause must be the same wherever it is given.")
        given["pause"] = int(pause)
    return body.model_copy(update=given) if given else body


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
