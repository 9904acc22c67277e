"""The interface description of routes that are described by hand."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator, meta
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sk_agents.http.openapi import (
    add_operation,
    event_stream,
    install_openapi,
    json_body,
    json_response,
    problem_responses,
)
from tests.http.toy import inside


class Part(BaseModel):
    text: str


class Start(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: str = Field(min_length=1)
    parts: list[Part] = []


class Started(BaseModel):
    interaction_id: str
    parts: list[Part] = []


class Answer(BaseModel):
    content: str


EVENTS: dict[str, tuple[Any, Any]] = {
    "interaction_started": (Started, {"interaction_id": "int_1"}),
    "answer": (TypeAdapter(Answer | None), {"content": 'one "line"\nof JSON'}),
}


async def raw(request: Request) -> JSONResponse:
    return JSONResponse({})


def described() -> FastAPI:
    app = FastAPI(title="Toy", version="1")
    app.router.routes.append(Route("/chats/{chat_id}/interactions", raw, methods=["POST"]))

    @app.get("/chats", responses=problem_responses(401))
    async def chats(limit: int = 10) -> list[Started]:
        return []

    @app.post("/chats")
    async def make(body: Start) -> Part:
        return Part(text="x")

    @app.post("/runs/{run_id}/cancel", tags=["runs"])
    async def cancel(request: Request, run_id: str) -> None: ...

    add_operation(
        app,
        "/chats/{chat_id}/interactions",
        "POST",
        {
            "summary": "Say something",
            "tags": ["chats"],
            "requestBody": json_body(Start, {"short": {"content": "Hello"}}),
            "responses": {
                200: event_stream("What happens.", EVENTS),
                **problem_responses(401, 404, 409, 422),
            },
        },
    )
    add_operation(
        app,
        "/runs/{run_id}/cancel",
        "post",
        {
            "requestBody": json_body(Start, required=False),
            "responses": {200: json_response("Done.", Started, {"interaction_id": "int_1"})},
        },
    )
    return app


def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def operations(found: dict[str, Any]) -> list[Any]:
    return [operation for item in found["paths"].values() for operation in item.values()]


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    if isinstance(node, list):
        return [found for value in node for found in references(value)]
    return []


def test_description_is_openapi() -> None:
    found = document(described())
    assert found["openapi"].startswith("3.1.")
    OPENAPI_31_VALIDATOR.validate(found)
    ids = [operation["operationId"] for operation in operations(found)]
    assert len(set(ids)) == len(ids)


def test_every_schema_is_one_and_every_reference_leads_to_one() -> None:
    found = document(described())
    for schema in found["components"]["schemas"].values():
        meta.validate(schema)
    prefix = "#/components/schemas/"
    names = {reference.removeprefix(prefix) for reference in references(found)}
    assert names
    assert names <= found["components"]["schemas"].keys()


def test_body_has_its_schema_and_its_example_fits() -> None:
    found = document(described())
    media = found["paths"]["/chats/{chat_id}/interactions"]["post"]["requestBody"]["content"]
    body = media["application/json"]
    check = Draft202012Validator({**found, **body["schema"]})
    check.validate(body["examples"]["short"]["value"])
    assert not check.is_valid({"content": ""})
    assert not check.is_valid({"content": "x", "more": 1})


def test_stream_names_its_events_and_shows_whole_frames() -> None:
    found = document(described())
    answer = found["paths"]["/chats/{chat_id}/interactions"]["post"]["responses"]["200"]
    assert "`interaction_started`" in answer["description"]
    media = answer["content"]["text/event-stream"]
    assert media["x-events"].keys() == media["examples"].keys() == EVENTS.keys()
    frame = media["examples"]["answer"]["value"]
    assert frame == 'event: answer\ndata: {"content":"one \\"line\\"\\nof JSON"}\n\n'
    for name, (_, example) in EVENTS.items():
        schema = media["x-events"][name]["schema"]
        Draft202012Validator({**found, **schema}).validate(example)


def test_parameters_of_the_path_are_described() -> None:
    found = document(described())
    for path in ("/chats/{chat_id}/interactions", "/runs/{run_id}/cancel"):
        parameters = found["paths"][path]["post"]["parameters"]
        assert [(p["name"], p["required"]) for p in parameters] == [
            (path.split("{")[1].split("}")[0], True)
        ]


def test_what_fastapi_knows_is_kept_and_extended() -> None:
    found = document(described())["paths"]["/runs/{run_id}/cancel"]["post"]
    assert found["tags"] == ["runs"]
    assert found["requestBody"]["required"] is False
    assert found["responses"]["200"]["description"] == "Done."


def test_every_error_has_the_one_shape() -> None:
    found = document(described())
    seen = 0
    for operation in operations(found):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                seen += 1
                assert answer["content"].keys() == {"application/problem+json"}
    assert seen >= 6
    assert not {"HTTPValidationError", "ValidationError"} & found["components"]["schemas"].keys()


def test_app_without_additions_has_that_shape_too() -> None:
    app = FastAPI()
    install_openapi(app)

    @app.get("/x")
    async def x(number: int) -> None: ...

    answer = document(app)["paths"]["/x"]["get"]["responses"]["422"]
    assert answer["content"].keys() == {"application/problem+json"}


def test_two_models_of_one_name_stay_two() -> None:
    app = FastAPI()

    def another() -> type[BaseModel]:
        class Part(BaseModel):
            number: int

        return Part

    @app.get("/x")
    async def x() -> Part:
        return Part(text="x")

    add_operation(app, "/y", "get", {"responses": {200: json_response("y", another())}})
    found = document(app)
    media = found["paths"]["/y"]["get"]["responses"]["200"]["content"]["application/json"]
    assert Draft202012Validator({**found, **media["schema"]}).is_valid({"number": 1})
    assert not Draft202012Validator({**found, **media["schema"]}).is_valid({"text": "x"})
    kept = found["paths"]["/x"]["get"]["responses"]["200"]["content"]["application/json"]
    assert Draft202012Validator({**found, **kept["schema"]}).is_valid({"text": "x"})


def test_nothing_is_generated_before_it_is_asked_for() -> None:
    class Loud(BaseModel):
        @classmethod
        def __get_pydantic_json_schema__(cls, *arguments: Any) -> Any:
            raise AssertionError("generated")

    app = FastAPI()
    add_operation(app, "/x", "get", {"responses": {200: json_response("x", Loud)}})
    with pytest.raises(AssertionError, match="generated"):
        app.openapi()


async def test_description_is_served_and_made_once() -> None:
    app = described()
    async with inside(app) as client:
        answer: httpx.Response = await client.get("/openapi.json")
        assert answer.json() == app.openapi()
    assert app.openapi() is app.openapi()
