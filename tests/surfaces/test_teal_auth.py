"""Tools that act in their caller's name, behind Teal's APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import serving
from tests.surfaces import sk_server
from tests.surfaces.teal_server import message

PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool


class Bank(BasePlugin):
    requires_authorization = True

    @tool(effect="read_only")
    @kernel_function(description="How much is there?")
    def balance(self) -> str:
        return f"seen with {self.authorization}"
"""
P = "/helper/0.1"
SCRIPT = [calls(("Bank-balance", {})), says("Enough.")]
MINE = {"Authorization": "Bearer mine"}


def told(requests: list[dict[str, Any]]) -> str:
    content: str = requests[-1]["messages"][-1]["content"]
    return content


async def test_paused_request_is_continued_with_the_header_of_its_resume(tmp_path: Path) -> None:
    plugin = tmp_path / "bank.py"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o600)
    async with serving(
        tmp_path, SCRIPT, agent={"plugins": ["Bank"]}, plugin_module=str(plugin)
    ) as served:
        paused = (await served.client.post(P, json=message("how much?"))).json()
        assert paused["status"] == "Paused"
        [call] = paused["tool_calls"]
        assert (call["name"], call["kind"]) == ("Bank-balance", "auth")
        bare = await served.client.post(paused["approval_url"])
        assert bare.status_code == 422
        assert "Authorization header" in bare.json()["detail"]
        done = await served.client.post(paused["approval_url"], headers=MINE)
        assert (done.status_code, done.json()["status"]) == (200, "Completed")
        assert told(served.model.requests) == "seen with Bearer mine"


@pytest.mark.parametrize("config", [sk_server.CHAT, sk_server.AGENT], ids=["v1", "v2alpha1"])
async def test_where_nobody_can_be_asked_the_model_is_told(tmp_path: Path, config: str) -> None:
    config = config.replace("    system_prompt:", "    plugins: [Bank]\n    system_prompt:")
    files = {"custom_plugins": PLUGIN}
    async with sk_server.serving(tmp_path, config, SCRIPT, files=files) as server:
        response = await server.client.post(sk_server.P, json=sk_server.HELLO)
        assert response.status_code == 200, response.text
        assert told(server.model.requests) == "This tool needs the caller to be signed in."


async def test_stateless_call_has_the_header_of_its_request(tmp_path: Path) -> None:
    config = sk_server.CHAT.replace("    system_prompt:", "    plugins: [Bank]\n    system_prompt:")
    files = {"custom_plugins": PLUGIN}
    async with sk_server.serving(tmp_path, config, SCRIPT, files=files) as server:
        await server.client.post(sk_server.P, json=sk_server.HELLO, headers=MINE)
        assert told(server.model.requests) == "seen with Bearer mine"
