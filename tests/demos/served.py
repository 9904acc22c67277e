"""Demos as people run them: `teal serve`, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.forked_python import PYTHON
from tests.patience import seconds

ROOT = Path(__file__).parent.parent.parent
DEMOS = ROOT / "demos"
ADDRESS = re.compile(r"http://[\w.:]+")


def environment(home: Path, **values: str) -> dict[str, str]:
    """The real one without settings and keys, with a home and our command of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TA_", "TEAL_", "XDG_", "OPENAI_")) and name != "PYTHONPATH"
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "PATH": path, "TA_SCRIPT_PACE": "0", **values}


def git_repository(home: Path) -> dict[str, str]:
    """An agent in a repository, and the environment in which demo 06 fetches it from there."""
    repository = home / "my-company" / "agents"
    shutil.copytree(DEMOS / "10_chat_plugins", repository / "WeatherBot")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Agents"]):
        subprocess.run([*git, *command], cwd=repository, check=True, timeout=seconds(30))
    return environment(
        home,
        GIT_SERVER=f"file://{home}",
        CHECKOUT=str(home / "checkout"),
        TA_GITHUB="true",
        TA_GH_ORG="my-company",
        TA_GH_REPO="agents",
        TA_AGENT_NAME="WeatherBot",
        TA_STORE="memory:",
    )


@contextmanager
def running(command: Sequence[str], folder: Path, values: dict[str, str]) -> Iterator[str]:
    """The address that the process says it is ready at; at the end it has to stop cleanly."""
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command, cwd=folder, env=values, stdout=subprocess.PIPE, stderr=complaints, text=True
        )
        try:
            assert process.stdout is not None
            found = ADDRESS.search(process.stdout.readline())
            complaints.seek(0)
            assert found, complaints.read()
            yield found[0]
            process.terminate()
            assert process.wait(timeout=seconds(20)) == 0
        finally:
            process.kill()
            process.communicate(timeout=seconds(20))


@contextmanager
def serving(home: Path, *arguments: str, folder: Path = ROOT, **values: str) -> Iterator[str]:
    """A server on a free port with a store that goes with it, unless `values` name another."""
    known = environment(home, **{"TA_STORE": "memory:", **values})
    command = [PYTHON, "-m", "sk_agents", "serve", *arguments, "--port", "0"]
    with running(command, folder, known) as address:
        yield address
