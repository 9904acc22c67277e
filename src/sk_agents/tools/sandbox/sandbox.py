"""Sandboxed programs: which walls hold on this machine, and a program from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.sandbox.kernel_rules import (
    LANDLOCK_WITH_SIGNALS,
    is_known_machine,
    landlock_version,
)
from sk_agents.tools.sandbox.launcher import FAILED, WORDS
from sk_agents.tools.sandbox.plans import (
    Program,
    ProgramLimits,
    Wall,
    build_plan,
    launch_command,
    python_command,
)

logger = logging.getLogger(__name__)

Language = Literal["python", "shell"]
READ_BYTES = 64 * 1024
GATHER_SECONDS = 0.01
# How long the launcher may take to end what it watches.
PARTING_SECONDS = 5.0

HELD = "held"
PROBE_SECONDS = 20.0
# Ends with the word only if each attempt to get out is refused.
_PROBE = f"""
import os, socket, sys
def refused(act):
    try:
        act()
    except OSError:
        return True
open("probe", "w").close()
os.unlink("probe")
attempts = [
    lambda: socket.socket(),
    lambda: open({{secret!r}}),
    lambda: open({{secret!r}}, "w"),
    lambda: open("/proc/{{server}}/environ", "rb").read(1),
    lambda: os.kill({{server}}, 0),
]
print("{HELD}" if all(map(refused, attempts)) else "broken")
"""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """`stopped` names the limit that ended it; an exit code above 128 is a signal's."""

    code: int
    stopped: Literal["time", "output"] | None = None


@dataclass(frozen=True, slots=True)
class SourceCode:
    """Code as it was shown; it reaches the interpreter as a file."""

    language: Language
    text: str


async def run_program(
    source: SourceCode, folder: Path, limits: ProgramLimits, *, wall: Wall, bwrap: str = ""
) -> AsyncGenerator[bytes | ProgramEnd]:
    """Its output in pieces, then its end. Closing this kills it and all that it started.

    Raises:
        ToolError: the walls could not be built; nothing ran.
    """
    private = await asyncio.to_thread(_private, source)
    try:
        script = private / "main"
        is_python = source.language == "python"
        command = python_command(script) if is_python else ("/bin/sh", str(script))
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
        # Also when a process still holds the other end.
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
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, limits: ProgramLimits
) -> AsyncGenerator[bytes | ProgramEnd]:
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
    yield ProgramEnd(code, stopped)


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


def _private(source: SourceCode) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="teal-run-"))
    (folder / "main").write_text(source.text, encoding="utf-8", errors="replace")
    return folder.resolve()


def _remove(folder: Path) -> None:
    # What the program locked away in a folder of its own stays, and is logged.
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        logger.warning("a private folder could not be removed", extra={"folder": str(folder)})


class Sandbox:
    """Runs programs, a bounded number of them at once. Walls are chosen when it is first asked."""

    def __init__(self, *, running: int = 16, waiting_seconds: float = 30.0) -> None:
        self.slots = asyncio.Semaphore(running)
        self._waiting_seconds = waiting_seconds
        self._lock = threading.Lock()
        self._wall: Wall | None = None
        self._bwrap = ""

    def check(self) -> Wall:
        """The walls that hold here, the strongest first; tried once.

        Raises:
            ConfigurationError: none does.
        """
        with self._lock:
            if self._wall is None:
                self._bwrap = shutil.which("bwrap") or ""
                self._wall = _chosen(self._bwrap)
            return self._wall

    async def run(
        self, source: SourceCode, folder: Path, limits: ProgramLimits
    ) -> AsyncGenerator[bytes | ProgramEnd]:
        """As `run_program`.

        Raises:
            ToolError: as there, or too many programs run already. Nothing ran.
        """
        wall = await asyncio.to_thread(self.check)
        try:
            # Not `wait_for`: until Python 3.12 it may swallow a cancellation, and the program runs.
            async with asyncio.timeout(self._waiting_seconds):
                await self.slots.acquire()
        except TimeoutError:
            raise ToolError(
                "Too many programs run at the moment, nothing was run. Try again later."
            ) from None
        try:
            pieces = run_program(source, folder, limits, wall=wall, bwrap=self._bwrap)
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self.slots.release()


def candidates(bwrap: str) -> Iterator[Wall]:
    """What may work by what can be seen, the strongest first."""
    if not is_known_machine():
        return
    if bwrap:
        yield "bubblewrap"
    if landlock_version() >= 1:
        yield "namespaces"
    if landlock_version() >= LANDLOCK_WITH_SIGNALS:
        yield "landlock"


def _chosen(bwrap: str) -> Wall:
    problems = []
    for wall in candidates(bwrap):
        problem = failure(wall, bwrap)
        if problem is None:
            logger.info("code runs behind %s", wall)
            return wall
        problems.append(f"{wall}: {problem}")
    tried = "; ".join(problems) or "neither bubblewrap nor a kernel with Landlock is there"
    raise ConfigurationError(
        f"code cannot be run safely on this machine ({tried}); install bubblewrap, use Linux 6.12 "
        "or newer, or leave out run_python and run_shell"
    )


def failure(wall: Wall, bwrap: str) -> str | None:
    """Why these walls cannot be used here; `None` if a program could not get through them."""
    with tempfile.TemporaryDirectory(prefix="teal-probe-") as made:
        base = Path(made).resolve()
        folder, private, secret = base / "work", base / "private", base / "secret"
        folder.mkdir()
        private.mkdir()
        secret.write_text("secret")
        script = private / "main"
        script.write_text(_PROBE.format(secret=str(secret), server=os.getpid()))
        program = Program(python_command(script), folder, private)
        plan = build_plan(wall, program, ProgramLimits(), bwrap=bwrap)
        try:
            done = subprocess.run(
                launch_command(plan),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_SECONDS,
                start_new_session=True,
                env={},
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            return "it does not answer"
    if done.stdout.strip() == HELD:
        return None
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1][:200] if said else f"exit code {done.returncode}"
