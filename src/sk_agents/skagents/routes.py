"""The routes of one agent file: invoke, stream, health and their own description."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from sk_agents.config.agent_file import AgentFile
from sk_agents.engine.engine import Engine
from sk_agents.exceptions import LimitExceeded, TealError
from sk_agents.http.body import body_of
from sk_agents.http.caller import Caller, current_caller
from sk_agents.http.health import Health
from sk_agents.http.limits import HeldStream, limits_of
from sk_agents.http.page import reference_page
from sk_agents.http.sse import EventStream
from sk_agents.skagents.models import (
    ErrorResponse,
    Handler,
    InvokeFailure,
    InvokeResponse,
    Outputs,
)
from sk_agents.skagents.outputs import (
    error_response,
    frames,
    refusal,
    while_connected,
    with_failure,
)
from sk_agents.skagents.websocket import serve_websocket

# Of a response to a client that has left.
CLIENT_CLOSED = 499
DEFINITIONS = "$defs"
LOCAL = f"#/{DEFINITIONS}/"


def prefix_of(file: AgentFile) -> str:
    return f"/{file.name}/{file.version}"


def mount(
    app: FastAPI,
    file: AgentFile,
    handler: Handler,
    *,
    input_type: type[BaseModel],
    output_type: type[BaseModel] | None = None,
) -> None:
    """Everything a file is served by."""
    description = file.description or f"{file.name} API"
    prefix = prefix_of(file)
    described = APIRouter(tags=[file.name])
    described.include_router(
        get_rest_routes(
            handler, input_type=input_type, output_type=output_type, description=description
        ),
        prefix=prefix,
    )
    described.include_router(get_health_routes(), prefix=prefix)
    app.include_router(described)
    app.include_router(get_websocket_routes(handler, input_type=input_type), prefix=prefix)
    app.include_router(get_description_routes(file, described), prefix=prefix)


def get_rest_routes(
    handler: Handler,
    *,
    input_type: type[BaseModel],
    output_type: type[BaseModel] | None = None,
    description: str = "",
) -> APIRouter:
    """`POST P` and `POST P/sse`; the router is included under `prefix_of(file)`."""
    router = APIRouter()
    adapter = TypeAdapter(input_type)
    described: dict[str, Any] = {
        "description": description,
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": body_schema(input_type)}},
            }
        },
    }
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorResponse} for status in ("4XX", "5XX")
    }
    answer: Any = InvokeResponse[output_type] if output_type else InvokeResponse[None]  # type: ignore[valid-type]  # a type of the operator's

    @router.post("", responses={**errors, 200: {"model": answer}}, **described)
    async def invoke(request: Request) -> Response:
        try:
            outputs, _ = await _begun(request, handler, adapter)
        except (TealError, RequestValidationError) as error:
            return refusal(request.scope, error)
        answered = await while_connected(request.receive, _answered(outputs, request.scope))
        return answered or Response(status_code=CLIENT_CLOSED)

    @router.post(
        "/sse", status_code=200, responses=errors, response_class=_EventResponse, **described
    )
    async def invoke_sse(request: Request) -> Response:
        try:
            outputs, caller = await _begun(request, handler, adapter)
        except (TealError, RequestValidationError) as error:
            return refusal(request.scope, error)
        stream = EventStream(frames(outputs, request.scope))
        return _EventResponse(limits_of(request).slots, caller.user_id, stream)

    return router


def get_websocket_routes(handler: Handler, *, input_type: type[BaseModel]) -> APIRouter:
    """`WS P/stream`, deprecated: `POST P/sse` says more."""
    router = APIRouter()
    adapter = TypeAdapter(input_type)

    @router.websocket("/stream")
    async def stream(websocket: WebSocket) -> None:
        await serve_websocket(websocket, handler, adapter, engine_of(websocket))

    return router


def get_health_routes() -> APIRouter:
    """`GET P/health` and `GET P/health/live`. What keeps nothing depends on no store."""
    router = APIRouter()
    known = Health()

    @router.get("/health", responses={503: {"description": "A dependency is down."}})
    async def health() -> JSONResponse:
        report = await known.ready()
        return JSONResponse(report, 200 if report["status"] == "healthy" else 503)

    @router.get("/health/live")
    async def live() -> JSONResponse:
        return JSONResponse(known.live())

    return router


def get_description_routes(file: AgentFile, described: APIRouter) -> APIRouter:
    """`GET P/openapi.json` and `GET P/docs`, about the routes of `described` alone."""
    router = APIRouter()
    document: dict[str, Any] = {}

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> JSONResponse:
        if not document:
            document.update(
                get_openapi(
                    title=file.name,
                    version=file.version,
                    description=file.description,
                    routes=described.routes,
                )
            )
        return JSONResponse(document)

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return reference_page(request)

    return router


def engine_of(connection: HTTPConnection) -> Engine:
    """The engine that keeps nothing."""
    engine: Engine = connection.app.state.engines.unattended
    return engine


async def _begun(
    request: Request, handler: Handler, adapter: TypeAdapter[BaseModel]
) -> tuple[Outputs, Caller]:
    """The outputs, of which nothing is made until the first is asked for, and who asks."""
    caller = await current_caller(request)
    inputs = await body_of(request, adapter, images=True)
    return handler.invoke_stream(engine_of(request), inputs, caller), caller


async def _answered(outputs: Outputs, scope: Scope) -> Response:
    """The last of the outputs, as JSON."""
    async with aclosing(with_failure(outputs, scope)) as batches:
        async for batch in batches:
            match batch[-1]:
                case InvokeResponse() as response:
                    return Response(response.model_dump_json(), media_type="application/json")
                case InvokeFailure() as failure:
                    return error_response(scope, failure)
    raise AssertionError("the last output is an answer or a failure")


class _EventResponse(HeldStream):
    """A stream as a response that the framework hands on untouched."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except LimitExceeded as error:
            await refusal(scope, error)(scope, receive, send)


def body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The type's JSON schema in one piece: it stands where no definitions can stand beside it.

    A type that JSON schema cannot describe, or a part that contains itself, is anything.
    """
    try:
        schema = kind.model_json_schema()
    except PydanticUserError:
        return {"title": kind.__name__}
    definitions = schema.pop(DEFINITIONS, {})
    inlined: dict[str, Any] = _inlined(schema, definitions, ())
    return inlined


def _inlined(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(LOCAL):
        return {key: _inlined(value, definitions, inside) for key, value in schema.items()}
    name = reference.removeprefix(LOCAL)
    if name in inside:
        return {"title": name}
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_inlined(definitions[name], definitions, (*inside, name)), **beside}
