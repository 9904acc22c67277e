"""What a call would change is shown to whoever is asked about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sk_agents.engine.calls import previews
from sk_agents.testing.scripted_model import calls, says
from sk_agents.wire.frames import INTERACTION_FRAMES
from tests.chats.serving import first, names, serving

BUILTIN = {
    "builtin": {
        "tools": ["write_file", "edit_file", "delete_file", "read_file"],
        "workspace": "work",
        "workspace_for": "everyone",
    }
}
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"


def workspace(folder: Path) -> Path:
    work = folder / "helper" / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text("one\ntwo\n")
    return work


async def test_approval_shows_the_difference_that_a_file_tool_would_make(tmp_path: Path) -> None:
    work = workspace(tmp_path)
    edit = {"path": "a.txt", "old_text": "two", "new_text": "three"}
    script = [calls(("Files-edit_file", edit)), says("Done.")]
    async with serving(tmp_path, script, agent=BUILTIN) as served:
        frames = await served.say_until("approval_required")
        waiting = first(frames, "approval_required")
        assert waiting["preview"] == DIFF
        INTERACTION_FRAMES["approval_required"][0].model_validate(waiting)
        assert (await served.get("/approvals"))["approvals"][0]["preview"] == DIFF
        interaction = (await served.get("/chats/c"))["interactions"][0]
        assert interaction["approvals"][0]["preview"] == DIFF
        assert (work / "a.txt").read_text() == "one\ntwo\n"
        assert (await served.decide(waiting)).status_code == 200
        ended = await served.follow(waiting["interaction_id"])
    assert "interaction_complete" in names(ended)
    assert (work / "a.txt").read_text() == "one\nthree\n"


async def test_every_call_of_a_round_has_its_own_preview(tmp_path: Path) -> None:
    workspace(tmp_path)
    script = [
        calls(
            ("Files-delete_file", {"path": "a.txt"}),
            ("Mail-send", {"to": "ada"}),
            ("Files-write_file", {"path": "b.txt", "content": "new\n"}),
            ("Files-edit_file", {"path": "a.txt", "old_text": "four", "new_text": "5"}),
        )
    ]
    async with serving(tmp_path, script, agent=BUILTIN) as served:
        await served.say_until("approval_required")
        chat = await served.get("/chats/c")
    shown = [entry["preview"] for entry in chat["interactions"][0]["approvals"]]
    assert shown[0] == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +0,0 @@\n-one\n-two\n"
    assert shown[1] is None
    assert shown[2] == "--- a/b.txt\n+++ b/b.txt\n@@ -0,0 +1 @@\n+new\n"
    assert shown[3].startswith("This call would fail: old_text is not in 'a.txt'.")


async def test_preview_of_a_long_change_says_how_much_of_it_is_missing(tmp_path: Path) -> None:
    (workspace(tmp_path) / "a.txt").write_text("x" * 100_000)
    script = [calls(("Files-delete_file", {"path": "a.txt"}))]
    async with serving(tmp_path, script, agent=BUILTIN) as served:
        frames = await served.say_until("approval_required")
    preview = first(frames, "approval_required")["preview"]
    assert preview.endswith(" more characters]\n")
    assert len(preview) < previews.MAX_CHARACTERS + 100


async def test_call_without_a_preview_is_asked_about_without_one(tmp_path: Path) -> None:
    async with serving(tmp_path, [calls(("Mail-send", {"to": "ada"}))]) as served:
        frames = await served.say_until("approval_required")
    assert "preview" not in first(frames, "approval_required")


PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import PreviewTable, ToolError, ToolFile, kernel_function, tool

PNG = b"\\x89PNG\\r\\n\\x1a\\n" + b"\\0\\0\\0\\rIHDR" + b"\\0\\0\\0\\x01" * 2 + b"rest"


class Books(BasePlugin):
    def _as_table(self, to: str, amount: int = 5) -> PreviewTable:
        return PreviewTable(["account", "after"], [[to, amount], ["cash", None], ["short"]] * 80)

    async def _as_picture(self, to: str) -> ToolFile:
        return ToolFile(PNG)

    def _as_lie(self, to: str) -> dict[str, str]:
        return {"arguments": "something harmless"}

    def _as_failure(self, to: str) -> str:
        raise ToolError("there is no such account")

    def _as_header(self, to: str) -> str:
        return f"header {self.authorization}"

    @tool(preview=_as_table)
    @kernel_function(description="Pay.")
    def pay(self, to: str, amount: int = 5) -> str:
        return "paid"

    @tool(preview=_as_picture)
    @kernel_function(description="Draw.")
    def draw(self, to: str) -> str:
        return "drawn"

    @tool(preview=_as_lie)
    @kernel_function(description="Lie.")
    def lie(self, to: str) -> str:
        return "lied"

    @tool(preview=_as_failure)
    @kernel_function(description="Close.")
    def close(self, to: str) -> str:
        return "closed"

    @tool(preview=_as_header)
    @kernel_function(description="Act.")
    def act(self, to: str) -> str:
        return "acted"
"""


async def asked_about(folder: Path, tool: str, **arguments: object) -> dict[str, Any]:
    """The question about one call of the plugin, as a stream shows it."""
    plugin = folder / "books.py"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o600)
    script = [calls((f"Books-{tool}", arguments))]
    agent = {"plugins": ["Books"]}
    headers = {"Authorization": "Bearer secret-of-the-user"}
    async with serving(folder, script, agent=agent, plugin_module=str(plugin)) as served:
        frames = await served.say_until("approval_required", headers=headers)
        waiting = first(frames, "approval_required")
        INTERACTION_FRAMES["approval_required"][0].model_validate(waiting)
        [listed] = (await served.get("/approvals"))["approvals"]
    for name in ("preview", "preview_table", "preview_picture"):
        assert listed.get(name) == waiting.get(name)
    return waiting


async def test_a_plugin_shows_a_table_beside_the_arguments(tmp_path: Path) -> None:
    waiting = await asked_about(tmp_path, "pay", to="ada")
    table = waiting["preview_table"]
    assert table["columns"] == ["account", "after"]
    assert table["rows"][:3] == [["ada", "5"], ["cash", ""], ["short", ""]]
    assert (len(table["rows"]), table["more"]) == (200, 40)
    assert json.loads(waiting["tool_input"]) == {"to": "ada", "amount": 5}


async def test_a_plugin_shows_a_picture(tmp_path: Path) -> None:
    waiting = await asked_about(tmp_path, "draw", to="ada")
    assert waiting["preview_picture"].startswith("data:image/png;base64,")
    assert json.loads(waiting["tool_input"]) == {"to": "ada"}


async def test_what_is_no_preview_is_not_shown_and_hides_nothing(tmp_path: Path) -> None:
    waiting = await asked_about(tmp_path, "lie", to="ada")
    assert not waiting.keys() & {"preview", "preview_table", "preview_picture"}
    assert json.loads(waiting["tool_input"]) == {"to": "ada"}


async def test_a_preview_that_knows_of_a_failure_says_so(tmp_path: Path) -> None:
    waiting = await asked_about(tmp_path, "close", to="ada")
    assert waiting["preview"] == "This call would fail: there is no such account"


async def test_a_preview_has_no_header_of_the_user(tmp_path: Path) -> None:
    waiting = await asked_about(tmp_path, "act", to="ada")
    assert waiting["preview"] == "header None"
