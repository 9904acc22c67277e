"""A call that acts in its caller's name, decided from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.house import serving, write_agent

PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function


class Mail(BasePlugin):
    requires_authorization = True

    @kernel_function(description="Send a mail.")
    def send(self, to: str, text: str = "hello") -> str:
        return f"sent as {self.authorization}"

    @kernel_function(description="Send a letter.")
    def post(self, to: str) -> str:
        return f"posted as {self.authorization}"

    @kernel_function(description="Burn a letter.")
    def burn(self) -> str:
        return "ashes"
"""


def test_approving_needs_a_token_and_lends_it(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    (config.parent / "custom_plugins.py").write_text(PLUGIN)
    with serving(tmp_path, str(config), "--store", "memory:") as served:
        asked = served.run("chat", "mine", "-m", "post it", "--yes", "--json")
        assert asked.returncode == 3, asked.stderr
        [approval] = json.loads(asked.stdout)["approvals"]
        assert approval["kind"] == "auth"
        refused = served.run("approvals", "approve", approval["approval_id"])
        assert (refused.returncode, "Authorization header" in refused.stderr) == (1, True)
        served.answer("approvals", "approve", approval["approval_id"], "--token", "mine")
        with served.terminal("mine") as terminal:
            terminal.read_until("you> ")
        assert "posted as Bearer mine" in served.answer("chats", "show", "mine", "--json")
