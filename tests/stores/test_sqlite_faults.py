"""What a SQLite file meets in the field: full disks, locks, damage, other versions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from threading import Barrier

import apsw
import orjson
import pytest

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Commit, Unchanged
from sk_agents.engine.models import HEAD_VERSION
from sk_agents.engine.ports import Count, ThreadQuery
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    SchemaTooNew,
    StateCorrupt,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    ThreadNotFound,
)
from sk_agents.persistence.encoding import head_checksum
from sk_agents.persistence.sqlite import database as sqlite_database
from sk_agents.persistence.sqlite import group_writer
from sk_agents.persistence.sqlite.database import MIGRATIONS, open_for_writing
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.commits import USER, start_run
from tests.patience import seconds
from tests.stores.sqlite_faults import (
    failing_disk,
    locked_by_another_process,
    note,
    outcome_in_child,
)


def pragma(path: Path, name: str, value: int | None = None) -> object:
    connection = apsw.Connection(str(path))
    try:
        return connection.pragma(name, value) if value is not None else connection.pragma(name)
    finally:
        connection.close()


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A folder nobody but its owner may write, on a path everybody may walk."""
    folder = Path(tempfile.mkdtemp(prefix="teal-guarded-"))
    folder.chmod(0o755)
    yield folder
    rmtree(folder)


async def test_what_is_committed_is_in_the_file_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
    async with SqliteStore(path) as store:
        assert (await store.thread("t")).metadata == {"title": "hello"}
        assert [event.seq for event in await store.events_after("t", 0)] == [1]


async def test_every_commit_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    with failing_disk() as disk:
        async with SqliteStore(tmp_path / "teal.sqlite") as store:
            before = disk.syncs
            for number in range(5):
                await store.commit(note(f"t{number}"))
                assert disk.syncs > before + number


async def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path):
        pass
    pragma(path, "user_version", len(sqlite_database.MIGRATIONS) + 1)
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="newer version"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes() == before


async def test_an_older_schema_is_migrated_and_keeps_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
    newer = (*sqlite_database.MIGRATIONS, "CREATE TABLE added (a)")
    monkeypatch.setattr(sqlite_database, "MIGRATIONS", newer)
    async with SqliteStore(path) as store:
        assert (await store.thread("t")).metadata == {"title": "hello"}
    assert pragma(path, "user_version") == len(newer)


def renamed(thread_id: str, next_seq: int) -> Commit:
    events = (ThreadChanged(metadata={"title": f"title {next_seq}"}),)
    return Commit(thread_id, f"renamed-{next_seq}", Unchanged(next_seq), events)


async def test_records_of_the_first_schema_are_read_after_migration(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        for commit in (note("a"), note("b"), renamed("a", 2), renamed("b", 2), renamed("a", 3)):
            await store.commit(commit)
        before = {name: await store.events_after(name, 0) for name in ("a", "b")}
    connection = apsw.Connection(str(path))
    connection.execute(
        "ALTER TABLE record RENAME TO newer;"
        "CREATE TABLE record (place INTEGER PRIMARY KEY, commit_id TEXT NOT NULL,"
        " body BLOB NOT NULL, checksum INTEGER NOT NULL);"
        "INSERT INTO record SELECT place, commit_id, body, checksum FROM newer;"
        "DROP TABLE newer; DROP TABLE watched; DROP TABLE counter; DROP TABLE encryption;"
        "PRAGMA user_version = 1"
    )
    connection.close()
    async with SqliteStore(path) as store:
        assert {name: await store.events_after(name, 0) for name in ("a", "b")} == before
        await store.commit(renamed("a", 4))
        assert [event.seq for event in await store.events_after("a", 0)] == [1, 2, 3, 4]
    assert pragma(path, "user_version") == len(sqlite_database.MIGRATIONS)


async def test_a_store_of_before_there_were_marks_takes_marks(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
    connection = apsw.Connection(str(path))
    connection.execute(
        "DROP TABLE watched; DROP TABLE encryption; DROP TABLE counter; PRAGMA user_version = 2"
    )
    connection.close()
    async with SqliteStore(path) as store:
        await store.mark_watched(["r"])
        assert await store.unwatched_for("r") is not None
        assert (await store.thread("t")).metadata == {"title": "hello"}


async def test_a_store_of_before_there_were_counters_counts(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
    connection = apsw.Connection(str(path))
    connection.execute("DROP TABLE counter; DROP TABLE encryption; PRAGMA user_version = 3")
    connection.close()
    async with SqliteStore(path) as store:
        assert list(await store.count([Count("k", 2, 60)])) == [2]
        assert (await store.thread("t")).metadata == {"title": "hello"}


async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"dear diary, this is not a database\n" * 40)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a database"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes() == before


async def test_another_programs_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "browser.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE bookmarks (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="another program"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes() == before


def test_an_unwritable_folder_is_a_clear_error(guarded: Path) -> None:
    said = outcome_in_child("unprivileged", guarded / "teal.sqlite")
    assert said.startswith("StoreUnavailable")
    assert "cannot be opened" in said
    said = outcome_in_child("unprivileged", guarded / "deep" / "teal.sqlite")
    assert "the folder cannot be made" in said


async def test_a_read_only_file_is_a_clear_error(guarded: Path) -> None:
    path = guarded / "teal.sqlite"
    async with SqliteStore(path):
        pass
    path.chmod(0o444)
    said = outcome_in_child("unprivileged", path)
    assert said.startswith("StoreReadOnly")
    assert "cannot be written" in said


def test_a_full_disk_refuses_the_commit_and_keeps_the_others(tmp_path: Path) -> None:
    said = outcome_in_child("fill", tmp_path / "teal.sqlite")
    assert said == "StoreFull wrote again kept 1"


async def test_a_lock_of_another_process_ends_in_store_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_writer, "BUSY_SECONDS", 0.05)
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        with locked_by_another_process(path):
            with pytest.raises(StoreBusy, match="locked by another process"):
                await store.commit(note("t"))
            with pytest.raises(ThreadNotFound):
                await store.thread("t")
        await store.commit(note("t"))


async def test_commit_that_a_full_disk_refuses_is_taken_once_there_is_room(tmp_path: Path) -> None:
    with failing_disk() as disk:
        async with SqliteStore(tmp_path / "teal.sqlite") as store:
            disk.is_full = True
            with pytest.raises(StoreFull):
                await store.commit(note("t"))
            with pytest.raises(StoreFull):
                await store.ping()
            disk.is_full = False
            await store.ping()
            await store.commit(note("t"))
            assert (await store.thread("t")).metadata == {"title": "hello"}


async def test_a_failed_sync_is_an_unknown_outcome_and_ends_writing(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    with failing_disk() as disk:
        async with SqliteStore(path) as store:
            await store.commit(note("before"))
            disk.fails = True
            with pytest.raises(CommitOutcomeUnknown):
                await store.commit(note("lost"))
            disk.fails = False
            with pytest.raises(StoreUnavailable, match="restart"):
                await store.commit(note("later"))
            with pytest.raises(StoreUnavailable, match="restart"):
                await store.ping()
    async with SqliteStore(path) as store:
        assert len(await store.events_after("before", 0)) == 1
        await store.commit(note("lost"))


@pytest.mark.parametrize(
    ("table", "column"), [("record", "body"), ("record", "commit_id"), ("thread", "head")]
)
async def test_a_flipped_byte_is_one_threads_error_and_stays_as_it_is(
    tmp_path: Path, table: str, column: str
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("damaged"))
        await store.commit(note("healthy"))
    connection = apsw.Connection(str(path))
    row = f"SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = 1 OR rowid = 1 << 32 | 1"
    (whole,) = next(iter(connection.execute(row)))
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))
    ]
    for damaged in flipped:
        connection.execute(
            f"UPDATE {table} SET {column} = ? WHERE rowid = 1 OR rowid = 1 << 32 | 1", (damaged,)
        )
        async with SqliteStore(path) as store:
            with pytest.raises(StateCorrupt):
                await store.events_after("damaged", 0)
            assert len(await store.events_after("healthy", 0)) == 1
        assert next(iter(connection.execute(row))) == (damaged,)
    connection.close()


async def test_a_thread_of_a_newer_version_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        for name in ("newer", "known"):
            await store.commit(start_run(name, f"run-of-{name}"))
    connection = apsw.Connection(str(path))
    (body,) = next(iter(connection.execute("SELECT head FROM thread WHERE no = 1")))
    body = orjson.dumps({**orjson.loads(body), "version": HEAD_VERSION + 1, "colour": "blue"})
    change = "UPDATE thread SET head = ?, checksum = ? WHERE no = 1"
    connection.execute(change, (body, head_checksum("newer", body)))
    connection.close()
    async with SqliteStore(path) as store:
        with pytest.raises(SchemaTooNew):
            await store.thread("newer")
        assert [head.thread_id for head in await store.orphans()] == ["known"]
        assert [head.thread_id for head in await store.heads(["newer", "known"])] == ["known"]
        page = await store.threads(ThreadQuery(USER))
        assert [head.thread_id for head in page.threads] == ["known"]


async def test_a_record_moved_to_another_thread_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("a"))
        await store.commit(note("b"))
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM record WHERE place = 2 << 32 | 1")
    connection.execute("UPDATE record SET place = 2 << 32 | 1 WHERE place = 1 << 32 | 1")
    connection.close()
    async with SqliteStore(path) as store:
        for thread_id in ("a", "b"):
            with pytest.raises(StateCorrupt):
                await store.events_after(thread_id, 0)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "teal.sqlite")
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.commit(note("t"))
    async with store:
        await store.commit(note("t"))
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.thread("t")


def test_several_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    """Each finds it empty or made, never half made; many times, since it is a matter of luck."""
    together = Barrier(8, timeout=seconds(30))

    def open_it(number: int) -> int:
        together.wait()
        with closing(open_for_writing(tmp_path / str(number) / "teal.sqlite")) as connection:
            return int(connection.pragma("user_version"))

    with ThreadPoolExecutor(8) as threads:
        for number in range(25):
            assert set(threads.map(open_it, [number] * 8)) == {len(MIGRATIONS)}
