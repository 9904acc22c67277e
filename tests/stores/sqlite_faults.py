"""Faults for a SQLite file: a disk that cannot sync, and processes that hold or limit it."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Absent, Commit
from sk_agents.engine.models import NewThread
from sk_agents.exceptions import TealError
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.forked_python import PYTHON
from tests.patience import seconds

Name = str | apsw.URIFilename | None
NOBODY = 65534


def note(thread_id: str, text: str = "hello") -> Commit:
    """A commit that makes a thread with one event."""
    events = (ThreadChanged(metadata={"title": text}),)
    return Commit(thread_id, f"made-{thread_id}", Absent(NewThread("alice")), events)


class FailingDisk(apsw.VFS):
    """A file system that counts its syncs and fails them on demand, all or those of files with a
    name that ends so, and takes nothing while it `is_full`; the default while installed."""

    def __init__(self) -> None:
        self.fails = False
        self.fails_for: str | None = None
        self.is_full = False
        self.syncs = 0
        super().__init__("failing-disk", base="unix", makedefault=True)

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Name, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.is_full:
            raise apsw.exception_for(apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.syncs += 1
        fails_for = self._disk.fails_for
        if self._disk.fails or (fails_for is not None and self._name.endswith(fails_for)):
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)


@contextmanager
def failing_disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    try:
        yield disk
    finally:
        disk.unregister()


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    command = [PYTHON, "-m", "tests.stores.sqlite_faults", "lock", str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.communicate()


def outcome_in_child(action: str, path: Path) -> str:
    """What `action` printed in a process of its own."""
    command = [PYTHON, "-m", "tests.stores.sqlite_faults", action, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(60))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _lock(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    sys.stdout.write("locked\n")
    sys.stdout.flush()
    sys.stdin.read()
    connection.close()


async def _open_without_rights(path: Path) -> str:
    if os.getuid() == 0:  # root is let in everywhere
        os.setuid(NOBODY)
    try:
        async with SqliteStore(path):
            return "opened"
    except TealError as error:
        return f"{type(error).__name__} {error}"


async def _fill_the_disk(path: Path) -> str:
    """Commit until the file may grow no more, then say what is left and make room again."""
    said: list[str] = []
    async with SqliteStore(path) as store:
        stored = 0
        with _no_file_larger_than(_wal_of(path).stat().st_size + 300_000):
            try:
                for stored in range(1_000):
                    await store.commit(note(f"t{stored}", "x" * 50_000))
            except TealError as error:
                said.append(type(error).__name__)
        await store.commit(note("after"))
        said.append("wrote again")
    async with SqliteStore(path) as store:
        for number in range(stored):
            assert len(await store.events_after(f"t{number}", 0)) == 1
        await store.commit(note(f"t{stored}", "the refused one left nothing behind"))
    return " ".join([*said, f"kept {min(stored, 1)}"])


async def _ping_a_full_disk(path: Path) -> str:
    async with SqliteStore(path) as store:
        await store.commit(note("before"))
        store.renew("o", 60)
        said = []
        with _no_file_larger_than(1):
            said.append(f"ping {await _outcome(store.ping())}")
            try:
                store.renew("o", 60)
            except TealError as error:
                said.append(f"renew {type(error).__name__}")
        said.append(f"then ping {await _outcome(store.ping())}")
        said.append(f"commit {await _outcome(store.commit(note('after')))}")
    return ", ".join(said)


async def _ping_after_a_refusal(path: Path) -> str:
    async with SqliteStore(path) as store:
        big = note("big", "x" * 200_000)
        with _no_file_larger_than(_wal_of(path).stat().st_size + 150_000):
            said = [
                f"small {await _outcome(store.commit(note('small')))}",
                f"big {await _outcome(store.commit(big))}",
                f"ping {await _outcome(store.ping())}",
            ]
        said.append(f"then ping {await _outcome(store.ping())}")
        said.append(f"big {await _outcome(store.commit(big))}")
        said.append(f"ping {await _outcome(store.ping())}")
    return ", ".join(said)


async def _outcome(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except TealError as error:
        return type(error).__name__
    return "ok"


def _wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@contextmanager
def _no_file_larger_than(size: int) -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


ACTIONS = {
    "unprivileged": _open_without_rights,
    "fill": _fill_the_disk,
    "ping_full": _ping_a_full_disk,
    "ping_refused": _ping_after_a_refusal,
}

if __name__ == "__main__":
    action, place = sys.argv[1], Path(sys.argv[2])
    if action == "lock":
        _lock(place)
    else:
        sys.stdout.write(asyncio.run(ACTIONS[action](place)))
