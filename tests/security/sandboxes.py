"""Sandboxes for tests: each kind of wall that can be built here, and what is left afterwards."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sk_agents.tools.sandbox.plans import ProgramLimits, Wall
from sk_agents.tools.sandbox.sandbox import (
    Language,
    ProgramEnd,
    SourceCode,
    candidates,
    failure,
    run_program,
)
from tests.debian import BUBBLEWRAP, program
from tests.patience import seconds

WALLS: tuple[Wall, ...] = ("bubblewrap", "namespaces", "landlock")


def bwrap_path() -> str:
    """Bubblewrap; empty where it is not and cannot be installed."""
    return program(BUBBLEWRAP) or ""


@cache
def reason_against(wall: Wall) -> str | None:
    """Why these walls cannot be built on this machine."""
    if wall not in candidates(bwrap_path()):
        return "bwrap is not on PATH" if wall == "bubblewrap" else "the kernel has no Landlock"
    return failure(wall, bwrap_path())


@dataclass(frozen=True, slots=True)
class Run:
    text: str
    ended: ProgramEnd


async def ran(
    wall: Wall,
    text: str,
    folder: Path,
    limits: ProgramLimits | None = None,
    *,
    language: Language = "python",
) -> Run:
    """The program's output and end, in bounded time."""
    output, ended = b"", None
    chosen = limits or ProgramLimits(seconds=20)
    async with asyncio.timeout(seconds(60)):
        pieces = run_program(
            SourceCode(language, text), folder, chosen, wall=wall, bwrap=bwrap_path()
        )
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, ProgramEnd):
                    ended = piece
                else:
                    output += piece
    assert ended is not None
    return Run(output.decode(errors="replace"), ended)


def processes_in(folder: Path) -> list[str]:
    """What still runs with this working directory, in whichever namespace."""
    return [command for at, command in _running() if at == str(folder)]


def _running() -> Iterator[tuple[str, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            at = os.readlink(entry / "cwd")
            yield at, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
