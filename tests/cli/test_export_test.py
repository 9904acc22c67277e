"""A run as a test: it is written, it passes, and it fails when the agent's rules change."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from sk_agents.client import Chat, SyncTeal
from tests.cli.house import Served, environment, serving
from tests.patience import seconds

# Its calls are decided by others, by what was remembered, by a budget, by nobody, or are questions.
DECIDED = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: {name}
version: 0.1
spec:
  agent:
    name: default
    model: scripted/talk.yaml
    system_prompt: You help.
    max_tokens: 100
    plugins: [Desk]
    builtin: {{tools: [ask_user]}}
    approvals:
      rules:
        - {{tool: Desk-pay, then: ask, approvers: {{users: [ann, ben], groups: [g]}}, quorum: 2}}
        - {{tool: Desk-book, then: ask, expires: 1s}}
        - {{tool: Desk-post, then: allow}}
"""
DESK = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function


class Desk(BasePlugin):
    @kernel_function(description="Pay a bill.")
    def pay(self) -> str:
        return "paid"

    @kernel_function(description="Book a room.")
    def book(self) -> str:
        return "booked"

    @kernel_function(description="Write a letter.")
    def write(self, to: str) -> str:
        return f"wrote to {to}"


class Post(BasePlugin):
    requires_authorization = True

    @kernel_function(description="Post a letter.")
    def post(self) -> str:
        return "posted"
"""
DESK_TALK = """
rules:
  - {match: '^pay', turns: [{calls: [{tool: Desk-pay}]}, {text: "{result}"}]}
  - {match: '^book', turns: [{calls: [{tool: Desk-book}]}, {text: "{result}"}]}
  - {match: '^post', turns: [{calls: [{tool: Post-post}]}, {text: "{result}"}]}
  - match: '^write'
    turns:
      - calls: [{tool: Desk-write, arguments: {to: ada}}]
      - calls: [{tool: Desk-write, arguments: {to: bob}}]
      - text: Both are written.
  - match: '^ask'
    turns:
      - calls: [{tool: User-ask_user, arguments: {question: Which?, choices: [a, b]}}]
      - text: "{result}"
turns: [{text: What?}]
"""


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


def test_decisions_of_every_kind_are_replayed(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    config = DECIDED.format(name="desk").replace("[Desk]", "[Desk, Post]")
    config = config.replace("Desk-post", "Post-*")
    (folder / "config.yaml").write_text(config)
    (folder / "spending.yaml").write_text(
        DECIDED.format(name="spender").replace("Desk-post", "Desk-write")
        + "    budget: {run: 9000 tokens, soft: 0.0001}\n"
    )
    (folder / "custom_plugins.py").write_text(DESK)
    (folder / "custom_plugins.py").chmod(0o600)
    (folder / "talk.yaml").write_text(DESK_TALK)
    yes: dict[str, object] = {"approved": True}
    no: dict[str, object] = {"approved": False}
    tests = tmp_path / "tests"
    tests.mkdir()
    files = [str(folder / name) for name in ("config.yaml", "spending.yaml")]
    with serving(tmp_path, *files, "--store", "memory:") as served:
        for number, (agent, text, decisions) in enumerate(
            (
                ("desk", "pay it", [("ann", yes), ("ben", yes)]),
                ("desk", "pay that", [("ann", yes), ("ben", no)]),
                ("desk", "book it", []),
                ("desk", "write", [("", {**yes, "remember": "run"})]),
                ("spender", "write", [("", yes)]),
                ("desk", "ask me", [("", {**yes, "answer": "b"})]),
                ("desk", "ask again", [("", no)]),
                ("desk", "post it", [("", yes)]),
                ("desk", "post that", [("", no)]),
            )
        ):
            run = _decided(served, agent, text, decisions)
            file = folder / ("config.yaml" if agent == "desk" else "spending.yaml")
            for name, *options in (("alone", ""), ("file", "--config", str(file))):
                path = str(tests / f"test_{number}_{name}.py")
                served.answer("export-test", run, "-o", path, *filter(None, options))
    done = pytest_run(tests)
    assert (done.returncode, "18 passed" in done.stdout) == (0, True), done.stdout


def _decided(
    served: Served, agent: str, text: str, decisions: Sequence[tuple[str, dict[str, object]]]
) -> str:
    """The id of an interaction that waits for these decisions, one after the other, and is over."""
    header = {"Authorization": "Bearer mine"}
    with SyncTeal(served.url) as teal, httpx.Client(base_url=served.url) as http:
        chat = teal.chat(f"{agent}-{text.replace(' ', '-')}")
        reply = chat.ask(text, agent=agent)
        for user, body in decisions:
            (approval,) = reply.approvals
            query = {"user_id": user} if user else {}
            path = f"/approvals/{approval.approval_id}"
            http.post(path, json=body, params=query, headers=header).raise_for_status()
        teal.run(_ended(teal.client.chat(chat.id), reply.interaction_id))
        return reply.interaction_id


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
