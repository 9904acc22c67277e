"""The interface descriptions, as orchestrators and generators of clients read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]  # it has no stubs
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings

DEMOS = Path(__file__).parents[2] / "demos"
V1 = {"/GettingStarted/0.1": "01_getting_started", "/ChatBot/0.1": "09_chat_simple"}
V3 = {"/RecordsAgent/0.1": "11_hitl"}
PLACES = ["", *V1, *V3]
METHODS = ("get", "put", "post", "delete", "patch")


class StrictOperation(BaseModel):
    """As strict as the orchestrator's own client: a text, not nothing."""

    model_config = ConfigDict(extra="allow", strict=True)

    description: str


class StrictPath(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    post: StrictOperation


class StrictDocument(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    paths: dict[str, StrictPath]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    files = load_agent_files([DEMOS / name for name in (V1 | V3).values()])
    base, org = "https://agents.example", "Ada & Co"
    return create_app(Settings(store="memory:", agent_base_url=base, provider_org=org), files)


async def document(app: FastAPI, place: str) -> dict[str, Any]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        found: dict[str, Any] = (await client.get(f"{place}/openapi.json")).json()
        return found


def operations(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in description["paths"].items():
        for method in item.keys() & set(METHODS):
            yield f"{method} {path}", item[method]


def values(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from values(value, key)


@pytest.mark.parametrize("place", V1)
async def test_orchestrator_that_validates_the_document_finds_the_agent(
    app: FastAPI, place: str
) -> None:
    found = StrictDocument.model_validate(await document(app, place))
    first = next(iter(found.paths))
    described = next(file for file in app.state.parts.agents.values() if file.file.name in place)
    assert first == place
    assert found.paths[first].post.description.strip() == (described.file.description or "").strip()


@pytest.mark.parametrize("place", PLACES)
async def test_every_operation_is_described_titled_and_placed(app: FastAPI, place: str) -> None:
    found = await document(app, place)
    named = dict(operations(found))
    assert named
    for name, operation in named.items():
        assert operation["description"].strip(), name
        assert len(operation["summary"].split()) > 1, (name, operation["summary"])
        assert re.fullmatch(r"[a-z]+(_[A-Za-z0-9]+)+", operation["operationId"]), name
        assert operation["security"] in ([], [{"bearer": []}]), name
    ids = [operation["operationId"] for operation in named.values()]
    assert len(ids) == len(set(ids))
    assert found["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert found["servers"] == [{"url": "https://agents.example"}]
    assert found["info"]["contact"] == {"name": "Ada & Co"}


@pytest.mark.parametrize("place", PLACES)
async def test_patterns_mean_the_same_in_javascript_and_python(app: FastAPI, place: str) -> None:
    for pattern in values(await document(app, place), "pattern"):
        if isinstance(pattern, str):
            re.compile(pattern)
            assert not re.search(r"\\[AZz]|\(\?P|\(\?[aiLmsux]|\\[dws]", pattern), pattern


@pytest.mark.parametrize("place", PLACES)
async def test_examples_are_valid(app: FastAPI, place: str) -> None:
    found = await document(app, place)
    checked = 0
    for name, operation in operations(found):
        bodies = operation.get("requestBody", {}).get("content", {})
        answers = [answer.get("content", {}) for answer in operation["responses"].values()]
        for media in (bodies, *answers):
            for kind in media.values():
                for example in examples_of(kind):
                    validate(example, kind["schema"], found, name)
                    checked += 1
                for event, stated in kind.get("x-events", {}).items():
                    text = kind["examples"][event]["value"]
                    data = json.loads(text.partition("data: ")[2])
                    validate(data, stated["schema"], found, f"{name} {event}")
                    checked += 1
    assert checked


def examples_of(kind: dict[str, Any]) -> Iterator[Any]:
    if "x-events" in kind:
        return
    if "example" in kind:
        yield kind["example"]
    for example in kind.get("examples", {}).values():
        yield example["value"]


def validate(value: Any, schema: dict[str, Any], found: dict[str, Any], name: str) -> None:
    whole = {**schema, "components": found["components"]}
    errors = list(jsonschema.Draft202012Validator(whole).iter_errors(value))
    assert not errors, (name, errors[0].message)


@pytest.mark.parametrize("place", PLACES)
async def test_field_with_a_default_is_optional(app: FastAPI, place: str) -> None:
    schemas = (await document(app, place))["components"]["schemas"]
    for name, schema in schemas.items():
        for field in schema.get("required", ()):
            assert "default" not in schema["properties"][field], (name, field)


@pytest.mark.parametrize("place", PLACES)
async def test_no_two_schemas_would_be_one_class_of_a_generated_client(
    app: FastAPI, place: str
) -> None:
    schemas = (await document(app, place))["components"]["schemas"]
    titles = [schema["title"] for schema in schemas.values() if "title" in schema]
    assert len(titles) == len(set(titles))
    for usage in (schemas[name] for name in schemas if name == "UsageView"):
        assert usage["properties"]["total_tokens"]["readOnly"] is True


async def test_health_of_an_agent_says_its_version(app: FastAPI) -> None:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        for place in (*V1, *V3):
            assert (await client.get(f"{place}/health")).json()["version"] == "0.1"
        body = {"items": [{"content": "hello"}]}
        made = (await client.post("/RecordsAgent/0.1", json=body)).json()
        again = {**body, "task_id": made["task_id"].upper()}
        reply = (await client.post("/RecordsAgent/0.1", json=again)).json()
        assert reply["task_id"] == made["task_id"]
        task = await client.get(f"/RecordsAgent/0.1/tasks/{made['task_id'].upper()}")
        assert task.json()["task_id"] == made["task_id"]
