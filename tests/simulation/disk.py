"""The simulated disk: what the stores write goes to files of this machine, what can go wrong with
them is decided here.

SQLite meets it as a file system of its own (a VFS), the file store as the modules `os` and `fcntl`.
Nothing is synced: a killed process leaves everything it wrote, and a refused sync is an answer like
any other. Where a thread may lose the processor, it gives the baton back now and then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from sk_agents.engine.ports import Clock, Store
from sk_agents.persistence.file_store import FileStore
from sk_agents.persistence.memory_store import MemoryStore
from sk_agents.persistence.sqlite_store import SqliteStore
from tests.simulation.virtual_loop import PROCESS, Process
from tests.simulation.virtual_threads import breather, current_job, sleep

DATABASE = "teal.sqlite"
# How often a thread loses the processor at a statement, and at a step of the file system.
STATEMENT = 0.1
STEP = 0.03

Name = str | apsw.URIFilename | None


@dataclass(slots=True)
class DiskState:
    """What is wrong with the disk now: for everybody, or for one process."""

    is_full: bool = False
    refusing: set[Process] = field(default_factory=set)
    # Processes that were refused a sync: what they believe of the disk may be wrong.
    refused: set[Process] = field(default_factory=set)

    def refuses_sync(self) -> bool:
        process = PROCESS.get()
        if process is None or process not in self.refusing:
            return False
        self.refusing.discard(process)
        self.refused.add(process)
        return True


STATE = DiskState()


@dataclass(slots=True)
class Disk:
    """`kind` is the store that lies on it; each process opens one of its own, but in memory."""

    kind: str
    folder: Path
    clock: Clock
    _memory: MemoryStore | None = None
    _reader: Store | None = None

    @classmethod
    def begun(cls, kind: str, folder: Path, clock: Clock) -> Disk:
        """An empty disk without faults."""
        STATE.is_full = False
        STATE.refusing.clear()
        STATE.refused.clear()
        if kind != "memory":
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        return cls(kind, folder, clock)

    def store(self) -> Store:
        match self.kind:
            case "memory":
                self._memory = self._memory or MemoryStore(clock=self.clock)
                return self._memory
            case "sqlite":
                return SqliteStore(self.folder / DATABASE, clock=self.clock)
            case "file":
                return FileStore(self.folder, clock=self.clock)
            case other:
                raise AssertionError(other)

    async def reader(self) -> Store:
        """A store to look into, past every instance."""
        if self._reader is None:
            self._reader = self.store()
            await self._reader.__aenter__()
        return self._reader

    def back_up(self) -> None:
        """All files as they are at this moment."""
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self.folder, self._backup)

    def put_back(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._backup, self.folder)

    @property
    def _backup(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-backup")

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.__aexit__(None, None, None)

    def heal(self) -> None:
        STATE.is_full = False
        STATE.refusing.clear()


class SimulatedFiles(apsw.VFS):
    """SQLite's file system while it is installed."""

    def __init__(self) -> None:
        super().__init__("simulated", base="unix", makedefault=True)

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        return _SimulatedFile(name, flags)

    def xSleep(self, microseconds: int) -> int:
        if current_job() is not None:
            sleep(microseconds / 1e6)
        return microseconds


class _SimulatedFile(apsw.VFSFile):
    def __init__(self, name: Name, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if STATE.is_full and offset + len(data) > self.xFileSize():
            raise apsw.exception_for(apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if STATE.refuses_sync():
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


def install_sqlite() -> None:
    """For the rest of this process."""
    _KEPT.append(SimulatedFiles())
    apsw.connection_hooks.append(_watch)


_KEPT: list[apsw.VFS] = []


def _watch(connection: apsw.Connection) -> None:
    def traced(cursor: object, statement: str, bindings: object) -> bool:
        breather(STATEMENT)
        return True

    connection.set_exec_trace(traced)
    process = PROCESS.get()
    if process is not None:
        process.held.append(lambda: _abandon(connection))


def _abandon(connection: apsw.Connection) -> None:
    """A killed process holds no lock, leaves no half transaction and makes no checkpoint."""
    with suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)


class SimulatedOs:
    """Stands for the module `os` in the file store."""

    def fsync(self, fd: int) -> None:
        breather(STEP)
        if STATE.refuses_sync():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, fd: int, data: bytes) -> int:
        """As much as there is room for: of a full disk, half of it."""
        if STATE.is_full:
            return os.write(fd, data[: len(data) // 2])
        return os.write(fd, data)

    def rename(self, *names: Any, **folders: Any) -> None:
        breather(STEP)
        os.rename(*names, **folders)

    def open(self, *arguments: Any, **options: Any) -> int:
        breather(STEP / 4)
        return os.open(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class SimulatedLocks:
    """Stands for the module `fcntl`: between asking for a lock and having it, others may run."""

    def flock(self, fd: int, mode: int) -> None:
        if not mode & fcntl.LOCK_UN:
            breather(STEP)
        fcntl.flock(fd, mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(fcntl, name)
