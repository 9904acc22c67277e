"""A command in a terminal of its own, typed at and read from like one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.forked_python import PYTHON
from tests.patience import seconds

PATIENCE = seconds(45)
TRIES = 10
# Ctrl-C reaches only the processes of the session that the terminal belongs to.
TAKE_TERMINAL = (
    "import fcntl, runpy, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "sys.argv = sys.argv[1:];"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
SIZE = struct.pack("HHHH", 50, 300, 0, 0)


class Terminal:
    """A module and its arguments, run at one; `seen` is everything it has shown so far."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._arguments = arguments
        self._folder = folder
        self._environment = environment
        self._unread = ""
        self.seen = ""

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        self._process = subprocess.Popen(
            [PYTHON, "-c", TAKE_TERMINAL, *self._arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
        )
        os.close(slave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def read_until(self, *markers: str) -> str:
        """What was shown up to and with the markers, one after the other."""
        start = len(self.seen) - len(self._unread)
        for marker in markers:
            deadline = time.monotonic() + PATIENCE
            while marker not in self._unread:
                if not self._read(deadline - time.monotonic()):
                    raise AssertionError(f"no {marker!r} after {self.seen!r}")
            self._unread = self._unread.partition(marker)[2]
        return self.seen[start : len(self.seen) - len(self._unread)]

    def type(self, line: str) -> None:
        self.press(f"{line}\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press_until(self, keys: str, marker: str) -> None:
        """For Ctrl-C at a prompt: in the moment before it waits for a key, Python's line editor
        takes a signal only with the next key."""
        for _ in range(TRIES):
            self.press(keys)
            deadline = time.monotonic() + PATIENCE / TRIES
            while marker not in self._unread and self._read(deadline - time.monotonic()):
                pass
            if marker in self._unread:
                break
        self.read_until(marker)

    def exit_code(self) -> int:
        """Once it has said everything."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        return self._process.wait(PATIENCE)

    def _read(self, bound: float) -> bool:
        """False if nothing came in time, or nothing will."""
        if not select.select([self._master], [], [], max(0.0, bound))[0]:
            return False
        try:
            read = os.read(self._master, 65536)
        except OSError:
            # How Linux says that the last writer has left.
            return False
        text = read.decode(errors="replace").replace("\r\n", "\n")
        self.seen += text
        self._unread += text
        return bool(read)
