"""What `docs/mcp.md` says is not done: a server that offers it all is not asked for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.mcp.context import McpContext
from sk_agents.tools.mcp.servers import McpSource
from sk_agents.wire.requests import FillPrompt, ReadResource
from tests.forked_python import PYTHON
from tests.tools.calls import result
from tests.tools.mcp_servers.running import HERE, Running, running

OLD = "2025-11-25"
USED = {
    "initialize",
    "notifications/initialized",
    "logging/setLevel",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
}


def recording(folder: Path, **fields: Any) -> dict[str, Any]:
    args = [str(HERE / "recording.py"), str(folder)]
    return {
        "name": "recording",
        "command": PYTHON,
        "args": args,
        "protocol_version": OLD,
        "trust_level": "trusted",
        **fields,
    }


def sent(at: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in at.notes]


def declared(at: Running) -> Any:
    return sent(at)[0]["params"]["capabilities"]


async def test_only_what_is_done_is_declared(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    spaces = Workspaces(tmp_path / "space", "everyone")
    async with running(tmp_path, recording(tmp_path), workspaces=spaces) as at:
        assert declared(at) == {
            # Neither tools nor what other servers know.
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "roots": {"listChanged": True},
        }


async def test_what_the_operator_switches_off_is_not_declared(tmp_path: Path) -> None:
    async with running(tmp_path, recording(tmp_path, sampling="off")) as at:
        assert declared(at).keys() == {"elicitation"}


async def test_tool_that_runs_as_a_task_only_is_not_offered(tmp_path: Path) -> None:
    async with running(tmp_path, recording(tmp_path)) as at:
        own = {name for name in at.names if "resource" not in name}
        assert own == {"mcp_recording-plain", "mcp_recording-either"}
        with pytest.raises(ToolError, match="no tool"):
            await result(at.box, "mcp_recording-task")
        assert (await result(at.box, "mcp_recording-either")).content == "done"
        (call,) = [one for one in sent(at) if one["method"] == "tools/call"]
        assert "task" not in call["params"]


async def test_resources_are_not_subscribed_to_and_arguments_not_completed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, recording(tmp_path)) as at:
        servers = McpContext({"a": McpSource(list(at.servers.connections))})
        await result(at.box, "mcp_recording-plain")
        await result(at.box, "mcp_recording-read_resource", {"uri": "note://1"})
        await servers.read("a", "u", ReadResource(server="recording", uri="note://1"))
        filled = FillPrompt(server="recording", name="p", arguments={"a": "x"})
        assert (await servers.filled("a", "u", filled)).user_message == "hi"
        methods = {one["method"] for one in sent(at)}
        assert methods <= USED and {"resources/read", "prompts/get"} <= methods
