"""One sandboxed program from start to end: what it writes, as it writes it, and how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
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
GATHER_SECONDS = 0.01
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
        command = python_command(script) if source.language == "python" else shell_command(script)
        program = Program(command, folder, private)
        plan = build_plan(wall, program, limits, bwrap=bwrap)
        async with _pipe() as (output, end):
            process = await _launched(launch_command(plan), end)
            try:
                async with aclosing(_output(process, output, limits)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                await _end(process)
    finally:
        await asyncio.shield(asyncio.to_thread(_remove, private))


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A pipe's reading end, and the descriptor of the other, which is the launched program's."""
    reading, writing = os.pipe()
    output = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", 0)
    )
    try:
        yield output, writing
    finally:
        # Also when somebody still holds the other end.
        transport.close()


async def _launched(command: list[str], output: int) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={},
            cwd="/",
        )
    finally:
        os.close(output)


async def _output(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, limits: Limits
) -> AsyncGenerator[bytes | Ended]:
    left, first = limits.output_kb * 1024, b""
    stopped: Literal["time", "output"] | None = None
    deadline = asyncio.get_running_loop().time() + limits.seconds
    while stopped is None:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await output.read(READ_BYTES)
                if not piece:
                    # It ends once nothing of the program is left.
                    await process.wait()
                    break
        except TimeoutError:
            stopped = "time"
            break
        first = first or piece
        if len(piece) > left:
            stopped = "output"
        yield piece[:left]
        left -= len(piece)
        # What comes within a moment is one piece, however often the program writes.
        await asyncio.sleep(GATHER_SECONDS)
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
    ended = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait({ended}, timeout=PARTING_SECONDS)
    if not done:
        logger.error("a sandboxed program would not end", extra={"pid": process.pid})
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await ended


def _private(source: Source) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="teal-run-"))
    (folder / "main").write_text(source.text, encoding="utf-8", errors="replace")
    return folder.resolve()


def _remove(folder: Path) -> None:
    # What the program locked away in a folder of its own stays, and is told.
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        logger.warning("a private folder could not be removed", extra={"folder": str(folder)})
