"""Jobs that share a transaction: each is stored or refused by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    SequenceConflict,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from sk_agents.persistence.sqlite import group_writer
from sk_agents.persistence.sqlite.database import SqliteFiles
from sk_agents.persistence.sqlite.group_writer import CHECKPOINT_FRAMES, GroupWriter
from tests.patience import seconds

Work = Callable[[apsw.Connection], Any]


class Kept:
    """A writer over a table of names, and how often it began and undid a transaction."""

    def __init__(self, path: Path) -> None:
        self.database = apsw.Connection(str(path))
        self.database.pragma("journal_mode", "wal")
        self.database.execute("CREATE TABLE kept (name TEXT)")
        self.began = self.undone = 0
        self.writer = GroupWriter(
            self.database, path, SqliteFiles(path), began=self._begin, undone=self._undo
        )

    def _begin(self, connection: apsw.Connection) -> None:
        self.began += 1

    def _undo(self) -> None:
        self.undone += 1

    async def all(self, *jobs: Work) -> list[Any]:
        """What each of the jobs comes to; all of them are queued at once."""
        async with asyncio.timeout(seconds(5)):
            return await asyncio.gather(*map(self.writer.run, jobs), return_exceptions=True)

    @property
    def names(self) -> list[str]:
        return [name for (name,) in self.database.execute("SELECT name FROM kept ORDER BY rowid")]


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    kept = Kept(tmp_path / "kept.sqlite")
    kept.writer.start()
    yield kept
    await kept.writer.stop()
    kept.database.close()


def keep(name: str, error: Exception | None = None) -> Work:
    """Store a name, then fail, if it is to."""

    def work(connection: apsw.Connection) -> str:
        if error is not None and isinstance(error, SequenceConflict):
            raise error
        connection.execute("INSERT INTO kept VALUES (?)", (name,))
        if error is not None:
            raise error
        return name

    return work


def failed_sync() -> apsw.IOError:
    error = apsw.IOError("disk I/O error")
    vars(error)["extendedresult"] = apsw.SQLITE_IOERR_FSYNC
    return error


async def test_refused_job_leaves_its_neighbours_in_one_transaction(kept: Kept) -> None:
    conflict = SequenceConflict()
    assert await kept.all(keep("a"), keep("b", conflict), keep("c")) == ["a", conflict, "c"]
    assert kept.names == ["a", "c"]
    assert (kept.began, kept.undone, kept.writer.groups) == (1, 0, 1)


async def test_job_that_fails_in_the_middle_is_undone_and_its_neighbours_are_stored(
    kept: Kept,
) -> None:
    mistake = ValueError("a mistake")
    assert await kept.all(keep("a"), keep("b", mistake), keep("c")) == ["a", mistake, "c"]
    assert kept.names == ["a", "c"]
    # The group, then the one that failed alone.
    assert kept.undone == 2


async def test_error_of_the_database_is_told_as_one_of_the_store(kept: Kept) -> None:
    def broken(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    alone = (await kept.all(broken))[0]
    first, among = await kept.all(keep("a"), broken)
    assert isinstance(alone, StoreError) and isinstance(among, StoreError)
    assert (first, kept.names) == ("a", ["a"])


async def test_writer_goes_on_after_an_error(kept: Kept) -> None:
    await kept.all(keep("a", ValueError()))
    assert await kept.all(keep("b")) == ["b"]
    assert kept.names == ["b"]


async def test_job_whose_sender_is_gone_is_stored_and_its_neighbours_hear_of_theirs(
    kept: Kept,
) -> None:
    gone, here = kept.writer.run(keep("a")), kept.writer.run(keep("b"))
    gone.cancel()
    async with asyncio.timeout(seconds(5)):
        assert await here == "b"
    assert kept.names == ["a", "b"]


async def test_after_a_failed_sync_nothing_more_is_written(kept: Kept) -> None:
    first, second = await kept.all(keep("a"), keep("b", failed_sync()))
    assert isinstance(first, CommitOutcomeUnknown)
    assert isinstance(second, CommitOutcomeUnknown)
    with pytest.raises(StoreUnavailable):
        await kept.writer.run(keep("c"))
    assert kept.names == []


async def test_jobs_that_wait_while_a_sync_fails_are_refused_too(kept: Kept) -> None:
    """More than one transaction takes."""
    jobs = [keep("a", failed_sync()), *(keep(str(number)) for number in range(200))]
    outcomes = await kept.all(*jobs)
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert isinstance(outcomes[-1], StoreUnavailable)
    assert kept.names == []


@pytest.fixture
def other(kept: Kept, tmp_path: Path) -> Iterator[apsw.Connection]:
    """It holds the lock, as another process may."""
    with closing(apsw.Connection(str(tmp_path / "kept.sqlite"))) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def test_what_comes_while_a_lock_is_waited_for_shares_the_transaction(
    kept: Kept, other: apsw.Connection
) -> None:
    first = kept.writer.run(keep("a"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not first.done()
    second = kept.writer.run(keep("b"))
    other.execute("COMMIT")
    async with asyncio.timeout(seconds(5)):
        assert [await first, await second] == ["a", "b"]
    assert kept.writer.groups == 1


async def test_all_who_wait_for_a_lock_are_refused_after_one_wait(
    kept: Kept, other: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_writer, "BUSY_SECONDS", 0.05)
    outcomes = await kept.all(*map(keep, "abc"))
    assert [type(outcome) for outcome in outcomes] == 3 * [StoreBusy]
    other.execute("COMMIT")
    assert await kept.all(keep("d")) == ["d"]
    assert (kept.names, kept.writer.groups) == (["d"], 1)


async def test_wal_that_was_begun_again_is_emptied_at_its_usual_length(kept: Kept) -> None:
    for name, emptied in (("a", 1), ("b", 2)):
        kept.writer.wal_grew(CHECKPOINT_FRAMES)
        # It comes after the checkpoint, and begins the WAL again.
        await kept.all(keep(name))
        assert kept.writer.checkpoints == emptied
