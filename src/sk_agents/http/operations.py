"""One table of operations a surface: routing, OpenAPI, the caller's identity and errors follow it.

An ordinary endpoint is a function in FastAPI's manner: its parameters and its answer are typed, its
JSON body is read by `http.body` before FastAPI validates it. The few that run all the time, or that
read or write more than a page, are plain ASGI callables; their entry in the table says what FastAPI
would have read from a signature.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import Body, Depends, Request, Response
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, create_model
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.authorization.roles import Role
from sk_agents.http.body import checked_body
from sk_agents.http.caller import USERS, Identify, caller_of, current_caller, identify_caller
from sk_agents.http.errors import PROBLEM_JSON, ErrorStyle
from sk_agents.http.limits import admit_request

# By the event's name: the model of its data, or a union of models, and an example.
Events = Mapping[str, tuple[Any, Any]]
# How FastAPI ends the names of the two schemas of one model.
_ASKED, _ANSWERED = "-Input", "-Output"
_SCHEMAS = "#/components/schemas/"
_STREAM = "text/event-stream"
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token or an access key; `GET /sign-in` says what this server wants.",
}
# FastAPI's own shape of a validation error, which no route sends.
_NEVER_SENT = ("HTTPValidationError", "ValidationError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method and a path, what serves them, and what FastAPI cannot see in a typed endpoint.

    `endpoint` is a function with typed parameters, or else an ASGI callable. Of the latter, `body`
    is what it reads and `depends` are dependencies whose parameters it reads by itself. `answer` is
    for an endpoint that returns a `Response`. `events` is called when the description is asked for.
    `who` says who calls, before anything of the request is read; `None` lets everyone in. The
    caller needs one of the `roles`.
    """

    method: str
    path: str
    endpoint: Callable[..., Any]
    summary: str | None = None
    # In the place of the endpoint's docstring.
    description: str | None = None
    tag: str | None = None
    who: Identify | None = current_caller
    roles: Sequence[Role] = USERS
    body: type[BaseModel] | None = None
    is_body_optional: bool = False
    examples: Mapping[str, Any] = field(default_factory=dict)
    depends: Sequence[Callable[..., Any]] = ()
    status: int = 200
    outcome: str = "Successful Response"
    answer: Any = None
    # Of an answer that is no JSON.
    media_type: str | None = None
    example: Any = None
    events: Callable[[], Events] | None = None
    event_id: str | None = None
    # Statuses of errors, and other answers than the usual one.
    errors: Sequence[int] = ()
    others: Mapping[int, str] = field(default_factory=dict)
    errors_as: ErrorStyle = PROBLEM_JSON
    is_described: bool = True

    @property
    def is_typed(self) -> bool:
        return inspect.isfunction(self.endpoint) or inspect.ismethod(self.endpoint)


class OperationRoute(Route):
    """An operation among an application's routes.

    FastAPI's route for it, with its pydantic models, is made when it is first needed: a server
    starts without those of operations that it is never asked for.
    """

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation.path, operation.endpoint, methods=[operation.method])
        self.operation = operation
        self._is_typed = operation.is_typed
        # Starlette would answer HEAD with the whole of GET, streams included.
        self.methods = {operation.method}
        self.app = self._serve

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self} if found else found

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self.operation
        if operation.who is not None:
            await identify_caller(scope, operation.who, operation.roles)
            await admit_request(scope, caller_of(scope).user_id)
        if self._is_typed:
            await self._typed_endpoint(scope, receive, send)
        else:
            await operation.endpoint(scope, receive, send)

    @cached_property
    def _typed_endpoint(self) -> ASGIApp:
        return AsyncExitStackMiddleware(self.api_route.app)

    @cached_property
    def api_route(self) -> APIRoute:
        """FastAPI's route: it serves a typed operation and describes any."""
        operation = self.operation
        options: dict[str, Any] = {}
        if operation.answer is not None or not operation.is_typed:
            options["response_model"] = operation.answer
        if operation.events is not None:
            options["response_class"] = _EventResponse
        elif operation.media_type is not None:
            options["response_class"] = Response
        elif operation.answer is None and not operation.is_typed:
            options["response_class"] = Response
        return _StrictRoute(
            operation.path,
            operation.endpoint if operation.is_typed else _stub(operation),
            methods=[operation.method],
            operation_id=_operation_id(operation),
            summary=operation.summary or _first_clause(operation),
            description=operation.description,
            tags=[operation.tag] if operation.tag else None,
            dependencies=[Depends(one) for one in operation.depends],
            status_code=operation.status,
            response_description=operation.outcome,
            responses=_responses(operation),
            openapi_extra=_examples(operation),
            include_in_schema=operation.is_described,
            **options,
        )


class _EventResponse(Response):
    media_type = _STREAM


class _StrictRoute(APIRoute):
    """Reads JSON bodies as every surface does: bounded in bytes, depth and time, no key twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        with warnings.catch_warnings():
            # A model with `defer_build` is built at its first use. FastAPI silences what pydantic
            # says about its alias only where it makes the field.
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
            self.body_field.validate(None, {}, loc=("body",))

        async def handle(request: Request) -> Response:
            # Here, for FastAPI would turn each error of it into a 400.
            content, value = await checked_body(request)
            return await handler(_CheckedRequest(request.scope, content, value))

        return handle


class _CheckedRequest(Request):
    def __init__(self, scope: Scope, content: bytes, value: Any) -> None:
        super().__init__(scope)
        self._content = content
        self._value = value

    async def body(self) -> bytes:
        return self._content

    async def json(self) -> Any:
        return self._value


def _stub(operation: Operation) -> Callable[..., Any]:
    """A function with the signature that a plain endpoint would have; it is never called."""

    def stub() -> None: ...

    stub.__name__ = type(operation.endpoint).__name__.lower()
    stub.__doc__ = operation.endpoint.__doc__
    parameters = []
    if operation.body is not None:
        info = Body(default_factory=operation.body) if operation.is_body_optional else Body()
        annotation: Any = Annotated[operation.body, info]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("body", kind, annotation=annotation))
    stub.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # as documented
    return stub


def _operation_id(operation: Operation) -> str:
    """The method and the words of the path: what a generated client calls it."""
    return operation.method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", operation.path).rstrip("_")


def _first_clause(operation: Operation) -> str | None:
    text = operation.description or inspect.getdoc(operation.endpoint)
    return re.split(r"[.;:](?:\s|$)", text, maxsplit=1)[0] if text else None


def _responses(operation: Operation) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {
        status: {"description": text} for status, text in operation.others.items()
    }
    if operation.events is not None:
        events = operation.events()
        name = "".join(part.title() for part in re.findall(r"[a-z]+", _operation_id(operation)))
        fields: dict[str, Any] = {event: (model, ...) for event, (model, _) in events.items()}
        found[operation.status] = {"model": create_model(f"{name}Events", **fields)}
    elif operation.media_type is not None:
        schema = {"type": "string", "contentMediaType": operation.media_type}
        found[operation.status] = {"content": {operation.media_type: {"schema": schema}}}
    elif operation.example is not None:
        found[operation.status] = {"content": {"application/json": {"example": operation.example}}}
    return found | error_responses(operation.errors_as, operation.errors)


def error_responses(style: ErrorStyle, statuses: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": _SCHEMAS + style.name}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {style.media_type: {"schema": schema}},
        }
        for status in statuses
    }


def _examples(operation: Operation) -> dict[str, Any] | None:
    if not operation.examples:
        return None
    examples = {name: {"value": value} for name, value in operation.examples.items()}
    return {"requestBody": {"content": {"application/json": {"examples": examples}}}}


def openapi_document(routes: Sequence[BaseRoute], **about: Any) -> dict[str, Any]:
    """The description of these routes; `about` goes to FastAPI's `get_openapi`."""
    operations = [route for route in routes if isinstance(route, OperationRoute)]
    described = [
        route.api_route if isinstance(route, OperationRoute) else route for route in routes
    ]
    # A field with a default may be left out, also where we send it: a generated client that
    # insisted on it would refuse what an older server says.
    document = get_openapi(routes=described, separate_input_output_schemas=False, **about)
    document = _with_one_schema_a_model(document)
    components: dict[str, Any] = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    components["securitySchemes"] = {"bearer": _BEARER}
    for operation in (route.operation for route in operations if route.operation.is_described):
        schemas[operation.errors_as.name] = operation.errors_as.schema
        described_as = document["paths"][operation.path][operation.method.lower()]
        described_as["security"] = [{"bearer": []}] if operation.who is not None else []
        if operation.events is not None:
            answers = document["paths"][operation.path][operation.method.lower()]["responses"]
            _describe_events(answers[str(operation.status)], operation, schemas)
    schemas[PROBLEM_JSON.name] = PROBLEM_JSON.schema
    _replace_validation_errors(document["paths"], schemas)
    return document


def _with_one_schema_a_model(document: dict[str, Any]) -> dict[str, Any]:
    """A model with a computed field has two schemas of one title, of which generators drop one. It
    is the answer's that stays: what is computed is read-only there, so no request needs it."""
    schemas = document.get("components", {}).get("schemas", {})
    names: dict[str, str] = {}
    for answered in [name for name in schemas if name.endswith(_ANSWERED)]:
        name = answered.removesuffix(_ANSWERED)
        schemas[name] = schemas.pop(answered)
        schemas.pop(name + _ASKED, None)
        names |= {_SCHEMAS + name + end: _SCHEMAS + name for end in (_ASKED, _ANSWERED)}
    renamed: dict[str, Any] = _renamed(document, names)
    return renamed


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """With other references."""
    match node:
        case {"$ref": str(reference), **rest}:
            return {"$ref": names.get(reference, reference), **_renamed(rest, names)}
        case dict():
            return {key: _renamed(value, names) for key, value in node.items()}
        case list():
            return [_renamed(value, names) for value in node]
    return node


def _describe_events(
    response: dict[str, Any], operation: Operation, schemas: dict[str, Any]
) -> None:
    """OpenAPI 3.1 has no word for what is inside a stream: the schemas stand under `x-events`."""
    assert operation.events is not None
    events = operation.events()
    media = response["content"][_STREAM]
    models = schemas.pop(media["schema"]["$ref"].removeprefix(_SCHEMAS))["properties"]
    names = "\n".join(f"- `{name}`" for name in events)
    response["description"] = f"{operation.outcome}\n\nEvents:\n\n{names}"
    # Of one event, as tools that read streams expect.
    media["schema"] = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "id": {"type": "string"}
            | ({"pattern": operation.event_id} if operation.event_id else {}),
            "event": {"enum": list(events)},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": list(models.values())},
            },
            "retry": {"type": "integer"},
        },
    }
    media["examples"] = {
        name: {"value": f"event: {name}\ndata: {orjson.dumps(example).decode()}\n\n"}
        for name, (_, example) in events.items()
    }
    media["x-events"] = {name: {"schema": models[name]} for name in events}


def _replace_validation_errors(paths: Mapping[str, Any], schemas: dict[str, Any]) -> None:
    """Of routes that are in no table: FastAPI describes a shape that the front never sends."""
    problem = error_responses(PROBLEM_JSON, [422])[422]
    for operation in (operation for item in paths.values() for operation in item.values()):
        answer = operation["responses"].get("422", {})
        schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
        if schema.get("$ref") == _SCHEMAS + _NEVER_SENT[0]:
            operation["responses"]["422"] = problem
    for name in _NEVER_SENT:
        schemas.pop(name, None)
