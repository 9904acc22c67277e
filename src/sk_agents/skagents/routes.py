"""What one agent file is served by: invoke, its stream, the websocket, health, its description."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from sk_agents.config.agent_file import AgentFile
from sk_agents.engine.engine import Engine
from sk_agents.http.body import body_of
from sk_agents.http.caller import caller_of
from sk_agents.http.errors import DETAIL_JSON, Problem
from sk_agents.http.front import TealApp
from sk_agents.http.health import Health, agent_health_operations
from sk_agents.http.limits import limits_of
from sk_agents.http.operations import Events, Operation, OperationRoute, openapi_document
from sk_agents.http.page import reference_operations
from sk_agents.http.sse import EventStream
from sk_agents.skagents.models import (
    ErrorEvent,
    Handler,
    IntermediateTaskResponse,
    InvokeFailure,
    InvokeResponse,
    Outputs,
    PartialResponse,
)
from sk_agents.skagents.outputs import frames, while_connected, with_failure
from sk_agents.skagents.websocket import serve_websocket

# Of a response to a client that has left.
CLIENT_CLOSED = 499
UNAVAILABLE = (429, 503)
ERRORS = (400, 401, 403, 408, 413, 415, 422, 429, 500, 502, 503, 504)


def serve_agent_file(
    app: TealApp,
    file: AgentFile,
    handler: Handler,
    *,
    input_type: type[BaseModel],
    output_type: type[BaseModel] | None = None,
) -> None:
    """Add everything that one file is served by."""
    prefix = f"/{file.name}/{file.version}"
    adapter: TypeAdapter[BaseModel] = TypeAdapter(input_type)
    answer: Any = InvokeResponse[output_type] if output_type else InvokeResponse[None]  # type: ignore[valid-type]  # a type of the operator's
    about: dict[str, Any] = {
        "method": "POST",
        "tag": file.name,
        "description": file.description or f"{file.name} API",
        "body": _describable(input_type),
        "errors": ERRORS,
        "errors_as": DETAIL_JSON,
    }
    operations = [
        Operation(
            path=prefix,
            endpoint=Invoke(handler, adapter),
            summary="Ask, and wait for the answer",
            answer=answer,
            **about,
        ),
        Operation(
            path=f"{prefix}/sse",
            endpoint=InvokeStream(handler, adapter),
            summary="Ask, and read the answer as it appears",
            events=lambda: _events(answer),
            **about,
        ),
    ]
    # This API keeps nothing, so it depends on no store.
    health = agent_health_operations(prefix, Health(), file.name, file.version)

    def document() -> dict[str, Any]:
        """Only what is asked by POST, the agent's own address first: the public project's
        orchestrators take their description of an agent from there, and refuse a document with a
        path that has no POST."""
        return openapi_document(
            [OperationRoute(operation) for operation in operations],
            title=file.name,
            version=file.version,
            description=file.description,
            **app.about,
        )

    async def stream(websocket: WebSocket) -> None:
        await serve_websocket(websocket, handler, adapter, _engine(websocket))

    app.add_operations([*operations, *health, *reference_operations(prefix, document)])
    # Deprecated: `POST P/sse` says more.
    app.router.routes.append(WebSocketRoute(f"{prefix}/stream", stream))


@dataclass(frozen=True, slots=True)
class Invoke:
    """The answer, when it is whole."""

    handler: Handler
    adapter: TypeAdapter[BaseModel]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        outputs = await self._outputs(request)
        answer = await while_connected(receive, _whole(outputs, scope))
        response = Response(answer, media_type="application/json")
        if answer is None:
            response = Response(status_code=CLIENT_CLOSED)
        await response(scope, receive, send)

    async def _outputs(self, request: Request) -> Outputs:
        """The outputs; nothing is made before the first of them is asked for."""
        inputs = await body_of(request, self.adapter, images=True)
        return self.handler.invoke_stream(_engine(request), inputs, caller_of(request.scope))


class InvokeStream(Invoke):
    """The answer as it appears."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        outputs = await self._outputs(request)
        with limits_of(request).slots.held(caller_of(scope).user_id):
            await EventStream(frames(outputs, scope))(scope, receive, send)


async def _whole(outputs: Outputs, scope: Scope) -> str:
    """The last of the outputs as JSON. Raises a `Problem`: there is no answer."""
    async with aclosing(with_failure(outputs, scope)) as batches:
        async for batch in batches:
            match batch[-1]:
                case InvokeResponse() as response:
                    return response.model_dump_json()
                case InvokeFailure(code, message, status, retry_after=seconds):
                    retry = {"Retry-After": str(seconds)}
                    headers = retry if status in UNAVAILABLE else {}
                    raise Problem(status, code, message, headers=headers)
    raise AssertionError("the last output is an answer or a failure")


def _engine(connection: HTTPConnection) -> Engine:
    """The engine that keeps nothing."""
    engine: Engine = connection.app.state.engines.unattended
    return engine


def _describable(kind: type[BaseModel]) -> type[BaseModel]:
    """The type, or one that allows anything for an operator's type that has no JSON schema."""
    try:
        kind.model_json_schema()
    except PydanticUserError:
        return create_model(kind.__name__, __config__=ConfigDict(extra="allow"))
    return kind


def _events(answer: Any) -> Events:
    ids = {"session_id": "chat-1", "source": "Weather:0.1", "request_id": "51aa7e02"}
    usage = {"completion_tokens": 4, "prompt_tokens": 12, "total_tokens": 16}
    whole = {**ids, "token_usage": usage, "output_raw": "It is sunny."}
    task = {"task_no": 1, "task_name": "look", "response": whole}
    error = {
        "error": "The model did not answer.",
        "code": "llm_unavailable",
        "correlation_id": "7f1c...",
    }
    return {
        "partial-response": (PartialResponse, {**ids, "output_partial": "It is "}),
        "intermediate-task-response": (IntermediateTaskResponse, task),
        "final-response": (answer, whole),
        "error": (ErrorEvent, error),
    }
