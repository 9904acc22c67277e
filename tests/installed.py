"""What an installed copy must do, wherever it is installed: page, documentation, an MCP server."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.demos.served import DEMOS, environment, running
from tests.patience import seconds


def check_installed(teal: Sequence[str], folder: Path, **values: str) -> None:
    """`teal` is the copy's command. It runs in a folder that has nothing of the project's."""
    agent = folder / "weather"
    shutil.copytree(DEMOS / "mcp", agent)
    known = environment(folder, TA_STORE="memory:", **values)
    serve = [*teal, "serve", str(agent), "--port", "0"]
    with running(serve, folder, known) as address:
        home = read(f"{address}/")
        assert all(read(address + script) for script in re.findall(r'src="(/assets/[^"]+)"', home))
        assert "<script" in home, "the page is not built"
        assert "<script" in read(f"{address}/docs"), "the documentation's page is not built"
        ask = [*teal, "chat", "-m", "What is the weather in Oslo?", "--server", address]
        answer = subprocess.run(
            ask, cwd=folder, env=known, capture_output=True, text=True, timeout=seconds(60)
        )
        assert answer.stdout.startswith("In Oslo: "), answer


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=seconds(20)) as answer:
        text: str = answer.read().decode()
        return text
