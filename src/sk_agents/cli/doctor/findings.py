"""What the doctor found, and how it is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Literal

from sk_agents.cli.exits import Exit
from sk_agents.cli.neutral import one_line
from sk_agents.cli.screen import BAD, DIM, GOOD, WARN, Screen, print_json

State = Literal["ok", "warn", "fail"]
STYLES: dict[State, str] = {"ok": GOOD, "warn": WARN, "fail": BAD}


@dataclass(frozen=True, slots=True)
class Finding:
    """`hint` says what to do about it."""

    check: str
    state: State
    detail: str
    hint: str | None = None


async def report(findings: AsyncIterator[Finding], *, as_json: bool) -> Exit:
    """A line as soon as something is found, or one document at the end."""
    screen = Screen()
    found = []
    async for finding in findings:
        found.append(finding)
        if not as_json:
            _tell(screen, finding)
    has_failed = any(finding.state == "fail" for finding in found)
    if as_json:
        checks = [asdict(finding) for finding in found]
        print_json({"ok": not has_failed, "checks": checks})
    return Exit.FAILED if has_failed else Exit.DONE


def _tell(screen: Screen, finding: Finding) -> None:
    screen.write(f"{finding.state:4} ", STYLES[finding.state])
    screen.write(f"{finding.check}: {one_line(finding.detail)}\n")
    if finding.hint is not None:
        screen.line(f"     {one_line(finding.hint)}", DIM)
