"""One server, three API versions side by side: each file is served by its own, and only by it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError, ModelRefused
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, says
from tests.requirements import requirement
from tests.surfaces.sk_server import until

FILE = """
apiVersion: {api}
kind: {kind}
{name_field}: {name}
version: 0.1
{more}
spec:
  agent:
    name: default
    model: x
    base_url: {url}
    system_prompt: You are {name}.
"""
VERSIONS = {
    "Old": ("skagents/v1", "Chat", "service_name", "input_type: BaseInput"),
    "New": ("skagents/v2alpha1", "Agent", "name", ""),
    "Stateful": ("tealagents/v1alpha1", "Agent", "name", ""),
}
INPUTS: dict[str, dict[str, Any]] = {
    "Old": {"chat_history": [{"role": "user", "content": "hi"}]},
    "New": {
        "chat_history": [{"role": "user", "items": [{"content_type": "text", "content": "hi"}]}]
    },
    "Stateful": {"items": [{"content_type": "text", "content": "hi"}]},
}


def write_file(folder: Path, name: str, url: str) -> Path:
    api, kind, name_field, more = VERSIONS[name]
    path = folder / f"{name}.yaml"
    path.write_text(
        FILE.format(api=api, kind=kind, name_field=name_field, name=name, more=more, url=url)
    )
    return path


@asynccontextmanager
async def serving(
    folder: Path, script: list[Turn | Exception]
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModelServer]]:
    async with ScriptedModelServer(script) as model:
        files = load_agent_files([write_file(folder, name, model.base_url) for name in VERSIONS])
        app = create_app(Settings(store="memory:"), files)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            yield client, model


async def ask(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    response = await client.post(f"/{name}/0.1", json=INPUTS[name])
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


@requirement("S000-app-detection", "S001-routes-first-token")
async def test_each_file_is_served_by_the_api_it_names(tmp_path: Path) -> None:
    async with serving(tmp_path, [says(name) for name in VERSIONS]) as (client, model):
        replies = {name: await ask(client, name) for name in VERSIONS}
        resumes = {
            name: (await client.post(f"/{name}/0.1/resume/x", json={})).status_code
            for name in VERSIONS
        }
    assert {name: "task_id" in reply for name, reply in replies.items()} == {
        "Old": False,
        "New": False,
        "Stateful": True,
    }
    assert replies["Old"]["output_raw"] == "Old" and replies["Stateful"]["output"] == "Stateful"
    assert (resumes["Old"], resumes["New"]) == (404, 404) and resumes["Stateful"] == 422
    assert [request["messages"][0]["content"] for request in model.requests] == [
        f"You are {name}." for name in VERSIONS
    ]


@requirement("S001-isolation-errors")
@pytest.mark.parametrize("failing", VERSIONS)
async def test_an_error_of_one_version_is_not_the_others(tmp_path: Path, failing: str) -> None:
    others = [name for name in VERSIONS if name != failing]
    script: list[Turn | Exception] = [ModelRefused(status=400), *(says(name) for name in others)]
    async with serving(tmp_path, script) as (client, _):
        broken = await client.post(f"/{failing}/0.1", json=INPUTS[failing])
        replies = [await ask(client, name) for name in others]
    assert broken.status_code >= 400
    assert [reply.get("output_raw", reply.get("output")) for reply in replies] == others


@requirement("S001-isolation-no-shared-state")
async def test_what_happens_in_a_task_changes_no_stateless_answer(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn | Exception] = [says("old"), [gate, *says("task")], says("old"), says("new")]
    async with serving(tmp_path, script) as (client, model):
        before = await ask(client, "Old")
        task = asyncio.ensure_future(ask(client, "Stateful"))
        await until(lambda: _has_asked(model, 2))
        during = await ask(client, "Old")
        await ask(client, "New")
        gate.set()
        await task
    assert before["output_raw"] == during["output_raw"] == "old"
    first, _, second, _ = model.requests
    assert first == second


def break_down(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change every function and method of a package to one that fails."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{package} is broken")

    for name, module in list(sys.modules.items()):
        if name.partition(f"{package}.")[0] or not isinstance(module, ModuleType):
            continue
        for owner in [module, *filter(inspect.isclass, vars(module).values())]:
            if owner is module or owner.__module__ == name:
                for key, value in list(vars(owner).items()):
                    if inspect.isfunction(value) and not key.startswith("__"):
                        monkeypatch.setattr(owner, key, fail)


@requirement("S001-isolation-behaviour")
async def test_stateless_answers_stay_the_same_when_tealagents_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("Old", "New", "Stateful", "Old", "New")
    script: list[Turn | Exception] = [says(name) for name in names]
    async with serving(tmp_path, script) as (client, model):
        before = [await ask(client, name) for name in ("Old", "New")]
        await ask(client, "Stateful")
        break_down("sk_agents.tealagents", monkeypatch)
        broken = await client.post("/Stateful/0.1", json=INPUTS["Stateful"])
        assert broken.status_code == 500
        after = [await ask(client, name) for name in ("Old", "New")]
    assert [reply["output_raw"] for reply in after] == ["Old", "New"]
    assert after == [{**one, **_ids(other)} for one, other in zip(before, after, strict=True)]
    assert model.requests[:2] == model.requests[3:]


def _ids(reply: dict[str, Any]) -> dict[str, Any]:
    """What is made new for each request."""
    return {key: value for key, value in reply.items() if key.endswith("_id")}


async def _has_asked(model: ScriptedModelServer, times: int) -> bool:
    return len(model.requests) >= times


FACTORY = """
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.ska_types import ChatCompletionFactory, ModelType


class Mine:
    async def stream(self, prompt):
        yield [TextDelta("from the factory"), TurnFinished()]


class Factory(ChatCompletionFactory):
    def get_chat_completion_for_model_name(self, model_name, service_id):
        return Mine()

    def get_model_type_for_name(self, model_name):
        return ModelType.OPENAI

    def model_supports_structured_output(self, model_name):
        return False
"""


@requirement("S002-loop-model-client")
@pytest.mark.parametrize("name", VERSIONS)
async def test_a_factory_of_the_operators_own_supplies_the_model(tmp_path: Path, name: str) -> None:
    factory = tmp_path / "factory.py"
    factory.write_text(FACTORY)
    factory.chmod(0o600)
    settings = Settings(
        store="memory:",
        custom_chat_completion_factory_module=str(factory),
        custom_chat_completion_factory_class_name="Factory",
    )
    files = load_agent_files([write_file(tmp_path, name, "http://127.0.0.1:9/v1")])
    app = create_app(settings, files)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        reply = await ask(client, name)
    assert reply.get("output_raw", reply.get("output")) == "from the factory"


@requirement("S001-app-unsupported-version")
@pytest.mark.parametrize("api", ["tealagents/v2", "tealagents", "other/v1", ""])
def test_an_unknown_version_stops_start_up_with_file_and_field(tmp_path: Path, api: str) -> None:
    path = write_file(tmp_path, "Stateful", "http://127.0.0.1:9/v1")
    path.write_text(path.read_text().replace("tealagents/v1alpha1", api))
    with pytest.raises(ConfigurationError, match="apiVersion") as caught:
        load_agent_files([path])
    assert str(path) in str(caught.value)
