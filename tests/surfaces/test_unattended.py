"""Where nobody can be asked, a tool that says it needs approval does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.surfaces.sk_server import AGENT, CHAT, HELLO, P, serving

PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool


class Bank(BasePlugin):
    @tool(requires_approval=True)
    @kernel_function(description="Pay.")
    def pay(self, cents: int) -> str:
        return "paid"

    @kernel_function(description="Look.")
    def look(self) -> str:
        return "seen"
"""
SCRIPT = [calls(("Bank-pay", {"cents": 1}), ("Bank-look", {})), says("done")]


@pytest.mark.parametrize("config", [CHAT, AGENT], ids=["v1", "v2alpha1"])
async def test_a_declared_approval_is_a_refusal_where_nobody_can_be_asked(
    tmp_path: Path, config: str
) -> None:
    config = config.replace("    system_prompt:", "    plugins: [Bank]\n    system_prompt:")
    files = {"custom_plugins": PLUGIN}
    async with serving(tmp_path, config, SCRIPT, files=files) as server:
        response = await server.client.post(P, json=HELLO)
        assert response.status_code == 200, response.text
        told = [m["content"] for m in server.model.requests[-1]["messages"] if m["role"] == "tool"]
    assert told == ["This call is not allowed by policy. It did not run.", "seen"]
