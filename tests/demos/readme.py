"""A demo's README as a test: its commands are run, and what it shows is compared.

A block of `sh` with `curl` in it is a request, the block of `json` or `text` after it the reply.
`…` stands for anything; as a key, for further keys.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import seconds

ANYTHING = "…"
SHOWN_ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
KEPT = ("request_id", "task_id")


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    shown: str
    is_json: bool


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def serve_command(page: Path) -> tuple[dict[str, str], list[str]]:
    """The variables and arguments with which the README says to serve the demo."""
    command = next(text for kind, text in blocks(page) if kind == "sh" and "teal serve" in text)
    words = shlex.split(command)
    start = words.index("teal")
    given = [found for word in words[:start] if (found := ASSIGNMENT.fullmatch(word))]
    return {one[1]: one[2] for one in given}, words[start + 2 :]


def steps(page: Path) -> Iterator[Step]:
    found = blocks(page)
    for (kind, command), (shown_as, shown) in zip(found, found[1:], strict=False):
        if kind == "sh" and "curl" in command:
            assert shown_as in ("json", "text"), f"{page}: no reply to: {command}"
            yield Step(command, shown, shown_as == "json")


@dataclass
class Reader:
    """Somebody who follows a README at their own server; `known` are the ids of the last reply."""

    address: str
    folder: Path
    environment: dict[str, str]
    known: dict[str, str] = field(default_factory=dict)

    def follow(self, page: Path) -> int:
        """How many commands there were."""
        count = 0
        for step in steps(page):
            self.do(step)
            count += 1
        return count

    def do(self, step: Step) -> None:
        reply = self.run(step.command)
        if not step.is_json:
            assert pattern(step.shown.strip()).fullmatch(reply.strip()), reply
            return
        document = json.loads(reply)
        assert list(differences(json.loads(step.shown), document)) == [], reply
        self.known |= {name.upper(): document[name] for name in KEPT if name in document}

    def run(self, command: str) -> str:
        assert SHOWN_ADDRESS in command
        done = subprocess.run(
            ["bash", "-euc", command.replace(SHOWN_ADDRESS, self.address)],
            cwd=self.folder,
            env=self.environment | self.known,
            capture_output=True,
            text=True,
            timeout=seconds(30),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def pattern(shown: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, shown.split(ANYTHING))), re.DOTALL)


def differences(shown: Any, actual: Any, place: str = "reply") -> Iterator[str]:
    match shown:
        case "…":
            return
        case dict() if isinstance(actual, dict):
            wanted = shown.keys() - {ANYTHING}
            surplus = set() if ANYTHING in shown else actual.keys() - wanted
            for key in (wanted - actual.keys()) | surplus:
                yield f"{place}.{key} is in one only"
            for key in wanted & actual.keys():
                yield from differences(shown[key], actual[key], f"{place}.{key}")
        case list() if isinstance(actual, list) and len(shown) == len(actual):
            for number, (one, other) in enumerate(zip(shown, actual, strict=True)):
                yield from differences(one, other, f"{place}[{number}]")
        case str() if isinstance(actual, str):
            if not pattern(shown).fullmatch(actual):
                yield f"{place}: {actual!r}"
        case _ if shown != actual or type(shown) is not type(actual):
            yield f"{place}: {actual!r}"
