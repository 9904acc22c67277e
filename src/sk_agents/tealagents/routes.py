"""One agent's operations: from HTTP to the handler and back.

Asking and reading streams run all the time, and messages may hold images: plain endpoints that
read bytes once. The others are ordinary, typed endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import Body, Depends, Header, Path, Query
from pydantic import AfterValidator, TypeAdapter
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.engine.commands import OnDisconnect
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import InvalidInput, TealError
from sk_agents.http.answers import send_json
from sk_agents.http.body import body_of
from sk_agents.http.caller import DECIDERS, RequestCaller, caller_of
from sk_agents.http.errors import DETAIL_JSON, Problem, run_failure_headers, run_failure_status
from sk_agents.http.health import Health, agent_health_operations
from sk_agents.http.ids import MAX_KEY_LENGTH, canonical_uuid, correlation_id_of, idempotency_key
from sk_agents.http.limits import HeldStream, limits_of, quota_of
from sk_agents.http.operations import Events, Operation, OperationRoute, openapi_document
from sk_agents.http.page import reference_operations
from sk_agents.http.sse import EventStream, Frames, LiveWriter
from sk_agents.tealagents import handle
from sk_agents.tealagents.models import (
    UUID_PATTERN,
    HitlResponse,
    RejectedToolResponse,
    RequestFailure,
    RequestIds,
    ResumeRequest,
    Session,
    StateIds,
    StateResponse,
    Task,
    TealAgentsPartialResponse,
    TealAgentsResponse,
    UserMessage,
)
from sk_agents.tealagents.models import Request as RequestState
from sk_agents.tealagents.v1alpha1.agent import AcceptedRequest, Progress
from sk_agents.tealagents.v1alpha1.config import SURFACE, ServedTealAgent
from sk_agents.tealagents.v1alpha1.handler import TealAgentsV1Alpha1Handler
from sk_agents.tealagents.v1alpha1.render import RequestRenderer

VERSION = "v1alpha1"
_MESSAGE: TypeAdapter[UserMessage] = TypeAdapter(UserMessage)
_ASKING = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504)
_READING = (401, 404, 422, 429, 500, 503)


def _optional_uuid(text: str | None) -> str | None:
    return canonical_uuid(text) if text is not None else None


Optional = str | SkipJsonSchema[None]
Uuid = Annotated[
    str, AfterValidator(canonical_uuid), Path(json_schema_extra={"pattern": UUID_PATTERN})
]
TaskQuery = Annotated[
    Optional,
    AfterValidator(_optional_uuid),
    Query(
        alias="task_id",
        description="The request's task; only stores that cannot find a request alone need it.",
    ),
]


async def _key_parameter(
    request: Request,
    key: Annotated[
        Optional,
        Header(
            alias="Idempotency-Key",
            description="A request sent again with its key is not done again.",
            json_schema_extra={"minLength": 1, "maxLength": MAX_KEY_LENGTH},
        ),
    ] = None,
) -> str | None:
    return idempotency_key(request.scope)


async def _resume(
    body: Annotated[ResumeRequest, Body(default_factory=ResumeRequest)],
    action: Annotated[Optional, Query(description="approve or reject.")] = None,
    pause: Annotated[Optional, Query(description="Which pause is meant.")] = None,
) -> ResumeRequest:
    """The body together with the query: `?action=approve&pause=7`.

    Raises:
        InvalidInput: body and query differ, or the query is not valid.
    """
    given: dict[str, Any] = {}
    if action is not None:
        if body.decisions is not None:
            raise InvalidInput("Give either an action or decisions.")
        if action not in ("approve", "reject") or body.action not in (None, action):
            raise InvalidInput("The action is approve or reject, the same wherever it is given.")
        given["action"] = action
    if pause is not None:
        if not (pause.isascii() and pause.isdecimal() and len(pause) < 16):
            raise InvalidInput("The pause is a number.")
        if body.pause not in (None, int(pause)):
            raise InvalidInput("The pause must be the same wherever it is given.")
        given["pause"] = int(pause)
    return body.model_copy(update=given) if given else body


Key = Annotated[str | None, Depends(_key_parameter)]
Resume = Annotated[ResumeRequest, Depends(_resume)]


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


class _Endpoint:
    """What the endpoints of one agent share. The engine is the running application's."""

    def __init__(self, served: ServedTealAgent) -> None:
        self.served = served
        self._made: TealAgentsV1Alpha1Handler | None = None

    def _handler(self, scope: Scope) -> TealAgentsV1Alpha1Handler:
        """One for all requests, until the application is started again with another engine."""
        handler, engine = self._made, _engine(scope)
        if handler is None or handler.engine is not engine:
            handler = self._made = handle(VERSION, engine, self.served)
        return handler

    def _stream(
        self, scope: Scope, handler: TealAgentsV1Alpha1Handler, accepted: AcceptedRequest
    ) -> EventStream:
        renderer = handler.renderer(accepted.ids, _root(scope))
        outlet = _StreamOutlet(renderer)

        async def frames() -> Frames:
            batches = handler.loop.follow(accepted, outlet)
            try:
                async for pieces in batches:
                    yield renderer.frames(pieces)
            except TealError as error:
                yield [renderer.error_frame(error, correlation_id_of(scope))]
            finally:
                await batches.aclose()

        return EventStream(
            frames(),
            idle_frame=renderer.keepalive(),
            keepalive=self.served.keepalive,
            live=outlet.live,
        )


class InvokeTask(_Endpoint):
    """Ask, and wait for the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler(scope)
        accepted = await _begin(handler, Request(scope, receive), "continue")
        body = _reply_body(scope, handler, accepted.ids, await handler.outcome(accepted))
        await send_json(send, body)


class InvokeTaskStream(_Endpoint):
    """Ask, and read the answer as it appears."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, handler = Request(scope, receive), self._handler(scope)
        # Before anything is started: an answer that cannot be sent must not be given either.
        with limits_of(request).slots.held(caller_of(scope).user_id):
            stream = self._stream(scope, handler, await _begin(handler, request))
            await stream(scope, receive, send)


class Endpoints(_Endpoint):
    async def resume(
        self,
        request: Request,
        caller: RequestCaller,
        request_id: Uuid,
        resume: Resume,
        key: Key,
        task_id: TaskQuery = None,
    ) -> Response:
        """Decide what a paused request waits for, and wait for the answer."""
        handler = self._handler(request.scope)
        accepted = await handler.decide(caller, request_id, resume, key=key, task_id=task_id)
        if accepted.user_id != caller.user_id:
            return _json(await handler.review(caller, accepted, _root(request.scope)))
        return _reply(request.scope, handler, accepted.ids, await handler.outcome(accepted))

    async def resume_stream(
        self,
        request: Request,
        caller: RequestCaller,
        request_id: Uuid,
        resume: Resume,
        key: Key,
        task_id: TaskQuery = None,
    ) -> Response:
        """Decide what a paused request waits for, and read the answer as it appears."""
        handler, slots = self._handler(request.scope), limits_of(request).slots
        slot = slots.held(caller.user_id)
        try:
            accepted = await handler.decide(caller, request_id, resume, key=key, task_id=task_id)
            if accepted.user_id != caller.user_id:
                # The answer is not theirs to read.
                slot.release()
                return _json(await handler.review(caller, accepted, _root(request.scope)))
            stream = self._stream(request.scope, handler, accepted)
        except BaseException:
            slot.release()
            raise
        return HeldStream(slots, caller.user_id, stream, slot)

    async def cancel(
        self,
        request: Request,
        caller: RequestCaller,
        request_id: Uuid,
        task_id: TaskQuery = None,
    ) -> Response:
        """Stop a request. What was said so far is kept, and calls that wait are withdrawn."""
        handler = self._handler(request.scope)
        accepted, progress = await handler.cancel(caller, request_id, task_id)
        return _reply(request.scope, handler, accepted.ids, progress)

    async def request(
        self,
        request: Request,
        caller: RequestCaller,
        request_id: Uuid,
        task_id: TaskQuery = None,
    ) -> Response:
        """A request as it stands: running, waiting for a person, or ended with its answer."""
        handler, root = self._handler(request.scope), _root(request.scope)
        return _json(await handler.request(caller, request_id, task_id, root))

    async def request_stream(
        self,
        request: Request,
        caller: RequestCaller,
        request_id: Uuid,
        task_id: TaskQuery = None,
    ) -> Response:
        """Read a request that is under way, or was, from its beginning: for a client that lost its
        stream."""
        handler = self._handler(request.scope)
        accepted = await handler.attach(caller, request_id, task_id)
        return self._attached(request, handler, caller, accepted)

    async def task_stream(self, request: Request, caller: RequestCaller, task_id: Uuid) -> Response:
        """The same for the request that a task works on, or its last one."""
        handler = self._handler(request.scope)
        return self._attached(request, handler, caller, await handler.attach_task(caller, task_id))

    def _attached(
        self,
        request: Request,
        handler: TealAgentsV1Alpha1Handler,
        caller: RequestCaller,
        accepted: AcceptedRequest,
    ) -> Response:
        stream = self._stream(request.scope, handler, accepted)
        return HeldStream(limits_of(request).slots, caller.user_id, stream)

    async def task(self, request: Request, caller: RequestCaller, task_id: Uuid) -> Task:
        """A task with everything that was said in it."""
        return await self._handler(request.scope).task(caller, task_id)

    async def delete_task(self, request: Request, caller: RequestCaller, task_id: Uuid) -> None:
        """Stop what runs in the task and remove it with all that was said."""
        await self._handler(request.scope).delete(caller, task_id)
        limits_of(request).quotas[SURFACE].release_chat(caller.user_id)

    async def session(
        self,
        request: Request,
        caller: RequestCaller,
        session_id: Uuid,
        cursor: Annotated[
            Optional, Query(description="Where to go on: `next` of the last reply.")
        ] = None,
    ) -> Session:
        """The tasks of a session, the most recently changed first."""
        return await self._handler(request.scope).session(caller, session_id, cursor)


def teal_operations(
    served: ServedTealAgent, health: Health, about: Mapping[str, Any] | None = None
) -> list[Operation]:
    """Everything one agent is served by. Resuming has an older, longer path too. `about` is what
    every description of this server says."""
    config, at = served.config, served.config.path
    do = Endpoints(served)
    # What the agent is for belongs to where it is asked.
    asked: dict[str, Any] = {"description": config.description or None}
    invoking = {**asked, "body": UserMessage, "depends": (_key_parameter,)}
    streaming: dict[str, Any] = {"events": _events, "errors": _ASKING[:-1]}
    read: dict[str, Any] = {"errors": _READING}
    table: list[tuple[str, str, Any, str, dict[str, Any]]] = [
        (
            "POST",
            "",
            InvokeTask(served),
            "Ask, and wait for the answer",
            {**invoking, "answer": StateResponse, "errors": _ASKING},
        ),
        (
            "POST",
            "/sse",
            InvokeTaskStream(served),
            "Ask, and read the answer as it appears",
            {**invoking, **streaming},
        ),
        (
            "POST",
            "/requests/{request_id}/cancel",
            do.cancel,
            "Stop a request",
            {"answer": StateResponse, "errors": (401, 404, 409, 422, 500, 503, 504)},
        ),
        (
            "GET",
            "/requests/{request_id}",
            do.request,
            "A request, at any time",
            {"answer": RequestState, **read},
        ),
        (
            "GET",
            "/requests/{request_id}/sse",
            do.request_stream,
            "Read a request again as it appears",
            {"events": _events, **read},
        ),
        ("GET", "/tasks/{task_id}", do.task, "A task", read),
        (
            "GET",
            "/tasks/{task_id}/sse",
            do.task_stream,
            "Read the present request of a task as it appears",
            {"events": _events, **read},
        ),
        (
            "DELETE",
            "/tasks/{task_id}",
            do.delete_task,
            "Remove a task and all that was said in it",
            {"status": 204, **read},
        ),
        (
            "GET",
            "/sessions/{session_id}",
            do.session,
            "The tasks of a session",
            {"errors": (400, *_READING)},
        ),
    ]
    for resume in ("/resume/{request_id}", f"/tealagents/{VERSION}/resume/{{request_id}}"):
        table += [
            (
                "POST",
                resume,
                do.resume,
                "Decide, and wait for the answer",
                {
                    **asked,
                    "answer": StateResponse | RejectedToolResponse,
                    "errors": (*_ASKING, 403),
                    "roles": DECIDERS,
                },
            ),
            (
                "POST",
                f"{resume}/sse",
                do.resume_stream,
                "Decide, and read the answer as it appears",
                {**asked, **streaming, "errors": (*_ASKING[:-1], 403), "roles": DECIDERS},
            ),
        ]
    operations = [
        Operation(
            method=method,
            path=f"{at}{path}",
            endpoint=endpoint,
            summary=summary,
            tag=config.name,
            errors_as=DETAIL_JSON,
            **more,
        )
        for method, path, endpoint, summary, more in table
    ]
    operations += agent_health_operations(at, health, config.name, config.version)

    def document() -> dict[str, Any]:
        return openapi_document(
            [OperationRoute(operation) for operation in operations],
            title=config.name,
            version=config.version,
            description=config.description or None,
            **(about or {}),
        )

    return [*operations, *reference_operations(at, document)]


def _events() -> Events:
    request = "0a1c2b3d-5f7e-4c1a-9b2d-3e4f5a6b7c8d"
    ids = {
        "session_id": "5a7c3c1e-6c7f-4b52-9d0e-6f1f0a1c2b3d",
        "task_id": "9d0e6f1f-0a1c-4b3d-8c7f-5b52e1a7c3c1",
        "request_id": request,
    }
    usage = {"completion_tokens": 4, "prompt_tokens": 12, "total_tokens": 16}
    call = {
        "id": "call_1",
        "name": "Mail-send",
        "function_name": "send",
        "plugin_name": "Mail",
        "arguments": '{"to": "bob"}',
        "approval_id": "approval_7b52e1a7",
        "digest": "sha256:9f86d081",
        "kind": "tool",
    }
    urls = {
        "approval_url": f"/Helper/0.1/resume/{request}?action=approve&pause=3",
        "rejection_url": f"/Helper/0.1/resume/{request}?action=reject&pause=3",
    }
    return {
        "partial-response": (TealAgentsPartialResponse, {**ids, "output_partial": "It is "}),
        "final-response": (
            TealAgentsResponse | RejectedToolResponse,
            {**ids, "output": "It is sunny.", "source": "Helper:0.1", "token_usage": usage},
        ),
        "hitl-response": (HitlResponse, {**ids, **urls, "tool_calls": [call]}),
        "error": (RequestFailure, {**ids, "error": "No answer came.", "code": "llm_unavailable"}),
        "keepalive": (RequestIds, ids),
    }


async def _begin(
    handler: TealAgentsV1Alpha1Handler,
    request: Request,
    on_disconnect: OnDisconnect | None = None,
) -> AcceptedRequest:
    message = await body_of(request, _MESSAGE, images=True)
    return await handler.begin(
        caller_of(request.scope),
        message,
        key=idempotency_key(request.scope),
        on_disconnect=on_disconnect,
        quota=quota_of(request, _engine(request.scope), SURFACE),
    )


def _reply(
    scope: Scope, handler: TealAgentsV1Alpha1Handler, ids: StateIds, progress: Progress
) -> Response:
    """Raises a `Problem`: the request failed."""
    return Response(_reply_body(scope, handler, ids, progress), media_type="application/json")


def _reply_body(
    scope: Scope, handler: TealAgentsV1Alpha1Handler, ids: StateIds, progress: Progress
) -> bytes:
    renderer = handler.renderer(ids, _root(scope))
    if progress.ended is RunStatus.FAILED or progress.is_rejected:
        content = renderer.outcome(progress)
        if isinstance(content, RequestFailure):
            raise _failure(content)
        return _encoded(content.model_dump())
    return _encoded(renderer.state(progress))


def _failure(failure: RequestFailure) -> Problem:
    """A request that was started and ended without an answer."""
    ids = failure.model_dump(include={"session_id", "task_id", "request_id"})
    members = {**ids, "status": "Failed", "run_correlation_id": failure.correlation_id}
    status = run_failure_status(failure.code)
    headers = run_failure_headers(failure.code)
    return Problem(status, failure.code, failure.error, headers=headers, members=members)


def _engine(scope: Scope) -> Engine:
    engine: Engine = scope["app"].state.engines.tasks
    return engine


def _root(scope: Scope) -> str:
    """The prefix that a proxy in front of the server puts before its paths."""
    root: str = scope.get("root_path", "")
    return root


def _json(content: Any) -> Response:
    return Response(_encoded(content), media_type="application/json")


def _encoded(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_UTC_Z)
