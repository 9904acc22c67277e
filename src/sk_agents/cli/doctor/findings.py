"""What the doctor found, and how it is printed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Literal

from sk_agents.cli.options import Exit
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.terminal import BAD, DIM, GOOD, WARN, Screen, print_json

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
    """A line for each finding as soon as it is there, or one document at the end."""
    screen = Screen()
    found = []
    async for finding in findings:
        found.append(finding)
        if not as_json:
            screen.write(f"{finding.state:4} ", STYLES[finding.state])
            screen.write(f"{finding.check}: {one_line(finding.detail)}\n")
            if finding.hint is not None:
                screen.line(f"     {one_line(finding.hint)}", DIM)
    has_failed = any(finding.state == "fail" for finding in found)
    if as_json:
        print_json({"ok": not has_failed, "checks": [asdict(finding) for finding in found]})
    return Exit.FAILED if has_failed else Exit.DONE
