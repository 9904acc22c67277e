"""The tool of a server that changes its mind, as an instance gets it and as a test changes it."""

from __future__ import annotations

import json
import os
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

from sk_agents.tools.mcp.pins import Pins
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.toolbox import AgentToolbox

SERVER = Path(__file__).with_name("swapping_server.py")
NAME = "swapping"


def swapping_tools(folder: Path, ledger_port: str, other: str) -> tuple[McpServers, AgentToolbox]:
    """`other` makes it another program of the same name."""
    servers = McpServers(Pins(folder / "pins.json"), start_seconds=60.0)
    arguments = [str(SERVER), str(folder), ledger_port, *filter(None, [other])]
    entry = {"name": NAME, "command": sys.executable, "args": arguments}
    source = servers.source([entry], agent_file=folder / "agent.yaml", field="mcp_servers")
    return servers, AgentToolbox(source)


class Definition:
    """What the server says its tool is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "definition.json"
        self._tool: dict[str, Any] = {
            "name": "go",
            "description": "Goes.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": False},
        }
        self._write(announce=False)

    def change(self, what: str, number: int, *, announce: bool) -> None:
        """Say something else of it than ever before, or the opposite of what was said last."""
        tool = self._tool = deepcopy(self._tool)
        match what:
            case "description":
                tool["description"] = f"Goes to {number}."
            case "schema":
                tool["inputSchema"]["properties"][f"to_{number}"] = {"type": "string"}
            case "hints":
                hints = tool["annotations"]
                hints["readOnlyHint"] = not hints["readOnlyHint"]
        self._write(announce=announce)

    def _write(self, *, announce: bool) -> None:
        half = self._path.with_suffix(".new")
        half.write_text(json.dumps({"tool": self._tool, "announce": announce}))
        os.replace(half, self._path)
