"""What a file of `tealagents/v1alpha1` is served with, and the words of its API."""

import json
from pathlib import Path

import pytest
from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator
from pydantic import ValidationError
from starlette.routing import WebSocketRoute

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.ska_types import BaseMultiModalInput
from sk_agents.tealagents import models
from sk_agents.tealagents.v1alpha1.config import read_config
from sk_agents.testing.scripted_model import says
from tests.requirements import requirement
from tests.surfaces.teal_server import P, message, server

V2_FILE = """
apiVersion: {api_version}
kind: Agent
name: Wiki
version: 0.1
metadata:
  description: Looks things up.
spec:
  agent:
    name: default
    model: scripted/echo
    system_prompt: You repeat.
"""


@requirement("S000-app-v3", "S002-compat-configuration")
async def test_file_with_comments_and_unknown_keys_is_served(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi")]) as at:
        assert (await at.ask())["source"] == "Helper:0.1"
        assert at.place.model.requests[0]["temperature"] == 0.0


@requirement("S000-config-structure")
def test_file_of_the_older_version_serves_once_its_api_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(V2_FILE.format(api_version="skagents/v2alpha1"))
    [older] = load_agent_files([path])
    with pytest.raises(ConfigurationError, match="apiVersion") as caught:
        read_config(older)
    assert str(path) in str(caught.value)
    path.write_text(V2_FILE.format(api_version="tealagents/v1alpha1"))
    assert {"/Wiki/0.1", "/Wiki/0.1/sse"} <= paths(mounted(path))


def mounted(path: Path) -> FastAPI:
    return create_app(Settings(store="memory:"), load_agent_files([path]))


def paths(app: FastAPI) -> set[str]:
    return {getattr(route, "path", "") for route in app.router.routes}


@requirement("S001-isolation-configuration")
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("metadata: {skills: [{id: x}]}", "metadata.skills.0.name"),
        ("metadata: {skills: word}", "metadata.skills"),
    ],
)
def test_file_that_describes_itself_wrongly_stops_start_up(
    tmp_path: Path, given: str, field: str
) -> None:
    path = tmp_path / "config.yaml"
    text = V2_FILE.format(api_version="tealagents/v1alpha1")
    path.write_text(text.replace("metadata:\n  description: Looks things up.", given))
    with pytest.raises(ConfigurationError) as caught:
        mounted(path)
    assert f"{path}: {field}" in str(caught.value)


@requirement("S000-app-no-websocket")
async def test_there_is_no_websocket_route(tmp_path: Path) -> None:
    async with server(tmp_path) as at:
        routes = at.app.router.routes
        assert not [route for route in routes if isinstance(route, WebSocketRoute)]
        assert f"{P}/stream" not in paths(at.app)


async def test_agent_has_its_own_health(tmp_path: Path) -> None:
    async with server(tmp_path) as at:
        live = await at.get(f"{P}/health/live", None)
        assert live.json().keys() == {"alive", "timestamp"}
        ready = await at.get(f"{P}/health", None)
        assert (ready.status_code, ready.json()["status"]) == (200, "healthy")
        assert ready.json().keys() == {"status", "timestamp", "version", "uptime", "dependencies"}


async def test_document_describes_this_agents_routes_and_no_others(tmp_path: Path) -> None:
    async with server(tmp_path, names=("Helper", "Other")) as at:
        document = (await at.get(f"{P}/openapi.json", None)).json()
        assert document["info"]["description"] == "Helps with mail."
        for path in ("", "/sse", "/resume/{request_id}"):
            assert document["paths"][f"{P}{path}"]["post"]["description"] == "Helps with mail."
        served = {path for path in paths(at.app) if path.startswith(P)}
        assert document["paths"].keys() | {f"{P}/openapi.json", f"{P}/docs"} == served
        schemas = document["components"]["schemas"]
        text = json.dumps(document)
        for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
            assert reference.rpartition("/")[2] in schemas
        [stream] = document["paths"][f"{P}/sse"]["post"]["responses"]["200"]["content"].values()
        sent = Draft202012Validator({**document, **stream["schema"]})
        assert sent.is_valid({"event": "final-response", "data": "{}"})
        assert not sent.is_valid({"output": "what an event holds is no event"})
        page = await at.get(f"{P}/docs", None)
        assert (page.status_code, "Interface description" in page.text) == (200, True)


@requirement("S001-models-module")
@pytest.mark.parametrize(
    "name",
    [
        "UserMessage",
        "AgentTaskItem",
        "AgentTask",
        "TealAgentsResponse",
        "TealAgentsPartialResponse",
        "HitlResponse",
        "ResumeRequest",
        "RejectedToolResponse",
        "Session",
        "Request",
    ],
)
def test_model_is_found_in_its_module(name: str) -> None:
    assert hasattr(models, name)


@requirement(
    "S000-usermessage-no-inheritance",
    "S000-usermessage-no-chat-history",
    "S000-usermessage-optional-ids",
)
def test_user_message_is_the_current_message_alone() -> None:
    assert not issubclass(models.UserMessage, BaseMultiModalInput)
    assert "chat_history" not in models.UserMessage.model_fields
    sent = models.UserMessage.model_validate(message("hi", role="system", user_id="root"))
    assert (sent.session_id, sent.task_id) == (None, None)
    assert sent.model_dump().keys() == {
        "session_id",
        "task_id",
        "items",
        "user_context",
        "on_busy",
        "metadata",
        "expires_at",
    }
    with pytest.raises(ValidationError):
        models.UserMessage(items=[])


@requirement("S001-response", "S001-partial-response", "S002-response-fields")
def test_responses_have_the_ids_and_one_output() -> None:
    ids = {"session_id", "task_id", "request_id"}
    whole = models.TealAgentsResponse.model_fields.keys()
    assert whole == ids | {"output", "source", "token_usage", "extra_data"}
    partial = models.TealAgentsPartialResponse.model_fields.keys()
    assert partial == ids | {"output_partial", "source"}
