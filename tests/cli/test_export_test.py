"""A run as a test: it is written, it passes, and it fails when the agent's rules change."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from sk_agents.client import Chat, SyncTeal
from tests.cli.house import Served, environment
from tests.patience import seconds


def completed(served: Served, *arguments: str) -> str:
    """The id of an interaction that has come to its end."""
    run: str = json.loads(served.answer("chat", *arguments, "--json"))["interaction_id"]
    return run


def pytest_run(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=seconds(90),
    )


def test_exported_runs_pass_and_notice_a_changed_rule(served: Served, tmp_path: Path) -> None:
    config = tmp_path / "agent" / "config.yaml"
    config.parent.mkdir()
    for name in ("config.yaml", "custom_plugins.py", "talk.yaml"):
        shutil.copy(served.folder / name, config.parent)
    for name, *arguments in (
        ("looked", "-m", "look around"),
        ("sent", "-m", "send it", "--yes"),
        ("refused", "-m", "send two", "--no-approvals"),
        ("burnt", "-m", "burn it"),
    ):
        run = completed(served, *arguments)
        served.answer("export-test", run, "-o", str(tmp_path / f"test_{name}.py"))
        with_file = ["-o", str(tmp_path / f"test_{name}_file.py"), "--config", str(config)]
        served.answer("export-test", run, *with_file)
    done = pytest_run(tmp_path)
    assert (done.returncode, "8 passed" in done.stdout) == (0, True), done.stdout
    written = (tmp_path / "test_sent_file.py").read_text()
    assert "def test_send_it() -> None:" in written
    assert "Path(__file__).parent / 'agent/config.yaml'" in written
    # Sending is allowed from now on: the recorded runs were asked about.
    config.write_text(config.read_text() + "        - {tool: Mail-send, then: allow}\n")
    changed = pytest_run(tmp_path)
    assert "2 failed, 6 passed" in changed.stdout, changed.stdout
    assert "assert [] == ['Mail-send']" in changed.stdout


def test_run_that_is_not_completed_is_refused(served: Served) -> None:
    failed = json.loads(served.run("chat", "-m", "fail", "--json").stdout)["interaction_id"]
    done = served.run("export-test", failed)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is failed; only a completed run can be replayed" in done.stderr


def test_run_that_was_told_more_is_told_the_same(served: Served, tmp_path: Path) -> None:
    waiting = json.loads(served.run("chat", "-m", "send it", "--json").stdout)
    with SyncTeal(served.url) as teal:
        (approval,) = [
            one for one in teal.approvals() if one.interaction_id == waiting["interaction_id"]
        ]
        teal.chat(approval.chat_id).steer(approval.interaction_id, "and be brief")
        teal.run(teal.client.approve(approval))
        teal.run(_ended(teal.client.chat(approval.chat_id), approval.interaction_id))
    path = tmp_path / "test_steered.py"
    served.answer("export-test", waiting["interaction_id"], "-o", str(path))
    assert "'told': ['and be brief']" in path.read_text()
    done = pytest_run(tmp_path)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


async def _ended(chat: Chat, interaction_id: str) -> None:
    async for _ in chat.watch(interaction_id):
        pass


def test_unknown_run_and_existing_file_are_refused(served: Served, tmp_path: Path) -> None:
    missing = served.run("export-test", f"int_{'0' * 32}")
    assert (missing.returncode, missing.stdout) == (1, "")
    path = tmp_path / "test_it.py"
    path.write_text("kept")
    refused = served.run("export-test", completed(served, "-m", "hi"), "-o", str(path))
    assert (refused.returncode, path.read_text()) == (1, "kept")
