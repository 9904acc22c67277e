"""The interface description of routes that FastAPI cannot see into.

Such routes read their bodies and write their streams themselves; what they take and give is said
here by hand. A description is plain OpenAPI in which a pydantic model or a `TypeAdapter` may stand
for its schema. Nothing is generated before somebody asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any, Literal

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter

Model = type[BaseModel] | TypeAdapter[Any]
Mode = Literal["validation", "serialization"]

SCHEMAS = "#/components/schemas/"
PROBLEM = "Problem"
PROBLEM_SCHEMA = {
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
}
# FastAPI's own shape of a validation error, which no route of ours sends.
_NEVER_SENT = ("HTTPValidationError", "ValidationError")


def json_body(
    model: Model, examples: Mapping[str, Any] | None = None, *, required: bool = True
) -> dict[str, Any]:
    """A `requestBody`; `examples` are bodies by a short name for each."""
    media: dict[str, Any] = {"schema": model}
    if examples:
        media["examples"] = {name: {"value": value} for name, value in examples.items()}
    return {"required": required, "content": {"application/json": media}}


def json_response(description: str, model: Model, example: Any = None) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": model}
    if example is not None:
        media["example"] = example
    return {"description": description, "content": {"application/json": media}}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors by status, all of the one shape; also for the `responses` of a FastAPI route."""
    schema = {"$ref": SCHEMAS + PROBLEM}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status in statuses
    }


def event_stream(description: str, events: Mapping[str, tuple[Model, Any]]) -> dict[str, Any]:
    """A response of server-sent events: for each name its data's model and an example of it.

    OpenAPI 3.1 has no word for what is inside a stream: the schemas stand under `x-events`.
    """
    names = "\n".join(f"- `{name}`" for name in events)
    frames = {
        name: {"value": f"event: {name}\ndata: {orjson.dumps(example).decode()}\n\n"}
        for name, (_, example) in events.items()
    }
    media = {
        "schema": {"type": "string"},
        "examples": frames,
        "x-events": {name: {"schema": model} for name, (model, _) in events.items()},
    }
    return {
        "description": f"{description}\n\nEvents:\n\n{names}",
        "content": {"text/event-stream": media},
    }


def install_openapi(app: FastAPI) -> None:
    """Let the app's description use our error shape and what `add_operation` is told."""
    _Description.of(app)


def add_operation(app: FastAPI, path: str, method: str, operation: Mapping[str, Any]) -> None:
    """Describe what `method` does at `path`, over anything FastAPI has found out about it.

    Parameters of the path that `operation` does not describe are plain strings.
    """
    _Description.of(app).operations.append((path, method.lower(), operation))


def describe_later(app: FastAPI, describe: Callable[[FastAPI], None]) -> None:
    """Let `describe` add its operations when somebody first asks for them."""
    _Description.of(app).later.append(describe)


class _Description:
    """What is said about one app; asked for instead of `FastAPI.openapi`."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._generate = app.openapi
        self._generated: dict[str, Any] | None = None
        self._described: dict[str, Any] = {}
        self.operations: list[tuple[str, str, Mapping[str, Any]]] = []
        self.later: list[Callable[[FastAPI], None]] = []

    @classmethod
    def of(cls, app: FastAPI) -> _Description:
        description = getattr(app.state, "description", None)
        if isinstance(description, cls):
            return description
        app.state.description = description = cls(app)
        app.openapi = description.openapi  # type: ignore[method-assign]  # the documented way
        return description

    def openapi(self) -> dict[str, Any]:
        while self.later:
            self.later.pop()(self._app)
        generated = self._generate()
        if self._generated is not generated:
            self._generated = generated
            self._described = _described(deepcopy(generated), self.operations)
        return self._described


def _described(
    document: dict[str, Any], operations: list[tuple[str, str, Mapping[str, Any]]]
) -> dict[str, Any]:
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    paths: dict[str, Any] = document.setdefault("paths", {})
    written = _with_schemas([operation for _, _, operation in operations], schemas)
    for (path, method, _), operation in zip(operations, written, strict=True):
        known = paths.setdefault(path, {}).get(method, {})
        paths[path][method] = _merged(path, method, known, operation)
    problem = problem_responses(422)[422]
    for item in paths.values():
        for operation in item.values():
            responses = operation.get("responses", {})
            if f"{SCHEMAS}{_NEVER_SENT[0]}" in set(_references(responses.get("422", {}))):
                responses["422"] = problem
    for name in _NEVER_SENT:
        schemas.pop(name, None)
    schemas[PROBLEM] = PROBLEM_SCHEMA
    return document


def _merged(
    path: str, method: str, known: Mapping[str, Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    parameters = operation.get("parameters", known.get("parameters", []))
    described = {parameter["name"] for parameter in parameters if parameter["in"] == "path"}
    plain = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
        if name not in described
    ]
    own = {str(status): answer for status, answer in operation.get("responses", {}).items()}
    merged = {
        "operationId": f"{method}{re.sub(r'[^A-Za-z0-9]+', '_', path)}",
        **known,
        **operation,
        "responses": {**known.get("responses", {}), **own},
    }
    if plain or parameters:
        merged["parameters"] = [*plain, *parameters]
    return merged


def _with_schemas(operations: list[Mapping[str, Any]], schemas: dict[str, Any]) -> list[Any]:
    """The operations with references for models, whose schemas are added to `schemas`."""
    adapters: dict[tuple[int, Mode], TypeAdapter[Any]] = {}
    for model, mode in (found for operation in operations for found in _models(operation)):
        adapters[id(model), mode] = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    inputs = [(str(key), mode, adapter) for (key, mode), adapter in adapters.items()]
    # The models' ids are their keys: two of them may have one name.
    found, definitions = TypeAdapter.json_schemas(inputs, ref_template=SCHEMAS + "{model}")
    ours: dict[str, Any] = definitions.get("$defs", {})
    names = {name: _free_name(name, schema, schemas) for name, schema in ours.items()}
    for name, schema in ours.items():
        schemas[names[name]] = _rewritten(schema, names, {})
    by_model = {
        (int(key), mode): _rewritten(schema, names, {}) for (key, mode), schema in found.items()
    }
    return [_rewritten(operation, {}, by_model) for operation in operations]


def _models(node: Any, mode: Mode = "serialization") -> Iterator[tuple[Model, Mode]]:
    if isinstance(node, TypeAdapter) or isinstance(node, type):
        yield node, mode
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _models(value, "validation" if key == "requestBody" else mode)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _models(value, mode)


def _free_name(name: str, schema: Any, taken: Mapping[str, Any]) -> str:
    """Its own name, unless FastAPI uses that for something else."""
    while name in taken and taken[name] != schema:
        name += "_"
    return name


def _rewritten(
    node: Any,
    names: Mapping[str, str],
    by_model: Mapping[tuple[int, Mode], Any],
    mode: Mode = "serialization",
) -> Any:
    if isinstance(node, TypeAdapter) or isinstance(node, type):
        return by_model[id(node), mode]
    if isinstance(node, Mapping):
        return {
            key: SCHEMAS + names.get(value.removeprefix(SCHEMAS), value.removeprefix(SCHEMAS))
            if key == "$ref" and isinstance(value, str)
            else _rewritten(value, names, by_model, "validation" if key == "requestBody" else mode)
            for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_rewritten(value, names, by_model, mode) for value in node]
    return node


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
