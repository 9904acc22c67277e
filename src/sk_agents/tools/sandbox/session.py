"""One sandboxed program from start to end: what it writes, as it writes it, and how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sk_agents.exceptions import ToolError
from sk_agents.tools.sandbox.launcher import FAILED, WORDS
from sk_agents.tools.sandbox.plans import (
    Limits,
    Program,
    Wall,
    build_plan,
    launch_command,
    python_command,
    shell_command,
)

logger = logging.getLogger(__name__)

Language = Literal["python", "shell"]
READ_BYTES = 64 * 1024
# How long the launcher may take to end what it watches.
PARTING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """`stopped` names the limit that ended it; an exit code above 128 is a signal's."""

    code: int
    stopped: Literal["time", "output"] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Code as it was shown; it reaches the interpreter as a file."""

    language: Language
    text: str


async def run(
    source: Source, folder: Path, limits: Limits, *, wall: Wall, bwrap: str = ""
) -> AsyncGenerator[bytes | Ended]:
    """Its output in pieces, then its end. Closing this kills it and all that it started.

    Raises:
        ToolError: the walls could not be built; nothing ran.
    """
    private = await asyncio.to_thread(_private, source)
    try:
        script = private / "main"
        command = (
            python_command(script) if source.language == "python" else shell_command(script)
        )
        program = Program(command, folder, private)
        plan = build_plan(wall, program, limits, bwrap=bwrap)
        process = await asyncio.create_subprocess_exec(
            *launch_command(json.dumps(plan)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={},
            cwd="/",
        )
        try:
            async for piece in _output(process, limits):
                yield piece
        finally:
            await _end(process)
    finally:
        await asyncio.shield(asyncio.to_thread(_remove, private))


async def _output(
    process: asyncio.subprocess.Process, limits: Limits
) -> AsyncGenerator[bytes | Ended]:
    assert process.stdout is not None
    left, first = limits.output_kb * 1024, b""
    stopped: Literal["time", "output"] | None = None
    try:
        async with asyncio.timeout(limits.seconds):
            while piece := await process.stdout.read(READ_BYTES):
                first = first or piece
                yield piece[:left]
                left -= len(piece)
                if left < 0:
                    stopped = "output"
                    break
            else:
                # It ends once nothing of the program is left.
                await process.wait()
    except TimeoutError:
        stopped = "time"
    if stopped is not None:
        await _end(process)
    code = process.returncode if process.returncode is not None else FAILED
    if code == FAILED and first.startswith(WORDS.encode()):
        reason = first.decode(errors="replace").strip()
        logger.warning("the sandbox failed", extra={"reason": reason})
        raise ToolError(f"The sandbox could not be built, nothing was run: {reason}")
    yield Ended(code, stopped)


async def _end(process: asyncio.subprocess.Process) -> None:
    """The launcher ends all it watches. If it cannot, it is ended, and the kernel does the rest."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    drained = asyncio.ensure_future(_drained(process))
    done, _ = await asyncio.wait({drained}, timeout=PARTING_SECONDS)
    if not done:
        logger.error("a sandboxed program would not end", extra={"pid": process.pid})
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        drained.cancel()


async def _drained(process: asyncio.subprocess.Process) -> None:
    # A full pipe would keep nobody from dying, but its reader would never see the end.
    assert process.stdout is not None
    while await process.stdout.read(READ_BYTES):
        pass
    await process.wait()


def _private(source: Source) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="teal-run-"))
    (folder / "main").write_text(source.text, encoding="utf-8", errors="replace")
    return folder.resolve()


def _remove(folder: Path) -> None:
    # What the program locked away in a folder of its own stays, and is told.
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        logger.warning("a private folder could not be removed", extra={"folder": str(folder)})
