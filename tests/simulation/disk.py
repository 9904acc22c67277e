"""The simulated disk: what the stores write goes to files of this machine, what can go wrong with
them is decided here.

SQLite meets it as a file system of its own (a VFS), the file store as its `FileDisk` and the
modules `os` and `fcntl`. A killed process leaves everything it wrote. Power loss leaves what was
synced and some of the rest: writes and syncs are recorded as they are for the crash images. Where a
thread may lose the processor, it gives the baton back now and then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import apsw

from sk_agents.engine.ports import Clock, Store
from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.file import index as file_index
from sk_agents.persistence.file.store import FileStore
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.persistence.sqlite import group_writer
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.crash_images import disk as crash
from tests.crash_images.file_recorder import RecordingDisk
from tests.crash_images.sqlite_recorder import Name, RecordedFile, RecordingVFS
from tests.simulation.virtual_loop import PROCESS, Process
from tests.simulation.virtual_threads import breather, current_job, sleep

DATABASE = "teal.sqlite"
# How often a thread loses the processor at a statement, and at a step of the file system.
STATEMENT = 0.1
STEP = 0.03
# A history is short: what the group writer does after 1,000 frames of a WAL it does after these.
CHECKPOINT_FRAMES = 20
# And SQLite by itself, in a connection that was not told otherwise, after fewer: it comes first.
DEFAULT_FRAMES = 8
# What can be removed under a running server, by the store: `.` is the folder itself.
PARTS = {
    "sqlite": (("teal.sqlite",), ("teal.sqlite-wal",), (".",)),
    "file": (("chats", "users"), ("store.json",), (".",)),
}


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
    # Whether its files were taken away: nobody starts a server on what is left of them.
    is_away: bool = False
    _memory: MemoryStore | None = None
    _reader: Store | None = None
    _recording: crash.Recording = field(default_factory=crash.Recording)
    _file_disk: SimulatedFileDisk = field(init=False)
    _boots: int = 0

    @classmethod
    def begun(cls, kind: str, folder: Path, clock: Clock) -> Disk:
        """An empty disk without faults."""
        STATE.is_full = False
        STATE.refusing.clear()
        STATE.refused.clear()
        disk = cls(kind, folder, clock)
        if kind != "memory":
            disk._boot({})
        return disk

    def store(self) -> Store:
        """Raises StoreUnavailable: its files are away."""
        if self.is_away:
            raise StoreUnavailable
        match self.kind:
            case "memory":
                self._memory = self._memory or MemoryStore(clock=self.clock)
                return self._memory
            case "sqlite":
                return SqliteStore(self.folder / DATABASE, clock=self.clock)
            case "file":
                return FileStore(self.folder, clock=self.clock, disk=self._file_disk)
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
        shutil.copytree(self.folder, self._backup, ignore=shutil.ignore_patterns("*-shm"))

    def put_back(self) -> None:
        """Other files with the backup's bytes take the place of all that is there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._backup, self.folder)
        if self.kind == "file":
            self._file_disk.adopt(self.folder)
        else:
            crash.adopt(self._recording, self.folder)
        self.is_away = False

    def take_away(self, number: int) -> None:
        """Remove some of the files."""
        self.is_away = True
        parts = PARTS[self.kind]
        for name in parts[number % len(parts)]:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def image(self, random: Random) -> crash.Image:
        """What the disk may have if the power is lost now."""
        disk = crash.Disk(self._recording)
        disk.advance(self._recording.now)
        return disk.image(crash.Choice(random.choice(crash.Choice.KINDS), random))

    def lose_power(self, image: crash.Image) -> None:
        """The machine starts again with this on its disk. No instance runs."""
        self._boot(image)

    def _boot(self, image: crash.Image) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        crash.write_image(image, self.folder)
        self._recording = crash.Recording()
        if self.kind == "file":
            self._file_disk = SimulatedFileDisk(self._recording, self.folder)
        else:
            crash.adopt(self._recording, self.folder)
            _VFS[-1].recording = self._recording
        self._boots += 1
        file_index.BOOT_ID = self.folder.with_name("boot_id")
        file_index.BOOT_ID.write_text(f"boot {self._boots}")

    @property
    def _backup(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-backup")

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.__aexit__(None, None, None)

    def heal(self) -> None:
        STATE.is_full = False
        STATE.refusing.clear()


class SimulatedFiles(RecordingVFS):
    """SQLite's file system while it is installed."""

    def recorded_file(self, name: Name, flags: list[int]) -> RecordedFile:
        return _SimulatedFile(self.recording, name, flags)

    def xSleep(self, microseconds: int) -> int:
        if current_job() is not None:
            sleep(microseconds / 1e6)
        return microseconds


class _SimulatedFile(RecordedFile):
    def xWrite(self, data: bytes, offset: int) -> None:
        if STATE.is_full and offset + len(data) > self.xFileSize():
            raise apsw.exception_for(apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        breather(STEP)
        if STATE.refuses_sync():
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)


def install_sqlite() -> None:
    """For the rest of this process."""
    _VFS.append(SimulatedFiles(crash.Recording()))
    apsw.connection_hooks.append(_watch)
    group_writer.CHECKPOINT_FRAMES = CHECKPOINT_FRAMES
    group_writer.RESTART_FRAMES = 8 * CHECKPOINT_FRAMES


_VFS: list[SimulatedFiles] = []


def _watch(connection: apsw.Connection) -> None:
    connection.wal_autocheckpoint(DEFAULT_FRAMES)

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


class SimulatedFileDisk(RecordingDisk):
    """What the file store changes the disk by."""

    def open(self, name: str, folder: int, flags: int) -> int:
        breather(STEP / 4)
        return super().open(name, folder, flags)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """As much as there is room for: on a full disk, half of it."""
        if STATE.is_full and offset + len(data) > os.fstat(fd).st_size:
            data = data[: len(data) // 2]
        return super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        breather(STEP)
        if STATE.refuses_sync():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def move(self, name: str, folder: int, to_name: str, to_folder: int) -> None:
        breather(STEP)
        super().move(name, folder, to_name, to_folder)


class SimulatedOs:
    """Stands for the module `os` in the file store."""

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
