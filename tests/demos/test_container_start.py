"""The container that takes the place of the public project's: what it does before it serves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.demos.served import DEMOS, ROOT, environment, running
from tests.patience import seconds

START = ROOT / "deploy" / "container" / "start.sh"
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]


@pytest.fixture
def commit(tmp_path: Path) -> str:
    """The one of a repository with an agent in a folder."""
    work, bare = tmp_path / "work", tmp_path / "my-company" / "agents.git"
    shutil.copytree(DEMOS / "10_chat_plugins", work / "WeatherBot")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Agents"]):
        subprocess.run([*GIT, *command], cwd=work, check=True, timeout=seconds(30))
    subprocess.run([*GIT, "clone", "-q", "--bare", work, bare], check=True, timeout=seconds(30))
    done = subprocess.run(
        [*GIT, "rev-parse", "main"], cwd=work, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def values(folder: Path, **more: str) -> dict[str, str]:
    given = {
        "AGENTS_FOLDER": str(folder / "app" / "agents"),
        "PACKAGES_FOLDER": str(folder / "packages"),
        "GIT_SERVER": f"file://{folder}",
        "CONSTRAINTS": "/dev/null",
        "TA_STORE": "memory:",
        "TA_GITHUB": "true",
        "TA_GH_ORG": "my-company",
        "TA_GH_REPO": "agents",
        "TA_GH_BRANCH": "main",
        "TA_GH_TOKEN": "canary",
        "TA_AGENT_NAME": "WeatherBot",
    }
    return environment(folder, **{**given, **more})


def refused(folder: Path, **more: str) -> str:
    done = subprocess.run(
        [str(START), "--port", "0"],
        cwd=folder,
        env=values(folder, **more),
        capture_output=True,
        text=True,
        timeout=seconds(30),
    )
    assert done.returncode == 78, done.stderr
    assert "canary" not in done.stderr
    return done.stderr


def test_pinned_agent_is_fetched_and_served(tmp_path: Path, commit: str) -> None:
    (tmp_path / "app").mkdir()
    given = values(tmp_path, TA_GH_COMMIT=commit)
    with running([str(START), "--port", "0"], tmp_path, given) as address:
        body = {"chat_history": [{"role": "user", "content": "How warm is it in Oslo?"}]}
        reply = httpx.post(f"{address}/WeatherChat/0.1", json=body, timeout=seconds(30)).json()
    assert json.loads(reply["output_raw"])["temperature"] == -4.0


def test_branch_alone_is_refused_with_the_commit_to_name(tmp_path: Path, commit: str) -> None:
    said = refused(tmp_path)
    assert f"TA_GH_COMMIT={commit}" in said and "push" in said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"TA_GH_SHA256": "0" * 64}, "TA_GH_SHA256: what was fetched has the checksum"),
        ({"TA_AGENT_NAME": "NoSuchBot"}, "has no folder 'NoSuchBot'"),
        ({"TA_AGENT_NAME": "../../etc"}, "must be a folder of the repository"),
        ({"TA_GH_COMMIT": "abc"}, "40 hexadecimal digits"),
        ({"TA_GH_COMMIT": "0" * 40}, "has no commit"),
        ({"TA_GH_ORG": ""}, "TA_GH_ORG is not set"),
    ],
)
def test_what_cannot_be_fetched_as_named_is_refused(
    tmp_path: Path, commit: str, change: dict[str, str], reason: str
) -> None:
    assert reason in refused(tmp_path, **{"TA_GH_COMMIT": commit, **change})


def test_packages_of_plugins_are_installed_within_the_servers_own(tmp_path: Path) -> None:
    agents = tmp_path / "app" / "agents"
    shutil.copytree(DEMOS / "10_chat_plugins", agents)
    (agents / "requirements.txt").write_text("one\n")
    (agents / "more.txt").write_text("two\n")
    asked = tmp_path / "asked.txt"
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    pip.chmod(0o700)
    given = values(
        tmp_path,
        TA_GITHUB="false",
        PIP=str(pip),
        TA_ADDL_REQUIREMENTS="/src/sk-agents/agents/more.txt",
    )
    with running([str(START), "--port", "0"], tmp_path, given) as address:
        assert httpx.get(f"{address}/WeatherChat/0.1/health").status_code == 200
    first, second = asked.read_text().splitlines()
    assert first.endswith(f"--requirement {agents}/requirements.txt")
    assert second.endswith(f"--requirement {agents}/more.txt")
    assert f"--target {tmp_path / 'packages'}" in first and "--constraint" in first
    assert "no file" in refused(
        tmp_path, TA_GITHUB="false", TA_ADDL_REQUIREMENTS="/no/such.txt", PIP=str(pip)
    )
