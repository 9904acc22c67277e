"""The description of one agent's routes, in OpenAPI's words, made when it is first asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sk_agents.http.page import reference_page
from sk_agents.tealagents.endpoints import JsonResponse
from sk_agents.tealagents.models import UUID_PATTERN
from sk_agents.tealagents.routes import Model, Operation
from sk_agents.tealagents.v1alpha1.config import TealAgentConfig

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


def get_document_routes(config: TealAgentConfig, operations: Sequence[Operation]) -> list[Route]:
    """`openapi.json` and the page that shows it."""

    @cache
    def document() -> dict[str, Any]:
        return describe(config, operations)

    async def openapi(request: Request) -> ASGIApp:
        return JsonResponse(document())

    async def docs(request: Request) -> Response:
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
