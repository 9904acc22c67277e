"""One transaction at a time for all jobs that wait: what is queued shares the next sync.

The statements of a group run on the event loop, only `COMMIT` in a thread. Measured on two cores
with 64 writers, that gives a quarter more commits than running the statements in the thread too:
each statement that releases the interpreter lock there gives the loop a chance to keep it.

A job checks its conditions before its first write, so a refused job leaves nothing behind and its
neighbours go on. Should a job fail in the middle, the group is rolled back and each of its jobs
runs again alone. No job succeeds before the sync that covers it has returned and the files that
were synced are known to be the ones that a restart would open.

The writer is also the one checkpointer of its process. It copies the WAL into the database between
two groups, when it has grown enough. No other connection does, so nothing is taken out of the WAL
without the syncs that this takes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from sk_agents.exceptions import StoreBroken, StoreUnavailable, TealError
from sk_agents.persistence.sqlite.database import (
    SqliteFiles,
    is_failed_sync,
    outcome_unknown,
    store_error,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A group runs on the loop in one go; this bounds how long the rest of the process waits for it.
MAX_GROUP = 128
# The WAL is copied into the database each time it has grown by so many frames: 4 MB.
CHECKPOINT_FRAMES = 1_000
# Past this, the writer waits for readers to leave the WAL, so that it can begin again.
RESTART_FRAMES = 8 * CHECKPOINT_FRAMES
RESTART_MS = 500
# How long another process's lock is waited for, and between two tries. A timer of the loop does it:
# with SQLite's own wait in the thread, each took 140 us of CPU, and one group in four met it.
BUSY_SECONDS = 5.0
PAUSES = (0.001, 0.002, 0.005, 0.01)


@dataclass(slots=True, eq=False)
class GroupJob:
    work: Callable[[apsw.Connection], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class GroupWriter:
    """Owns `connection` from `start` until `stop` has returned. Bound to one event loop.

    `began` is called first in every transaction, `undone` after every rollback.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        files: SqliteFiles,
        *,
        began: Callable[[apsw.Connection], None],
        undone: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._files = files
        self._began = began
        self._undone = undone
        self._waiting: list[GroupJob] = []
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._broken: StoreBroken | None = None
        self._errno = 0
        self._frames = 0
        self._checkpoint_at = CHECKPOINT_FRAMES
        self._loop: asyncio.AbstractEventLoop
        self._calls: SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None]
        self._calls = SimpleQueue()
        self._thread = threading.Thread(target=self._serve_calls, name="sqlite-commit", daemon=True)
        self._task: asyncio.Task[None] | None = None
        self.groups = 0
        self.jobs = 0
        self.checkpoints = 0

    def start(self) -> None:
        self._connection.set_busy_timeout(0)
        self._connection.set_wal_hook(self._committed)
        self._thread.start()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._serve_jobs())

    async def stop(self) -> None:
        """Write what is queued, then end."""
        self._stopping = True
        self._wake_up()
        if self._task is not None:
            await self._task
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def run(self, work: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Run `work` in a transaction; its result is there once that is on disk. Raises TealError:
        what `work` raised, or why the transaction failed."""
        self.check()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(GroupJob(work, future))
        self._wake_up()
        return future

    def check(self) -> None:
        """Raises what keeps this writer from writing, if anything does."""
        if self._broken is not None:
            raise StoreBroken(str(self._broken))
        if self._stopping:
            raise StoreUnavailable(f"{self._path}: the store is closed")

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """For work on a connection of its own: refused once the store is broken, and what breaks
        it there breaks it for all."""
        self.check()
        try:
            yield
        except StoreBroken as error:
            self._break(error)
            raise

    def is_sound(self) -> bool:
        """Whether the files are still ours and no sync was refused."""
        try:
            self._files.check()
        except StoreBroken as error:
            self._break(error)
        return self._broken is None

    def wal_grew(self, frames: int) -> None:
        """Called from any thread after a commit: the WAL has so many frames now."""
        if frames < self._frames:
            self._checkpoint_at = CHECKPOINT_FRAMES  # it was begun again
        self._frames = frames
        if frames >= self._checkpoint_at:
            with suppress(RuntimeError):  # the loop is closed, and so is this writer
                self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _serve_jobs(self) -> None:
        while self._waiting or not self._stopping:
            if self._frames >= self._checkpoint_at:
                await self._checkpoint()
            elif not self._waiting:
                self._wake = self._loop.create_future()
                await self._wake
            else:
                error = await self._begin()
                group, self._waiting = self._waiting[:MAX_GROUP], self._waiting[MAX_GROUP:]
                if error is None:
                    await self._write(group)
                else:
                    self._refuse(group, error)
                for job in group:
                    _resolve(job.future, job.result, job.error)

    async def _begin(self) -> Exception | None:
        """Begin a transaction, or say why not. What comes while another process holds the lock
        shares it."""
        if self._broken is not None:
            return self._broken
        give_up = self._loop.time() + BUSY_SECONDS
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError as error:
                if self._loop.time() >= give_up:
                    return error
            except apsw.Error as error:
                self._errno = self._connection.system_errno
                self._break_on(error)
                return error
            await asyncio.sleep(pause)
        return None

    async def _write(self, group: list[GroupJob]) -> None:
        """In the transaction that has begun; if it fails, each in one of its own."""
        self.groups += 1
        self.jobs += len(group)
        try:
            await self._transact(group)
        except Exception as error:  # the writer must outlive what a job raises
            self._break_on(error)
            if len(group) == 1 or self._broken:
                self._refuse(group, error)
                return
            for job in group:
                await self._write_alone(job)

    async def _write_alone(self, job: GroupJob) -> None:
        error = await self._begin()
        if error is None:
            await self._write([job])
        else:
            self._refuse([job], error)

    async def _transact(self, group: list[GroupJob]) -> None:
        connection = self._connection
        try:
            self._began(connection)
            for job in group:
                job.error = None
                try:
                    job.result = job.work(connection)
                except TealError as refusal:
                    job.error = refusal
            await self._in_thread(self._commit)
            # Not in the thread, which would wait for the interpreter lock after each file: a turn
            # of a busy server takes a quarter fewer switches between threads.
            self._files.check()
        except BaseException:
            self._errno = connection.system_errno
            self._undone()
            with suppress(apsw.Error):  # a failed COMMIT may have rolled back by itself
                connection.execute("ROLLBACK")
            raise

    def _refuse(self, group: Iterable[GroupJob], error: Exception) -> None:
        if is_failed_sync(error):
            error = outcome_unknown(self._path)
        elif isinstance(error, apsw.Error):
            error = store_error(error, self._path, self._errno)
        for job in group:
            job.error = error

    def _break_on(self, error: Exception) -> None:
        if is_failed_sync(error):
            self._break(StoreBroken(f"{self._path}: the disk refused to sync; restart"))
        elif isinstance(error, StoreBroken):
            self._break(error)

    def _break(self, error: StoreBroken) -> None:
        if self._broken is None:
            self._broken = error
            logger.error("the store is broken", extra={"reason": str(error)})

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _committed(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self.wal_grew(frames)
        return apsw.SQLITE_OK

    async def _checkpoint(self) -> None:
        self._checkpoint_at = self._frames + CHECKPOINT_FRAMES
        try:
            await self._in_thread(self._empty_wal)
            self.checkpoints += 1
        except (apsw.BusyError, apsw.LockedError):  # readers, or another process is at it
            return
        except apsw.Error as error:
            # What was committed lies safe in the WAL, which grows on.
            self._break_on(error)
            logger.warning("the WAL was not emptied", extra={"reason": str(error)})

    def _empty_wal(self) -> None:
        if self._frames < RESTART_FRAMES:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        self._connection.set_busy_timeout(RESTART_MS)
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._connection.set_busy_timeout(0)

    async def _in_thread(self, call: Callable[[], None]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._calls.put((call, future))
        await future

    def _serve_calls(self) -> None:
        while (item := self._calls.get()) is not None:
            call, future = item
            error: Exception | None = None
            try:
                call()
            except (apsw.Error, TealError) as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is gone, and so is the caller
                self._loop.call_soon_threadsafe(_resolve, future, None, error)


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # its caller was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
