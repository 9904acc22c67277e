"""The README's ten minutes and the tutorials, as a new user spends them: every block is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import seconds

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
KEYS = re.compile(r"_API_KEY$|^OPENAI_|^OLLAMA_|^TA_|^TEAL_")
SECONDS = seconds(120)
# A page is some twenty commands, one after the other.
PAGE_SECONDS = seconds(240)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str

    @property
    def is_make(self) -> bool:
        return self.text.startswith("make ")


def environment(home: Path, address: str = "") -> dict[str, str]:
    """A machine with no key, and the virtual environment's programs on the path."""
    kept = {name: value for name, value in os.environ.items() if not KEYS.search(name)}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    mine = {"HOME": str(home), "PATH": programs, "TA_SCRIPT_PACE": "0", "TA_SERVER": address}
    # The small model answers nothing here; no Ollama is looked for.
    return {**kept, **mine, "OLLAMA_HOST": "http://127.0.0.1:9"}


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """What `make serve` ends with, on a free port; the line it prints."""
    command = [sys.executable, "-m", "sk_agents", "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=home, env=environment(home)
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()


def is_like(shown: Sequence[str], printed: str) -> bool:
    """Whether these lines stand in the output, in order; `…` is anything."""
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in shown if line != "…"]
    at = 0
    for pattern in patterns:
        found = re.compile(pattern).search(printed, at)
        if found is None:
            return False
        at = found.end()
    return True


@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.parametrize(
    "page", ["README.md", pytest.param("docs/tutorials.md", marks=pytest.mark.chaos)]
)
def test_every_block_of_a_page_does_what_it_shows(tmp_path: Path, page: str) -> None:
    printed = ""
    text = (ROOT / page).read_text(encoding="utf-8")
    with serving(tmp_path) as ready:
        address = ready.split()[3]
        for block in (Block(match[1], match[2]) for match in BLOCK.finditer(text)):
            if block.language == "text":
                shown = block.text.replace(ADDRESS, address).splitlines()
                if shown[0].startswith("ui/"):
                    continue
                assert is_like(shown, printed), f"{block.text}\nis not what was printed:\n{printed}"
            elif block.is_make:
                printed = ready
                subprocess.run(
                    ["make", "-n", *block.text.split()[1:]],
                    cwd=ROOT,
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
            else:
                printed = run(block, address, tmp_path)


def run(block: Block, address: str, folder: Path) -> str:
    text = block.text.replace(ADDRESS, address)
    command = [sys.executable, "-c", text] if block.language == "python" else ["bash", "-euc", text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder, address),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("room", sorted(set(re.findall(r"(\w+)/", BLOCK.findall(README)[-1][1]))))
def test_every_room_in_the_readme_is_there(room: str) -> None:
    assert (ROOT / "src" / "sk_agents" / room).is_dir() or (ROOT / room).is_dir()
