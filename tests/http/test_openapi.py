"""The interface description that follows from a table of operations."""

from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, FastAPI
from jsonschema_rs import Draft202012Validator, meta
from pydantic import BaseModel, ConfigDict, Field
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from starlette.types import Receive, Scope, Send

from sk_agents.http.front import TealApp
from sk_agents.http.operations import Operation
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
    "answer": (Answer, {"content": 'one "line"\nof JSON'}),
}


class Say:
    """Say something and listen."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("only described")


def described() -> TealApp:
    app = TealApp(title="Toy", version="1")

    async def chats(limit: int = 10) -> list[Started]:
        return []

    async def make(body: Start) -> Part:
        return Part(text="x")

    async def cancel(run_id: str, body: Annotated[Start, Body(default_factory=Start)]) -> Started:
        return Started(interaction_id="int_1")

    async def chat_id(chat_id: str) -> None: ...

    app.add_operations(
        [
            Operation(
                method="POST",
                path="/chats/{chat_id}/interactions",
                endpoint=Say(),
                summary="Say something",
                tag="chats",
                body=Start,
                examples={"short": {"content": "Hello"}},
                depends=(chat_id,),
                outcome="What happens.",
                events=lambda: EVENTS,
                errors=(401, 404, 409, 422),
            ),
            Operation(method="GET", path="/chats", endpoint=chats, errors=(401,)),
            Operation(method="POST", path="/chats", endpoint=make),
            Operation(
                method="POST",
                path="/runs/{run_id}/cancel",
                endpoint=cancel,
                tag="runs",
                outcome="Done.",
                example={"interaction_id": "int_1"},
            ),
        ]
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


def test_what_a_typed_endpoint_says_is_extended_by_its_operation() -> None:
    found = document(described())["paths"]["/runs/{run_id}/cancel"]["post"]
    assert found["tags"] == ["runs"]
    assert not found["requestBody"].get("required")
    answer = found["responses"]["200"]
    assert answer["description"] == "Done."
    assert answer["content"]["application/json"]["example"] == {"interaction_id": "int_1"}
    assert found["operationId"] == "post_runs_run_id_cancel"


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


def test_an_operators_own_route_has_that_shape_too() -> None:
    app = TealApp()

    @app.get("/x")
    async def x(number: int) -> None: ...

    answer = document(app)["paths"]["/x"]["get"]["responses"]["422"]
    assert answer["content"].keys() == {"application/problem+json"}


def test_two_models_of_one_name_stay_two() -> None:
    app = TealApp()

    def another() -> type[BaseModel]:
        class Part(BaseModel):
            number: int

        return Part

    async def x() -> Part:
        return Part(text="x")

    app.add_operations(
        [
            Operation(method="GET", path="/x", endpoint=x),
            Operation(method="GET", path="/y", endpoint=Say(), answer=another()),
        ]
    )
    found = document(app)
    media = found["paths"]["/y"]["get"]["responses"]["200"]["content"]["application/json"]
    assert Draft202012Validator({**found, **media["schema"]}).is_valid({"number": 1})
    assert not Draft202012Validator({**found, **media["schema"]}).is_valid({"text": "x"})
    kept = found["paths"]["/x"]["get"]["responses"]["200"]["content"]["application/json"]
    assert Draft202012Validator({**found, **kept["schema"]}).is_valid({"text": "x"})


def test_nothing_is_generated_before_it_is_asked_for() -> None:
    class Loud(BaseModel):
        model_config = ConfigDict(defer_build=True)

        @classmethod
        def __get_pydantic_core_schema__(cls, *arguments: Any) -> Any:
            raise AssertionError("generated")

    async def make(body: Loud) -> None: ...

    app = TealApp()
    app.add_operations([Operation(method="POST", path="/x", endpoint=make)])
    with pytest.raises(AssertionError, match="generated"):
        app.openapi()


async def test_description_is_served_and_made_once() -> None:
    app = described()
    async with inside(app) as client:
        answer: httpx.Response = await client.get("/openapi.json")
        assert answer.json() == app.openapi()
    assert app.openapi() is app.openapi()
