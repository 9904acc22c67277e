"""An agent of the OpenAI Agents SDK, written with the real library, served by us.

It needs an environment of its own, which takes long to install: `TEAL_CHAOS=full`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from sk_agents.testing.scripted_server import Chunks, send, whole_completion
from tests.authorities import environment_of_the_machine
from tests.demos.libraries import INSTALL_SECONDS, python_with
from tests.demos.served import ROOT, environment, running
from tests.missing import lacks
from tests.patience import seconds
from tests.requirements import requirement

logger = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.timeout(INSTALL_SECONDS + 100),
    # Installs the library, which takes a minute.
    pytest.mark.chaos,
]

CONFIG = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: TodoChatAgent
version: 0.1
spec:
  agent:
    name: default
    openai_agent: {reference}
    base_url: {url}
"""
AGENT = """
import sys
from pathlib import Path

from agents import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    ModelSettings,
    RunContextWrapper,
    ToolOutputText,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
)
from agents.extensions import handoff_filters
from agents.mcp import MCPServerStdio
from pydantic import BaseModel

from sk_agents.tools import ToolContext, ToolError, tool

NOTES = Path(__file__).with_name("notes.txt")


@tool(effect="read_only")
@function_tool
async def read_notes(context: RunContextWrapper[ToolContext], most: int = 5) -> list[str]:
    '''Read the user's notes.

    Args:
        most: How many of them.
    '''
    lines = NOTES.read_text().splitlines() if NOTES.exists() else []
    return [f"{context.context.user_id}: {line}" for line in lines[:most]]


@function_tool
def write_note(text: str, tags: list[str]) -> ToolOutputText:
    '''Keep a note.'''
    with NOTES.open("a") as file:
        file.write(text + "\\n")
    return ToolOutputText(text=f"kept {text!r} under {', '.join(tags)}")


@function_tool(needs_approval=True)
async def forget(everything: bool) -> str:
    '''Forget all notes.'''
    NOTES.unlink()
    return "forgotten"


@tool(effect="read_only")
@function_tool
def fail(openly: bool) -> str:
    raise ToolError("There is no ink.") if openly else RuntimeError("a secret")


agent = Agent(
    name="TodoChatAgent",
    instructions="You keep notes and tasks.",
    model="gpt-from-the-sdk",
    model_settings=ModelSettings(temperature=0.0, max_tokens=99),
    tools=[read_notes, write_note, forget, fail],
    mcp_servers=[
        MCPServerStdio(
            name="todo list",
            params={"command": sys.executable, "args": ["tasks_server.py"]},
            require_approval={"add_task": "always"},
        )
    ],
)
searching = agent.clone(tools=[WebSearchTool()])


async def extract(result):
    return "x"


extracting = agent.clone(
    tools=[agent.as_tool("ask", "Ask the other one.", custom_output_extractor=extract)]
)


class ModelHooks(AgentHooks):
    async def on_llm_end(self, context, agent, response):
        pass


watched = agent.clone(hooks=ModelHooks())


class Town(BaseModel):
    name: str
    people: int


@input_guardrail
async def no_sums(context, agent, said):
    return GuardrailFunctionOutput(said, tripwire_triggered="2 + 2" in said)


def told(context, agent):
    return f"You are {agent.name}, for {context.context.user_id}."


poet = Agent(name="Poet", instructions=told, output_type=Town)
booking = Agent(name="Booking", instructions="You book.", tools=[read_notes])
team = Agent(
    name="Front desk",
    instructions="You are the front desk.",
    model="gpt-from-the-sdk",
    input_guardrails=[no_sums],
    tools=[poet.as_tool("ask_poet", "Ask about towns.")],
    handoffs=[handoff(booking, input_filter=handoff_filters.remove_all_tools)],
)
"""
SERVER = """
from mcp.server import MCPServer

server = MCPServer("tasks")


@server.tool()
def add_task(title: str) -> str:
    return f"added {title!r}"


server.run("stdio")
"""


@pytest.fixture(scope="module")
def with_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("library"), "openai-agents")


def written(folder: Path, url: str, reference: str = "todo_agent.py:agent") -> Path:
    config = CONFIG.format(url=url, reference=reference)
    files = {"config.yaml": config, "todo_agent.py": AGENT, "tasks_server.py": SERVER}
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder / "config.yaml"


@asynccontextmanager
async def served(
    folder: Path, python: Path, script: Sequence[Turn], name: str = "agent"
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModelServer]]:
    async with ScriptedModelServer(script) as model, asyncio.timeout(seconds(60)):
        known = environment(
            folder, TA_STORE="memory:", PYTHONPATH=str(ROOT / "src"), OPENAI_API_KEY="none"
        )
        config = str(written(folder, model.base_url, f"todo_agent.py:{name}"))
        serve = [str(python), "-m", "sk_agents", "serve", config, "--port", "0"]
        with running(serve, folder, known) as address:
            async with httpx.AsyncClient(base_url=address, timeout=seconds(30)) as client:
                yield client, model


async def said(client: httpx.AsyncClient, text: str) -> dict[str, Any]:
    """What S003's endpoint answers."""
    body = {"user_message": text, "session_id": "s", "user_id": "ada"}
    reply = await client.post("/chat", json=body)
    assert reply.status_code == 200, reply.text
    document: dict[str, Any] = reply.json()
    return document


@requirement("S003-1.5-agents-sdk")
async def test_agent_of_the_real_sdk_asks_before_its_tools_act_and_answers(
    tmp_path: Path, with_library: Path
) -> None:
    script = [
        calls(
            ("write_note", {"text": "buy milk", "tags": ["shop", "soon"]}),
            ("forget", {"everything": True}),
            ("mcp_todo_list-add_task", {"title": "Buy milk"}),
        ),
        calls(
            ("read_notes", {}),
            ("fail", {"openly": True}),
            ("fail", {"openly": False}),
            ("read_notes", {"most": "two"}),
        ),
        says("You have one note and one task.", pieces=4),
    ]
    verdicts = {"write_note": True, "forget": False, "mcp_todo_list-add_task": True}
    async with served(tmp_path, with_library, script) as (client, model):
        paused = await said(client, "Remind me to buy milk")
        asked = {entry["tool_name"]: entry["approval_id"] for entry in paused["approvals"]}
        assert (paused["status"], asked.keys()) == ("Paused", verdicts.keys())
        assert not (tmp_path / "notes.txt").exists()
        for name, approved in verdicts.items():
            path = f"/approvals/{asked[name]}?user_id=ada"
            answer = await client.post(path, json={"approved": approved})
            assert answer.status_code == 200, answer.text
        events = f"/chats/s/interactions/{paused['request_id']}/events?user_id=ada"
        told = (await client.get(events)).text
    assert '"You have one note and one task."' in told
    first, second, third = model.requests
    assert first["messages"][0] == {"role": "system", "content": "You keep notes and tasks."}
    assert (first["model"], first["temperature"]) == ("gpt-from-the-sdk", 0.0)
    assert first["max_tokens"] == 99
    note, forgotten, task = results(second)
    assert note == "kept 'buy milk' under shop, soon"
    assert "ada" in forgotten and "forgotten" not in forgotten
    assert task == "added 'Buy milk'"
    read, told_why, failed, wrong = results(third)[3:]
    assert read == '["ada: buy milk"]'
    assert told_why == "There is no ink."
    assert failed == "The tool failed (code tool_failed)."
    assert "most: 'two' is not of type 'integer'" in wrong


@requirement("S003-1.5-agents-sdk")
async def test_team_of_the_real_sdk_hands_over_delegates_and_is_guarded(
    tmp_path: Path, with_library: Path
) -> None:
    script = [
        calls(("ask_poet", {"input": "A town"})),
        says('{"name": "Bern", "people": 2}'),
        calls(("transfer_to_booking", {})),
        says("Booked."),
    ]
    async with served(tmp_path, with_library, script, "team") as (client, model):
        refused = await client.post(
            "/chat", json={"user_message": "What is 2 + 2?", "session_id": "g", "user_id": "ada"}
        )
        assert "The input guardrail 'no_sums' stopped the run." in refused.text
        assert (await said(client, "Hello"))["response"] == "Booked."
    first, nested, third, last = model.requests
    offered = [tool["function"]["name"] for tool in first["tools"]]
    assert offered == ["ask_poet", "transfer_to_booking"]
    assert nested["messages"][0]["content"] == "You are Poet, for ada."
    assert nested["response_format"]["json_schema"]["strict"] is True
    assert results(third) == ['{"name": "Bern", "people": 2}']
    # The filter has taken the calls out of what the next agent sees.
    assert last["messages"] == [
        {"role": "system", "content": "You book."},
        {"role": "user", "content": "Hello"},
    ]


def results(request: dict[str, Any]) -> list[str]:
    return [entry["content"] for entry in request["messages"] if entry["role"] == "tool"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("searching", "a WebSearchTool does not run here; function tools do"),
        ("extracting", "tool 'ask': custom_output_extractor is not supported here"),
        ("watched", "hooks: on_llm_end is not called here"),
    ],
)
def test_agent_of_the_real_sdk_that_asks_for_more_stops_start_up(
    tmp_path: Path, with_library: Path, name: str, reason: str
) -> None:
    config = written(tmp_path, "http://127.0.0.1:9/v1", f"todo_agent.py:{name}")
    known = environment(
        tmp_path, TA_STORE="memory:", PYTHONPATH=str(ROOT / "src"), OPENAI_API_KEY="none"
    )
    command = [str(with_library), "-m", "sk_agents", "serve", str(config), "--port", "0"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=known, capture_output=True, text=True, timeout=seconds(60)
    )
    assert ended.returncode == 78
    assert f"{config}: spec.agent.openai_agent: {reason}" in ended.stderr


class ObligingModel(ScriptedModelServer):
    """Hands over or asks another agent where that is offered, then says what fits the schema."""

    def __init__(self) -> None:
        super().__init__(())

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        turn = self._turn(body)
        if not body.get("stream"):
            return web.json_response(await whole_completion(body, turn))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await send(request, response, turn, Chunks("scripted", with_usage=False))
        return response

    def _turn(self, body: dict[str, Any]) -> Turn:
        has_called = any(message["role"] == "tool" for message in body["messages"])
        for tool in [] if has_called else body.get("tools", []):
            function = tool["function"]
            properties = function["parameters"].get("properties", {})
            if function["name"].startswith("transfer_to_") or [*properties] == ["input"]:
                return calls((function["name"], sample(function["parameters"])))
        wanted = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return says(json.dumps(sample(wanted)) if wanted else "Done.")


def sample(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """The plainest value that fits the schema."""
    root = root if root is not None else schema
    if "$ref" in schema:
        return sample(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return sample(schema[several][0], root)
    match schema.get("type"):
        case "object":
            return {name: sample(each, root) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema["items"], root)] * schema.get("minItems", 0)
        case "string":
            return "x" * schema.get("minLength", 1)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
    return None


@pytest.fixture(scope="module")
def sdk_source(tmp_path_factory: pytest.TempPathFactory, with_library: Path) -> Path:
    """The source archive of the installed version, which has the examples in it."""
    folder = tmp_path_factory.mktemp("source")
    asked = "import importlib.metadata; print(importlib.metadata.version('openai-agents'))"
    version = subprocess.run([str(with_library), "-c", asked], capture_output=True, text=True)
    name = f"openai-agents=={version.stdout.strip()}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "openai-agents"]
    try:
        subprocess.run(
            [*command, "-d", str(folder), name],
            env=environment_of_the_machine(),
            check=True,
            capture_output=True,
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        lacks("libraries", f"NOT TESTED: the examples cannot be downloaded: {error}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    return source


@requirement("S003-1.5-agents-sdk")
async def test_most_agents_of_the_sdk_s_own_examples_are_served_and_answer(
    tmp_path: Path, with_library: Path, sdk_source: Path
) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    module = tmp_path / "sdk_examples.py"
    module.write_text((ROOT / "tests" / "demos" / module.name).read_text())
    module.chmod(0o600)
    async with ObligingModel() as model, asyncio.timeout(seconds(300)):
        known = environment(
            tmp_path,
            TA_STORE="memory:",
            PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{tmp_path}",
            OPENAI_API_KEY="none",
            OPENAI_BASE_URL=model.base_url,
            SDK_EXAMPLES=str(sdk_source),
            EXAMPLE_BASE_URL=model.base_url,
            EXAMPLE_API_KEY="none",
            EXAMPLE_MODEL_NAME="scripted",
        )
        rows = await asyncio.to_thread(collected, with_library, agents, model.base_url, known)
        plain = [row for row in rows if row["kind"] == "Agent"]
        for number, row in enumerate(rows):
            if row["problem"] is not None:
                (agents / f"agent_{number}.yaml").unlink()
        serve = [str(with_library), "-m", "sk_agents", "serve", str(agents), "--port", "0"]
        with running(serve, tmp_path, known) as address:
            async with httpx.AsyncClient(base_url=address, timeout=seconds(60)) as client:
                for number, row in enumerate(rows):
                    if row["problem"] is None:
                        row["problem"] = await no_answer(client, f"agent_{number}")
    refused = [f"{row['example']} {row['name']}: {row['problem']}" for row in plain]
    good = sum(row["problem"] is None for row in plain)
    logger.info("%d of %d agents of the examples answer", good, len(plain))
    assert len(plain) >= 103
    # Nine tenths of 103, and as large a part of however many there are.
    assert good >= 90 and good / len(plain) >= 0.87, "\n".join(refused)


def collected(python: Path, folder: Path, url: str, known: dict[str, str]) -> list[dict[str, Any]]:
    script = (
        "import pathlib, sys, sdk_examples;"
        "sdk_examples.report(pathlib.Path(sys.argv[1]), sys.argv[2])"
    )
    command = [str(python), "-c", script, str(folder), url]
    ended = subprocess.run(
        command, env=known, cwd=folder, capture_output=True, text=True, timeout=seconds(200)
    )
    assert ended.returncode == 0, ended.stderr
    rows: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return rows


async def no_answer(client: httpx.AsyncClient, agent: str) -> str | None:
    """Hold a turn with it, refusing what it asks: why it did not come to an answer, if so."""
    body = {"user_message": "Hello", "agent": agent}
    path = f"/chats/{agent}/interactions"
    told = ""
    async with client.stream("POST", path, json=body) as stream:
        async for line in stream.aiter_lines():
            told += f"{line}\n"
            if not line.startswith("data: "):
                continue
            data = json.loads(line.removeprefix("data: "))
            if "approval_id" in data and "tool_name" in data and "by" not in data:
                verdict = {"approval_id": data["approval_id"], "approved": False}
                await client.post(f"{path}/{data['interaction_id']}/approve", json=verdict)
    return None if '"status":"COMPLETED"' in told else told[-400:]
