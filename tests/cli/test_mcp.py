"""`teal mcp`: changed tools are listed, and used again once the operator agrees."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from sk_agents.tools.mcp.pins import Pins, pins_path
from tests.forked_python import PYTHON
from tests.patience import seconds


def teal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-m", "sk_agents", "mcp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(60), check=False)


def test_a_changed_tool_waits_until_the_operator_agrees(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/chats.sqlite"
    pins = Pins(pins_path(store))
    pins.judge("files", {"read": "a", "write": "b"}, takes_new=False)
    assert teal("withheld", "--store", store).stdout == ""
    pins.judge("files", {"read": "a", "write": "changed"}, takes_new=False)
    waiting = json.loads(teal("withheld", "--store", store, "--json").stdout)
    assert [(tool["tool"], tool["why"]) for tool in waiting] == [("write", "changed")]
    assert teal("agree", "files", "read", "--store", store).returncode == 1
    assert "write\tchanged" in teal("agree", "files", "--store", store).stdout
    assert teal("withheld", "--store", store).stdout == ""
    assert pins.judge("files", {"read": "a", "write": "changed"}, takes_new=False) == {}
