"""Which walls hold on this machine: found out by trying to get through them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.sandbox import filters, landlock
from sk_agents.tools.sandbox.plans import (
    Limits,
    Program,
    Wall,
    build_plan,
    launch_command,
    python_command,
)
from sk_agents.tools.sandbox.session import Ended, Source, run

logger = logging.getLogger(__name__)

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


class Sandbox:
    """Runs programs, a bounded number of them at once. Walls are chosen when it is first asked."""

    def __init__(self, *, running: int = 16, waiting_seconds: float = 30.0) -> None:
        self._slots = asyncio.Semaphore(running)
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
        self, source: Source, folder: Path, limits: Limits
    ) -> AsyncGenerator[bytes | Ended]:
        """As `session.run`.

        Raises:
            ToolError: as there, or too many programs run already. Nothing ran.
        """
        wall = await asyncio.to_thread(self.check)
        try:
            # Not `wait_for`: until Python 3.12 it may swallow a cancellation, and the program runs.
            async with asyncio.timeout(self._waiting_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise ToolError(
                "Too many programs run at the moment, nothing was run. Try again later."
            ) from None
        try:
            pieces = run(source, folder, limits, wall=wall, bwrap=self._bwrap)
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self._slots.release()


def candidates(bwrap: str) -> Iterator[Wall]:
    """What may work by what can be seen, the strongest first."""
    if not filters.is_known():
        return
    if bwrap:
        yield "bubblewrap"
    if landlock.version() >= 1:
        yield "namespaces"
    if landlock.version() >= landlock.VERSION_WITH_SIGNALS:
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
        plan = build_plan(wall, program, Limits(), bwrap=bwrap)
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
