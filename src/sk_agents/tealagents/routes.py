"""One agent's routes as a table, from which the server and its OpenAPI document are both made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.http import operations
from sk_agents.http.health import Health
from sk_agents.http.operations import OperationRoute
from sk_agents.http.page import reference_page
from sk_agents.tealagents.endpoints import Endpoint, Endpoints, JsonResponse, guarded
from sk_agents.tealagents.models import (
    UUID_PATTERN,
    AgentTask,
    HitlResponse,
    RejectedToolResponse,
    Request,
    ResumeRequest,
    Session,
    StateResponse,
    TealAgentsPartialResponse,
    TealAgentsResponse,
    UserMessage,
)
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent, TealAgentConfig

Model = type[BaseModel]
STREAMED = (TealAgentsPartialResponse, TealAgentsResponse, HitlResponse, RejectedToolResponse)

REFERENCE = "#/components/schemas/{model}"
EVENTS = "text/event-stream"
JSON = "application/json"
ANSWER_EVENTS = ("partial-response", "final-response", "hitl-response")
OTHER_EVENTS = ("error", "keepalive")
_PARAMETER = re.compile(r"\{(\w+)\}")
_ERROR = {
    "type": "object",
    "required": ["detail", "code", "correlation_id"],
    "properties": {
        "detail": {"description": "What is wrong: a sentence, or a list of wrong fields."},
        "code": {"type": "string"},
        "correlation_id": {"type": "string"},
    },
}


@dataclass(frozen=True, slots=True)
class _EndpointApp:
    """An endpoint as a plain ASGI application: errors are answered by the endpoint itself."""

    endpoint: Endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(HttpRequest(scope, receive))
        await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Operation:
    """A route and what can be said about it; `errors` are the statuses besides the good one."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    takes: Model | None = None
    returns: tuple[Model, ...] = ()
    streams: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[int] = ()
    good: int = 200

    @property
    def route(self) -> Route:
        return OperationRoute(
            operations.Operation(
                method=self.method,
                path=self.path,
                endpoint=_EndpointApp(guarded(self.endpoint)),
                # The endpoint finds out by itself.
                who=None,
                is_described=False,
            )
        )


_TASK = {"task_id": "The request's task; only stores that cannot find a request alone need it."}
_RESUME = {"action": "approve or reject.", "pause": "Which pause is meant.", **_TASK}
_ASKING = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504)
_READING = (401, 404, 422, 500, 503)


def get_stateful_routes(served: ServedTealAgent, health: Health) -> list[Operation]:
    """Invoking the agent, and looking at its tasks, sessions and requests."""
    do, at = Endpoints(served, health), served.config.path
    return [*_asking(do, at), *_looking(do, at), *_health(do, at)]


def _asking(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation(
            "POST",
            at,
            do.invoke,
            "Ask, and wait for the answer",
            takes=UserMessage,
            returns=(StateResponse,),
            errors=_ASKING,
        ),
        Operation(
            "POST",
            f"{at}/sse",
            do.invoke_stream,
            "Ask, and read the answer as it appears",
            takes=UserMessage,
            returns=STREAMED,
            streams=True,
            errors=_ASKING[:-1],
        ),
        Operation(
            "POST",
            f"{at}/requests/{{request_id}}/cancel",
            do.cancel,
            "Stop a request",
            returns=(StateResponse,),
            query=_TASK,
            errors=(401, 404, 409, 422, 500, 503, 504),
        ),
    ]


def _looking(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation(
            "GET",
            f"{at}/tasks/{{task_id}}",
            do.task,
            "A task",
            returns=(AgentTask,),
            errors=_READING,
        ),
        Operation(
            "DELETE",
            f"{at}/tasks/{{task_id}}",
            do.delete_task,
            "Remove a task and all that was said in it",
            errors=_READING,
            good=204,
        ),
        Operation(
            "GET",
            f"{at}/sessions/{{session_id}}",
            do.session,
            "The tasks of a session",
            returns=(Session,),
            query={"cursor": "Where to go on: `next` of the last reply."},
            errors=_READING,
        ),
        Operation(
            "GET",
            f"{at}/requests/{{request_id}}",
            do.request,
            "A request, at any time",
            returns=(Request,),
            query=_TASK,
            errors=_READING,
        ),
    ]


def _health(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation("GET", f"{at}/health", do.ready, "Can it serve?", errors=(503,)),
        Operation("GET", f"{at}/health/live", do.live, "Is it there?"),
    ]


def get_resume_routes(served: ServedTealAgent, health: Health) -> list[Operation]:
    """Deciding what a paused request waits for, under its address and its older, longer one."""
    do, at = Endpoints(served, health), served.config.path
    return [
        operation
        for path in (f"{at}/resume", f"{at}/tealagents/{Endpoints.version}/resume")
        for operation in (
            Operation(
                "POST",
                f"{path}/{{request_id}}",
                do.resume,
                "Decide, and wait for the answer",
                takes=ResumeRequest,
                returns=(StateResponse, RejectedToolResponse),
                query=_RESUME,
                errors=_ASKING,
            ),
            Operation(
                "POST",
                f"{path}/{{request_id}}/sse",
                do.resume_stream,
                "Decide, and read the answer as it appears",
                takes=ResumeRequest,
                returns=STREAMED,
                streams=True,
                query=_RESUME,
                errors=_ASKING[:-1],
            ),
        )
    ]


def get_document_routes(config: TealAgentConfig, operations: Sequence[Operation]) -> list[Route]:
    """`openapi.json` and the page that shows it."""

    @cache
    def document() -> dict[str, Any]:
        return describe(config, operations)

    async def openapi(request: HttpRequest) -> ASGIApp:
        return JsonResponse(document())

    async def docs(request: HttpRequest) -> Response:
        return reference_page(request)

    return [
        Route(f"{config.path}/openapi.json", openapi, methods=["GET"]),
        Route(f"{config.path}/docs", docs, methods=["GET"]),
    ]


def describe(config: TealAgentConfig, operations: Sequence[Operation]) -> dict[str, Any]:
    about = {"description": config.description} if config.description else {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        method, described = operation.method.lower(), _described(operation)
        if operation.takes is not None:
            # What the agent is for belongs to where it is asked.
            described |= about
        paths.setdefault(operation.path, {})[method] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": config.name, "version": config.version, **about},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, **_schemas(operations)},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": [*_parameters(operation)],
        "responses": {
            str(operation.good): _good(operation),
            **{str(status): _bad(status) for status in operation.errors},
        },
    }
    if operation.takes is not None:
        described["requestBody"] = {
            "required": "resume" not in operation.path,
            "content": {JSON: {"schema": _reference(operation.takes)}},
        }
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": UUID_PATTERN},
        }
        for name in _PARAMETER.findall(operation.path)
    ]
    in_query = [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in operation.query.items()
    ]
    in_header = [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "A request sent again with its key is not done again.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ]
    return [*in_path, *in_query, *(in_header if operation.takes is not None else ())]


def _good(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(operation.good).phrase}
    if operation.returns:
        schemas = [_reference(model) for model in operation.returns]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if operation.streams:
            described["content"] = {EVENTS: {"schema": _event(schema)}}
        else:
            described["content"] = {JSON: {"schema": schema}}
    return described


def _event(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one event of a stream, as tools that read streams expect."""
    return {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"enum": [*ANSWER_EVENTS, *OTHER_EVENTS]},
            "data": {
                "type": "string",
                "description": f"In {' and '.join(OTHER_EVENTS)} the request's ids at least.",
                "contentMediaType": JSON,
                "contentSchema": answer,
            },
        },
    }


def _bad(status: int) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(model="Error")}
    return {"description": HTTPStatus(status).phrase, "content": {JSON: {"schema": schema}}}


def _reference(model: Model) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=model.__name__)}


def _schemas(operations: Sequence[Operation]) -> Mapping[str, Any]:
    taken = {operation.takes for operation in operations if operation.takes is not None}
    returned = {model for operation in operations for model in operation.returns}
    _, schema = models_json_schema(
        [
            *((model, "validation") for model in taken),
            *((model, "serialization") for model in returned - taken),
        ],
        ref_template=REFERENCE,
    )
    schemas: Mapping[str, Any] = schema.get("$defs", {})
    return schemas
