"""What a call would change is shown to whoever is asked about it."""

from __future__ import annotations

from pathlib import Path

from sk_agents.engine.calls import runner
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
    assert len(preview) < runner.PREVIEW_CHARACTERS + 100


async def test_call_without_a_preview_is_asked_about_without_one(tmp_path: Path) -> None:
    async with serving(tmp_path, [calls(("Mail-send", {"to": "ada"}))]) as served:
        frames = await served.say_until("approval_required")
    assert "preview" not in first(frames, "approval_required")
