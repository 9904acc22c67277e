"""The demos with MCP servers, served as they are."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.testing.scripted_model import calls, says
from tests.patience import seconds
from tests.surfaces.todo_house import Instance, house, instance, served

DEMOS = Path(__file__).parent.parent.parent / "demos"
Json = dict[str, Any]


async def settled(at: Instance, path: str) -> Json:
    """An interaction once it has ended."""
    async with asyncio.timeout(seconds(20)):
        while True:
            found: Json = (await at.http.get(f"{at.url}{path}?user_id=ada")).json()
            if found["status"] not in {"RUNNING", "WAITING_APPROVAL"}:
                return found
            await asyncio.sleep(0.02)


async def decided(at: Instance, reply: Json, **body: Any) -> Json:
    """What became of a paused turn."""
    (approval,) = reply["approvals"]
    answer = await at.http.post(
        f"{at.url}/approvals/{approval['approval_id']}?user_id=ada", json={"approved": True, **body}
    )
    assert answer.status_code == 200, answer.text
    return await settled(at, f"/chats/s/interactions/{reply['request_id']}")


async def test_todo_demo_does_what_its_page_says(tmp_path: Path) -> None:
    agent = DEMOS / "todo" / "config.yaml"
    async with instance(agent, tmp_path, tmp_path / "teal.sqlite") as at:
        added = await at.post("Remind me to buy milk")
        assert added["response"] == "It is on your list: buy milk."
        assert "buy milk" in (await at.post("What is on my list?"))["response"]
        assert (await at.post("I have done task 1"))["response"].startswith("Well done.")
        paused = await at.post("Delete task 1")
        assert paused["status"] == "Paused"
        gone = await decided(at, paused)
        assert gone["agent_events"][-1]["content"] == "It is gone."
        other = await at.post("What is on my list?", user="bob")
    assert '"tasks": []' in other["response"]
    assert (tmp_path / ".local/share/teal-agents/todo.sqlite").exists()


async def test_mcp_demo_does_what_its_page_says(tmp_path: Path) -> None:
    agent = DEMOS / "mcp" / "config.yaml"
    async with instance(agent, tmp_path, tmp_path / "teal.sqlite") as at:
        told = await at.post("What is the weather in Oslo?")
        assert told["response"] == "In Oslo: rain, 6 degrees."
        paused = await at.post("Measure again")
        assert paused["approvals"][0]["kind"] == "tool"
        measured = await decided(at, paused)
        assert measured["agent_events"][-1]["content"] == "Done: 3 stations measured."
        asked = await at.post("Subscribe me")
        assert asked["approvals"][0]["kind"] == "question"
        subscribed = await decided(at, asked, answer={"city": "Lisbon"})
        answer = subscribed["agent_events"][-1]["content"]
    assert answer == "You get reports about Lisbon from tomorrow on."


async def test_rule_about_a_tool_that_is_not_there_yet_is_kept(tmp_path: Path) -> None:
    script = [calls(("mcp_todo-add_task", {"title": "x"})), says("I may not.")]
    async with house(tmp_path, script) as at:
        path = at.agent_file()
        document = yaml.safe_load(path.read_text())
        rule = {"tool": "mcp_todo-add_task", "then": "deny"}
        document["spec"]["agent"]["approvals"] = {"rules": [rule]}
        async with served(at, document=document) as client:
            reply = await client.say("Remind me")
        assert "not allowed by policy" in reply["tool_calls"][0]["result"]
        assert await at.tasks("ada") == []


def test_server_s_tools_are_refused_where_nobody_can_be_asked(tmp_path: Path) -> None:
    document = yaml.safe_load((DEMOS / "todo" / "config.yaml").read_text())
    document["apiVersion"] = "skagents/v2alpha1"
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigurationError, match="mcp_servers needs tealagents/v1alpha1"):
        create_app(Settings(store="memory:"), load_agent_files([path]))
