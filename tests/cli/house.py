"""A server as a process, with an agent that plays a script, and the command line before it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.terminal import Terminal
from tests.forked_python import PYTHON
from tests.patience import seconds

CONFIG = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: {name}
version: 0.1
metadata: {{description: Helps with mail.}}
spec:
  agent:
    name: default
    model: scripted/talk.yaml
    system_prompt: You help.
    plugins: [Mail]
    approvals:
      rules:
        - {{tool: Mail-post, then: allow}}
        - {{tool: Mail-burn, then: deny}}
"""
PLUGINS = """
import asyncio
from collections.abc import AsyncIterator

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool

POSTED = []


class Mail(BasePlugin):
    @tool(effect="read_only")
    @kernel_function(description="Look something up.")
    def look(self, what: str) -> str:
        return f"about {what}: \\x1b[2J\\x1b]0;stolen\\x07gone\\u202e"

    @kernel_function(description="Send a mail.")
    def send(self, to: str, text: str = "hello") -> str:
        return f"sent {text!r} to {to}"

    @kernel_function(description="Burn a letter.")
    def burn(self) -> str:
        return "ashes"

    @tool(timeout=0.2)
    @kernel_function(description="Send a letter by a slow post.")
    async def post(self, to: str) -> str:
        POSTED.append(to)
        if len(POSTED) == 1:
            await asyncio.sleep(600)
        return f"posted to {to}"

    @tool(effect="read_only")
    @kernel_function(description="Count aloud.")
    async def count(self, to: int) -> AsyncIterator[str]:
        for number in range(1, to + 1):
            yield f"number {number}\\n"
"""
SCRIPT = r"""
pieces: words
rules:
  - match: '^send two'
    turns:
      - calls:
          - {tool: Mail-send, arguments: {to: ada}}
          - {tool: Mail-send, arguments: {to: bob}}
      - text: "Both done. {results}"
  - match: '^send'
    turns:
      - calls: [{tool: Mail-send, arguments: {to: ada, text: "\e[31mhi"}}]
      - text: "Done: {result}"
  - match: '^look'
    turns:
      - thinking: Let me see what is known.
        calls: [{tool: Mail-look, arguments: {what: Oslo}}]
      - text: "Found: {result}"
  - match: '^cut'
    turns:
      - {text: Half of, finish: length}
  - match: '^count'
    turns:
      - calls: [{tool: Mail-count, arguments: {to: 3}}]
      - text: Counted.
  - match: '^post'
    turns:
      - calls: [{tool: Mail-post, arguments: {to: ada}}]
      - text: "Posted: {result}"
  - match: '^burn'
    turns:
      - calls: [{tool: Mail-burn}]
      - text: "Not burnt: {result}"
  - match: '^fail'
    turns: [{text: "So far", fail: refused}]
  - match: '^nasty'
    turns: [{text: "\e[31mred\e[0m \e]52;c;aGk=\a \x9b2J \u202eback\u202c end of nasty"}]
  - match: '^markdown'
    turns: [{text: "# Title\n\nA **bold** word, `code`, <b>tags</b>.\n\n- one\n- two\n\nEnd."}]
  - match: '^wide'
    turns: [{text: "日本語のテキスト 👩‍👩‍👧 für Ærø, the end of wide."}]
  - match: '^epic'
    turns:
      - text: "@EPIC@ the end of the epic."
        delay_ms: 100
turns:
  - text: "You said {user}."
"""
# Five minutes, at its own pace: whoever stops it is never too late.
EPIC = " ".join(f"word{number}" for number in range(1, 3001))
READY = re.compile(r"http://\S+:(\d+)")


def write_agent(folder: Path, name: str = "helper") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    plugins = folder / "custom_plugins.py"
    plugins.write_text(PLUGINS)
    plugins.chmod(0o600)
    (folder / "talk.yaml").write_text(SCRIPT.replace("@EPIC@", EPIC), encoding="utf-8")
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(name=name))
    return path


def environment(folder: Path, **values: str) -> dict[str, str]:
    """The real one without settings, keys and an editor, with a home of its own."""
    dropped = ("TA_", "TEAL_", "XDG_", "EDITOR", "VISUAL", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(dropped) and not name.endswith("_API_KEY")
    }
    return {**inherited, "HOME": str(folder), "TERM": "dumb", **values}


def command(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "sk_agents", *arguments]


@dataclass(slots=True)
class Served:
    """A server that runs, and the command line as its user."""

    folder: Path
    url: str
    process: subprocess.Popen[str]

    def run(
        self, *arguments: str, stdin: str = "", **values: str
    ) -> subprocess.CompletedProcess[str]:
        return run(self.folder, *arguments, stdin=stdin, TA_SERVER=self.url, **values)

    def answer(self, *arguments: str, stdin: str = "", **values: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*arguments, stdin=stdin, **values)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def terminal(self, *arguments: str, **values: str) -> Terminal:
        given = environment(self.folder, TA_SERVER=self.url, **values)
        return Terminal(["sk_agents", "chat", *arguments], self.folder, given)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def run(
    folder: Path, *arguments: str, stdin: str = "", **values: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(folder, **values),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds(90),
    )


@contextmanager
def serving(folder: Path, *arguments: str, **values: str) -> Iterator[Served]:
    """`arguments` name what is served, and how; without a port, a free one is taken."""
    port = () if "--port" in arguments else ("--port", "0")
    with (
        (folder / "server.log").open("a") as log,
        subprocess.Popen(
            command("serve", *arguments, *port),
            cwd=folder,
            env=environment(folder, **values),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = READY.search(process.stdout.readline())
            assert address, (folder / "server.log").read_text()
            yield Served(folder, address[0], process)
        finally:
            process.kill()
