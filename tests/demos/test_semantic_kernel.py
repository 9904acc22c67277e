"""One plugin file, unmodified, without semantic-kernel and with it.

The second needs an environment of its own, which takes long to install: `TEAL_CHAOS=full`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ModelError
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.demos.libraries import INSTALL_SECONDS, python_with
from tests.demos.served import DEMOS, ROOT, environment, git_repository, running
from tests.demos.test_readmes import ALONE
from tests.patience import seconds

USAGE = Usage(prompt_tokens=7, completion_tokens=3)
DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMB"
    "AQDJ/pLvAAAAAElFTkSuQmCC"
)
CONFIG = """
apiVersion: skagents/v1
kind: Sequential
service_name: Boxes
version: 0.1
input_type: Order
output_type: Packed
spec:
  agents:
    - name: default
      role: Packer
      model: scripted/script.yaml
      system_prompt: You pack boxes.
      plugins: [Boxes]
  tasks:
    - name: pack
      task_no: 1
      instructions: "Pack {{ thing.name }}."
      agent: default
"""
SCRIPT = """
rules:
  - match: "Pack (?P<name>\\\\w+)"
    turns:
      - calls: [{tool: Boxes-pack, arguments: {thing: {name: "{name}", weight: 2.5}}}]
      - cases:
          - when: {result: '^\\[{"label":"globe","fragile":false}\\]$'}
            calls: [{tool: Boxes-which_library, arguments: {}}]
        text: That is not a globe in a box.
      - text: '{"library": "{result}"}'
turns: [{text: "no"}]
"""
TYPES = """
from semantic_kernel.kernel_pydantic import KernelBaseModel


class Thing(KernelBaseModel):
    name: str


class Order(KernelBaseModel):
    thing: Thing


class Packed(KernelBaseModel):
    library: str
"""
PLUGINS = """
import importlib.util
from typing import Annotated

from semantic_kernel.functions.kernel_function_decorator import kernel_function
from semantic_kernel.kernel_pydantic import KernelBaseModel

from sk_agents.ska_types import BasePlugin


class Thing(KernelBaseModel):
    name: str
    weight: float


class Box(KernelBaseModel):
    label: str
    fragile: bool = False


class Boxes(BasePlugin):
    @kernel_function(name="pack", description="Pack a thing.")
    async def pack_it(self, thing: Annotated[Thing, "What to pack"], copies: int = 1) -> list[Box]:
        self.extra_data_collector.add_extra_data("weight", str(thing.weight * copies))
        return [Box(label=thing.name)] * copies

    @kernel_function
    def which_library(self) -> str:
        "Where semantic-kernel comes from."
        import semantic_kernel

        return "stub" if "kernel_stub" in str(semantic_kernel.__spec__.origin) else "library"
"""


CHAT_CONFIG = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: Packer
version: 0.1
spec:
  agent:
    name: default
    model: from-the-factory
    system_prompt: You pack boxes.
    temperature: 0.0
    plugins: [Boxes]
    approvals: {default: allow}
"""
FACTORY = """
from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from sk_agents.configs import TA_API_KEY
from ska_utils import AppConfig, Config

URL = Config(env_name="MODEL_URL", is_required=True, default_value=None)


class Clients:
    def __init__(self, app_config: AppConfig):
        self.url = app_config.get(URL.env_name)

    @staticmethod
    def get_configs():
        return [URL]

    def get_chat_completion_for_model_name(
        self, model_name: str, service_id: str
    ) -> ChatCompletionClientBase:
        client = AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
        return OpenAIChatCompletion(
            ai_model_id=model_name, service_id=service_id, async_client=client
        )

    def model_supports_structured_output(self, model_name: str) -> bool:
        return True
"""


def written(folder: Path, config: str = CONFIG) -> Path:
    files = {
        "config.yaml": config,
        "factory.py": FACTORY,
        "script.yaml": SCRIPT,
        "custom_types.py": TYPES,
        "custom_plugins.py": PLUGINS,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder / "config.yaml"


def packed(folder: Path, python: Path, **values: str) -> httpx.Response:
    """What a server under this Python answers."""
    serve = [str(python), "-m", "sk_agents", "serve", str(written(folder)), "--port", "0"]
    known = environment(folder, TA_STORE="memory:", **values)
    with running(serve, folder, known) as address:
        return httpx.post(
            f"{address}/Boxes/0.1", json={"thing": {"name": "globe"}}, timeout=seconds(30)
        )


def check(reply: httpx.Response, library: str) -> None:
    assert reply.status_code == 200, reply.text
    document = reply.json()
    assert document["extra_data"] == {"items": [{"key": "weight", "value": "2.5"}]}
    assert document["output_pydantic"] == {"library": library}


def test_plugin_file_runs_unmodified_without_semantic_kernel(tmp_path: Path) -> None:
    probe = "import importlib.util as u; print(u.find_spec('semantic_kernel'))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert found.stdout.strip() == "None", "semantic-kernel is installed: this shows nothing"
    check(packed(tmp_path, Path(sys.executable)), "stub")


@pytest.fixture(scope="module")
def with_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    # It uses httpx without asking for it. Ours is installed, too, for its command.
    return python_with(folder, "semantic-kernel", "httpx", str(ROOT))


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.chaos
def test_same_plugin_file_runs_with_the_real_semantic_kernel(
    tmp_path: Path, with_library: Path
) -> None:
    check(packed(tmp_path, with_library, PYTHONPATH=str(ROOT / "src")), "library")


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.chaos
@pytest.mark.parametrize("name", ALONE)
def test_demo_starts_beside_the_real_semantic_kernel(
    tmp_path: Path, with_library: Path, name: str
) -> None:
    values = environment(tmp_path, TA_STORE="memory:", PATH=beside(with_library))
    with running(["teal", "serve", str(DEMOS / name), "--port", "0"], tmp_path, values) as address:
        assert httpx.get(f"{address}/agents", timeout=seconds(30)).json()["agents"]


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.chaos
def test_agent_out_of_a_git_repository_is_served_beside_the_real_semantic_kernel(
    tmp_path: Path, with_library: Path
) -> None:
    values = {**git_repository(tmp_path), "PATH": beside(with_library)}
    script = DEMOS / "06_deployment_github" / "serve.sh"
    with running([str(script), "--port", "0"], tmp_path, values) as address:
        body = {"chat_history": [{"role": "user", "content": "How warm is it in Oslo?"}]}
        reply = httpx.post(f"{address}/WeatherChat/0.1", json=body, timeout=seconds(30)).json()
    assert '"temperature":-4.0' in reply["output_raw"]


def beside(python: Path) -> str:
    """A search path on which the commands of this environment come first."""
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


@asynccontextmanager
async def factory_served(
    folder: Path, python: Path, script: Sequence[Turn | Exception]
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModelServer]]:
    """A server whose models come from the factory, and the provider behind them."""
    async with ScriptedModelServer(script) as model, asyncio.timeout(seconds(60)):
        known = environment(
            folder,
            TA_STORE="memory:",
            PYTHONPATH=str(ROOT / "src"),
            MODEL_URL=model.base_url,
            TA_CUSTOM_CHAT_COMPLETION_FACTORY_MODULE=str(folder / "factory.py"),
            TA_CUSTOM_CHAT_COMPLETION_FACTORY_CLASS_NAME="Clients",
        )
        config = str(written(folder, CHAT_CONFIG))
        serve = [str(python), "-m", "sk_agents", "serve", config, "--port", "0"]
        with running(serve, folder, known) as address:
            async with httpx.AsyncClient(base_url=address, timeout=seconds(30)) as client:
                yield client, model


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.chaos
async def test_client_of_the_real_library_streams_a_turn_with_a_tool(
    tmp_path: Path, with_library: Path
) -> None:
    shown = asyncio.Event()
    asked = calls(("Boxes-pack", {"thing": {"name": "globe", "weight": 2.5}}), usage=USAGE)
    answer: Turn = [
        TextDelta("The globe "),
        shown,
        TextDelta("is packed."),
        TurnFinished("stop", USAGE),
    ]
    frames: list[tuple[str, dict[str, Any]]] = []
    async with (
        factory_served(tmp_path, with_library, [asked, answer]) as (client, model),
        httpx_sse.aconnect_sse(
            client, "POST", "/chats/c/interactions", json={"user_message": "Pack it."}
        ) as source,
    ):
        async for event in source.aiter_sse():
            frames.append((event.event, event.json() if event.data else {}))
            if event.event == "answer_delta":
                # The model goes on only now: what was shown had been streamed.
                shown.set()
    seen = dict(frames)
    assert seen["tool_call"]["tool_name"] == "Boxes-pack"
    assert seen["tool_result"]["tool_output"] == '[{"label":"globe","fragile":false}]'
    assert seen["answer"]["content"] == "The globe is packed."
    usage = seen["interaction_complete"]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (14, 6)
    first, second = model.requests
    assert (first["model"], first["temperature"]) == ("from-the-factory", 0.0)
    tools = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert tools.keys() == {"Boxes-pack", "Boxes-which_library"}
    thing = tools["Boxes-pack"]["parameters"]["properties"]["thing"]
    assert (thing["required"], thing["description"]) == (["name", "weight"], "What to pack")
    roles = [message["role"] for message in second["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    proposed, result = second["messages"][2:]
    assert proposed["tool_calls"][0]["function"]["name"] == "Boxes-pack"
    assert proposed["tool_calls"][0]["id"] == result["tool_call_id"]
    assert result["content"] == '[{"label":"globe","fragile":false}]'


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.chaos
async def test_client_of_the_real_library_shows_an_image_and_its_provider_s_refusals(
    tmp_path: Path, with_library: Path
) -> None:
    busy = ModelError("slow down", status=429)
    wrong = ModelError("its own words", status=404)
    script: list[Turn | Exception] = [busy, says("A dot."), wrong]
    async with factory_served(tmp_path, with_library, script) as (client, model):
        body = {"user_message": "What is it?", "items": [{"content_type": "image", "content": DOT}]}
        passing = await client.post("/chats/c/interactions", json=body)
        final = await client.post("/chats/c/interactions", json={"user_message": "And now?"})
    assert '"A dot."' in passing.text
    assert "the provider answered 404: no such model, or a wrong base URL" in final.text
    assert "its own words" not in final.text
    text, image = model.requests[1]["messages"][1]["content"]
    assert (text["type"], image["image_url"]["url"]) == ("text", DOT)
