"""A server as its users start it, which can be killed and started again at its address."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.forked_python import PYTHON
from tests.patience import seconds

TIMEOUT = seconds(20)


class Server:
    """`teal serve` on a SQLite file in `folder`: with the tour, or with these agents."""

    def __init__(self, folder: Path, *agents: Path, **environment: str) -> None:
        self._folder = folder
        self._environment = environment
        self._agents = agents
        self._process: subprocess.Popen[str] | None = None
        self._port = "0"
        self.url = ""

    def start(self) -> None:
        names = ("TA_", "TEAL_", "XDG_", "OPENAI_", "ANTHROPIC_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(PYTHON, "-m", "sk_agents", "serve", *map(str, self._agents)),
                    *("--port", self._port, "--store", f"sqlite:///{self._folder}/chats.sqlite"),
                ],
                cwd=self._folder,
                env={**inherited, "HOME": str(self._folder), **self._environment},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if address is None:
            self.kill()
            log_text = (self._folder / "server.log").read_text()
            raise AssertionError(f"the server did not start: {line}{log_text}")
        self.url, self._port = address[0], address[1]

    @property
    def port(self) -> int:
        return int(self._port)

    def kill(self) -> None:
        """As a power cut does: nothing is tidied up."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=TIMEOUT)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None

    async def get(self, path: str) -> Any:
        return await self._ask("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        return await self._ask("POST", path, json=body)

    async def say(self, chat: str, message: str) -> None:
        """As somebody else does, to the end of the answer."""
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT) as client:
            body = {"user_message": message}
            answer = await client.post(f"/chats/{chat}/interactions", json=body)
            assert "interaction_complete" in answer.text, answer.text

    def back_up(self) -> None:
        """Copy its store, while it is stopped."""
        self._copy(self._folder, self._folder / "backup")

    def restore(self) -> None:
        self._copy(self._folder / "backup", self._folder)

    def _copy(self, source: Path, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for old in filter(Path.is_file, target.glob("chats.sqlite*")):
            old.unlink()
        for kept in filter(Path.is_file, source.glob("chats.sqlite*")):
            shutil.copy(kept, target)

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT) as client:
            answer = await client.request(method, path, **request)
            assert answer.is_success, answer.text
            return answer.json()


PLUGINS = """
import asyncio
import base64
from typing import Literal

from sk_agents.engine.turns import Question
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolContext, ToolFile, kernel_function, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Bank(BasePlugin):
    @tool(effect="at_most_once")
    @kernel_function(description="Pay somebody.")
    def pay(self, to: str, amount: int, currency: Literal["EUR", "USD"] = "EUR") -> str:
        return f"paid {amount} {currency} to {to}"

    @tool(effect="at_most_once")
    @kernel_function(description="Replace a part of a file.")
    def replace(self, path: str, old_string: str, new_string: str) -> str:
        return "replaced"

    @tool(effect="at_most_once")
    @kernel_function(description="Run Python code.")
    def run(self, code: str) -> str:
        return "ran"

    @tool(effect="at_most_once", requires_approval=False, timeout=300)
    @kernel_function(description="Transfer, which takes long.")
    async def transfer(self) -> str:
        await asyncio.sleep(200)
        return "transferred"

    @tool(effect="read_only")
    @kernel_function(description="Ask for a colour.")
    async def colour(self, choices: list[str], context: ToolContext) -> str:
        return str(await context.ask(Question("Which colour?", choices=tuple(choices))))

    @tool(effect="read_only")
    @kernel_function(description="Read something long.")
    def read(self) -> str:
        return "x" * 1_000_000


    @tool(effect="read_only")
    @kernel_function(description="Draw a plot.")
    def plot(self) -> list[object]:
        return [ToolFile(PNG, name="plot.png"), ToolFile(b"a,b", "text/csv", "table.csv")]


class Vault(BasePlugin):
    requires_authorization = True

    @tool(effect="read_only")
    @kernel_function(description="Open the vault in the caller's name.")
    def open(self) -> str:
        return f"opened with {self.authorization}"
"""


def write_agent(folder: Path, script: dict[str, Any], name: str = "banker", **more: Any) -> Path:
    """An agent that plays `script` and can use a bank; `more` are further keys of it."""
    folder.mkdir(parents=True, exist_ok=True)
    plugins = folder / "custom_plugins.py"
    plugins.write_text(PLUGINS)
    plugins.chmod(0o600)
    (folder / "script.yaml").write_text(yaml.safe_dump(script, allow_unicode=True))
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "kind": "Agent",
        "name": name,
        "version": 0.1,
        "spec": {
            "agent": {
                "name": "default",
                "model": "scripted/script.yaml",
                "system_prompt": "You are a banker.",
                "plugins": ["Bank"],
                **more,
            }
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
