"""One plugin file, unmodified, without semantic-kernel and with it.

The second needs an environment of its own, which takes long to install: `TEAL_CHAOS=full`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.demos.served import ROOT, environment, running

FULL = os.environ.get("TEAL_CHAOS") == "full"
INSTALL_SECONDS = 400

CONFIG = """
apiVersion: skagents/v1
kind: Sequential
service_name: Boxes
version: 0.1
input_type: Order
output_type: Packed
spec:
  agents:
    - name: default
      role: Packer
      model: scripted/script.yaml
      system_prompt: You pack boxes.
      plugins: [Boxes]
  tasks:
    - name: pack
      task_no: 1
      instructions: "Pack {{ thing.name }}."
      agent: default
"""
SCRIPT = """
rules:
  - match: "Pack (?P<name>\\\\w+)"
    turns:
      - calls: [{tool: Boxes-pack, arguments: {thing: {name: "{name}", weight: 2.5}}}]
      - cases:
          - when: {result: '^\\[{"label":"globe","fragile":false}\\]$'}
            calls: [{tool: Boxes-which_library, arguments: {}}]
        text: That is not a globe in a box.
      - text: '{"library": "{result}"}'
turns: [{text: "no"}]
"""
TYPES = """
from semantic_kernel.kernel_pydantic import KernelBaseModel


class Thing(KernelBaseModel):
    name: str


class Order(KernelBaseModel):
    thing: Thing


class Packed(KernelBaseModel):
    library: str
"""
PLUGINS = """
import importlib.util
from typing import Annotated

from semantic_kernel.functions.kernel_function_decorator import kernel_function
from semantic_kernel.kernel_pydantic import KernelBaseModel

from sk_agents.ska_types import BasePlugin


class Thing(KernelBaseModel):
    name: str
    weight: float


class Box(KernelBaseModel):
    label: str
    fragile: bool = False


class Boxes(BasePlugin):
    @kernel_function(name="pack", description="Pack a thing.")
    async def pack_it(self, thing: Annotated[Thing, "What to pack"], copies: int = 1) -> list[Box]:
        self.extra_data_collector.add_extra_data("weight", str(thing.weight * copies))
        return [Box(label=thing.name)] * copies

    @kernel_function
    def which_library(self) -> str:
        "Where semantic-kernel comes from."
        import semantic_kernel

        return "stand-in" if "stand_in" in str(semantic_kernel.__spec__.origin) else "library"
"""


def written(folder: Path) -> Path:
    files = {
        "config.yaml": CONFIG,
        "script.yaml": SCRIPT,
        "custom_types.py": TYPES,
        "custom_plugins.py": PLUGINS,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder / "config.yaml"


def packed(folder: Path, python: Path, **values: str) -> httpx.Response:
    """What a server under this Python answers."""
    serve = [str(python), "-m", "sk_agents", "serve", str(written(folder)), "--port", "0"]
    known = environment(folder, TA_STORE="memory:", **values)
    with running(serve, folder, known) as address:
        return httpx.post(f"{address}/Boxes/0.1", json={"thing": {"name": "globe"}}, timeout=30)


def check(reply: httpx.Response, library: str) -> None:
    assert reply.status_code == 200, reply.text
    document = reply.json()
    assert document["extra_data"] == {"items": [{"key": "weight", "value": "2.5"}]}
    assert document["output_pydantic"] == {"library": library}


def test_plugin_file_runs_unmodified_without_semantic_kernel(tmp_path: Path) -> None:
    probe = "import importlib.util as u; print(u.find_spec('semantic_kernel'))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert found.stdout.strip() == "None", "semantic-kernel is installed: this shows nothing"
    check(packed(tmp_path, Path(sys.executable)), "stand-in")


@pytest.fixture
def with_library(tmp_path: Path) -> Path:
    """A Python with our dependencies and the real library. Skips where it cannot be installed."""
    uv = Path(sys.executable).parent / "uv"
    folder = tmp_path / "environment"
    # The library asks for an older pydantic than ours; it works with this one.
    (tmp_path / "overrides.txt").write_text("pydantic>=2.14\n")
    python = folder / "bin" / "python"
    packages = ["semantic-kernel", "--override", str(tmp_path / "overrides.txt")]
    for command in (
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(folder)],
        [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        + ["-r", str(ROOT / "pyproject.toml"), *packages],
    ):
        environ = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}
        try:
            subprocess.run(
                command, env=environ, check=True, capture_output=True, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"NOT TESTED: semantic-kernel cannot be installed here: {error}")
    return python


@pytest.mark.timeout(INSTALL_SECONDS + 100)
@pytest.mark.skipif(not FULL, reason="installs semantic-kernel: set TEAL_CHAOS=full")
def test_same_plugin_file_runs_with_the_real_semantic_kernel(
    tmp_path: Path, with_library: Path
) -> None:
    check(packed(tmp_path, with_library, PYTHONPATH=str(ROOT / "src")), "library")
