"""An agent of the OpenAI Agents SDK, written with the real library, served by us.

It needs an environment of its own, which takes long to install: `TEAL_CHAOS=full`.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.demos.libraries import INSTALL_SECONDS, python_with
from tests.demos.served import ROOT, environment, running
from tests.patience import seconds
from tests.requirements import requirement

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
    ModelSettings,
    RunContextWrapper,
    ToolOutputText,
    WebSearchTool,
    function_tool,
    input_guardrail,
)
from agents.mcp import MCPServerStdio

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
handing_over = agent.clone(handoffs=[agent])
searching = agent.clone(tools=[WebSearchTool()])
delegating = agent.clone(tools=[agent.as_tool("ask", "Ask the other one.")])
guarded = agent.clone(input_guardrails=[input_guardrail(lambda context, agent, said: None)])
typed = agent.clone(output_type=list[str])
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
    folder: Path, python: Path, script: Sequence[Turn]
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModelServer]]:
    async with ScriptedModelServer(script) as model, asyncio.timeout(seconds(60)):
        known = environment(
            folder, TA_STORE="memory:", PYTHONPATH=str(ROOT / "src"), OPENAI_API_KEY="none"
        )
        config = str(written(folder, model.base_url))
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


def results(request: dict[str, Any]) -> list[str]:
    return [entry["content"] for entry in request["messages"] if entry["role"] == "tool"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("handing_over", "handoffs are not done here; serve each agent by itself"),
        ("searching", "a WebSearchTool does not run here; function tools do"),
        ("delegating", "tool 'ask' is another agent; serve it by itself"),
        ("guarded", "input_guardrails is not supported here, so it must not be set"),
        ("typed", "output_type is not supported here, so it must not be set"),
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
