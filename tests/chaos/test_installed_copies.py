"""The package built from its sources and installed elsewhere, by pip and by uv: with every Python
that is there, with the oldest libraries it asks for, and beside semantic-kernel.

It installs whole environments, which takes minutes: `make chaos`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.authorities import environment_of_the_machine
from tests.demos.served import ROOT
from tests.installed import check_installed
from tests.missing import lacks
from tests.patience import seconds

MINORS = (11, 12, 13, 14)
INSTALL_SECONDS = seconds(900)
UV = Path(sys.executable).parent / "uv"
# What of the suite meets the libraries whose versions vary: bodies, streams, the client.
SUBSET = ("tests/wire", "tests/chats/test_flows.py", "tests/client/test_real_server.py")
TEST_TOOLS = (
    *("httpx", "httpx-sse", "hypothesis", "psycopg[binary]", "redis[hiredis]"),
    "jsonschema-rs",
    *("pytest", "pytest-asyncio", "pytest-cov", "pytest-timeout", "pytest-xdist"),
)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(INSTALL_SECONDS)]


def run(*command: str | Path, folder: Path = ROOT, **values: str) -> str:
    known = {"UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never", **values}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment_of_the_machine(), **known},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def python(minor: int) -> str:
    """The interpreter of a version; skips where there is none."""
    homes = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python"))
    found = [str(homes[-1])] if homes else []
    if found := found or list(filter(None, [shutil.which(f"python3.{minor}")])):
        return found[0]
    lacks("libraries", f"NOT TESTED: there is no Python 3.{minor} on this machine")


def new_environment(interpreter: str, folder: Path) -> Path:
    """Its Python, with the pip that comes with it."""
    run(interpreter, "-m", "venv", folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by pip from the sources alone: what is not in the repository is not there."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    for name in run("git", "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, sources / name)
    builder = new_environment(python(11), folder / "builder")
    run(builder, "-m", "pip", "wheel", "--no-deps", "-w", folder, ".", folder=sources)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.parametrize("minor", MINORS)
def test_wheel_installed_by_plain_pip_serves_page_documentation_and_an_mcp_server(
    wheel: Path, tmp_path: Path, minor: int
) -> None:
    installed = new_environment(python(minor), tmp_path / "elsewhere")
    run(installed, "-m", "pip", "install", "--quiet", wheel)
    path = f"{installed.parent}{os.pathsep}{os.environ['PATH']}"
    check_installed([str(installed.parent / "teal")], tmp_path, PATH=path)


def test_every_extra_is_installed_by_the_pip_that_python_brings(
    wheel: Path, tmp_path: Path
) -> None:
    installed = new_environment(python(11), tmp_path / "elsewhere")
    run(installed, "-m", "pip", "install", "--quiet", f"{wheel}[all]")
    run(installed, "-c", "import litellm, psycopg, opentelemetry.sdk, redis, xllamacpp")


def test_oldest_libraries_that_are_asked_for_suffice(wheel: Path, tmp_path: Path) -> None:
    installed = new_environment(python(11), tmp_path / "oldest")
    lowest = ("--resolution", "lowest-direct")
    run(UV, "pip", "install", "--quiet", "--python", installed, *lowest, wheel)
    frozen = run(UV, "pip", "freeze", "--python", installed)
    kept = tmp_path / "kept.txt"
    kept.write_text("".join(re.findall(r"^[\w.-]+==.*\n", frozen, re.MULTILINE)))
    path = f"{installed.parent}{os.pathsep}{os.environ['PATH']}"
    check_installed([str(installed.parent / "teal")], tmp_path, PATH=path)
    tools: Sequence[str] = (*TEST_TOOLS, "-c", str(kept))
    run(UV, "pip", "install", "--quiet", "--python", installed, *tools)
    suite = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET)
    run(installed, *suite, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")


def test_release_of_semantic_kernel_is_installed_beside_it_by_plain_pip(
    wheel: Path, tmp_path: Path
) -> None:
    installed = new_environment(python(11), tmp_path / "both")
    run(installed, "-m", "pip", "install", "--quiet", wheel, "semantic-kernel")
    version = run(installed, "-c", "import semantic_kernel; print(semantic_kernel.__version__)")
    # 1.40 is of March 2026.
    assert tuple(map(int, version.split(".")[:2])) >= (1, 40), version
    path = f"{installed.parent}{os.pathsep}{os.environ['PATH']}"
    check_installed([str(installed.parent / "teal")], tmp_path, PATH=path)
