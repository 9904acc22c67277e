"""What a SQLite store does when it cannot know what is kept: it acknowledges nothing more."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from shutil import copy

import apsw
import pytest

from sk_agents.engine.ports import Count
from sk_agents.exceptions import CommitOutcomeUnknown, StoreBroken, StoreUnavailable
from sk_agents.persistence.sqlite import group_writer
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.patience import seconds
from tests.stores.sqlite_faults import failing_disk, note, outcome_in_child

WAL_HEADER, FRAME = 32, 24 + 4096

Change = Callable[[Path], None]


async def assert_broken(store: SqliteStore, match: str) -> None:
    """Nothing is acknowledged, no lease renewed, nothing shown."""
    with pytest.raises(StoreBroken, match=match):
        store.renew("o", 60)
    attempts: list[Awaitable[object]] = [
        store.ping(),
        store.commit(note("later")),
        store.claim("before", "o"),
        store.delete("before", next_seq=2),
        store.mark_watched(["r"]),
        store.count([Count("k", 1, 60)]),
        store.sums("k"),
        store.thread("before"),
        store.events_after("before", 0),
        store.find("run", "r"),
        store.orphans(),
    ]
    for attempt in attempts:
        with pytest.raises(StoreBroken, match=match):
            await attempt


async def test_one_refused_sync_ends_renewals_reads_and_writes(tmp_path: Path) -> None:
    with failing_disk() as disk:
        async with SqliteStore(tmp_path / "teal.sqlite") as store:
            await store.commit(note("before"))
            store.renew("o", 60)
            disk.fails = True
            with pytest.raises(CommitOutcomeUnknown):
                await store.commit(note("lost"))
            disk.fails = False
            await assert_broken(store, "refused to sync")


async def test_sync_refused_to_a_heartbeat_breaks_the_store(tmp_path: Path) -> None:
    """The first frame after a checkpoint is behind a new header, which the heartbeat syncs."""
    path = tmp_path / "teal.sqlite"
    with failing_disk() as disk:
        async with SqliteStore(path) as store:
            store.renew("o", 60)
            await store.commit(note("before"))
            with closing(apsw.Connection(str(path))) as other:
                other.pragma("user_version")
                frames, copied = other.wal_checkpoint()
                assert frames == copied > 0
            disk.fails = True
            with pytest.raises(StoreBroken):
                store.renew("o", 60)
            disk.fails = False
            await assert_broken(store, "refused to sync")


async def test_sync_refused_to_a_checkpoint_breaks_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_writer, "CHECKPOINT_FRAMES", 2)
    with failing_disk() as disk:
        async with SqliteStore(tmp_path / "teal.sqlite") as store:
            disk.fails_for = ".sqlite"
            await store.commit(note("before", "acknowledged: it is safe in the WAL"))
            with pytest.raises(StoreBroken):
                await store.ping()
            disk.fails_for = None
            await assert_broken(store, "refused to sync")


def remove(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    aside = file.with_name("aside")
    copy(file, aside)
    aside.replace(file)


def move_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("change", [remove, replace, move_folder])
async def test_nothing_is_acknowledged_into_files_that_a_restart_would_not_find(
    tmp_path: Path, change: Change, suffix: str
) -> None:
    path = tmp_path / "data" / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("before"))
        store.renew("o", 60)
        await store.thread("before")
        change(path.with_name(path.name + suffix))
        with pytest.raises(StoreBroken, match="removed or replaced"):
            await store.commit(note("lost"))
        await assert_broken(store, "removed or replaced")


class WhenOpened(logging.Handler):
    """Changes a file as soon as the store says that it has opened its database."""

    def __init__(self, change: Callable[[], None]) -> None:
        super().__init__()
        self._change = change

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "sqlite store opened":
            self._change()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("change", [remove, replace, move_folder])
async def test_store_whose_files_are_replaced_while_it_opens_does_not_open(
    tmp_path: Path, change: Change, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data" / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("before"))
    caplog.set_level(logging.INFO, "sk_agents.persistence.sqlite.database")
    opened = WhenOpened(lambda: change(path.with_name(path.name + suffix)))
    logging.getLogger("sk_agents.persistence.sqlite.database").addHandler(opened)
    try:
        with pytest.raises(StoreBroken, match="removed or replaced"):
            await SqliteStore(path).__aenter__()
    finally:
        logging.getLogger("sk_agents.persistence.sqlite.database").removeHandler(opened)


async def test_what_another_process_wrote_into_removed_files_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        await one.commit(note("before"))
        await other.thread("before")
        path.unlink()
        with pytest.raises(StoreBroken):
            await one.commit(note("lost"))
        with pytest.raises(StoreBroken, match="removed or replaced"):
            await other.thread("lost")
        await assert_broken(other, "removed or replaced")


@pytest.mark.parametrize("notices", ["renew", "ping", "reader", "new reader", "reopened reader"])
async def test_removed_database_is_noticed_without_a_commit(tmp_path: Path, notices: str) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("before"))
        if notices == "reader":
            await store.thread("before")
        path.unlink()
        with pytest.raises(StoreBroken, match=r"teal\.sqlite was removed"):
            if notices == "renew":
                store.renew("o", 60)
            elif notices == "ping":
                await store.ping()
            elif notices in ("reader", "new reader"):
                await store.thread("before")
            else:
                path.write_bytes(b"")
                await store.thread("before")
        await assert_broken(store, r"teal\.sqlite was removed")


async def test_closing_a_broken_store_leaves_the_files_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    backup = tmp_path / "backup.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("before"))
        with closing(apsw.Connection(str(path))) as source:
            source.execute("VACUUM INTO ?", (str(backup),))
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()
        backup.rename(path)
        async with SqliteStore(path) as successor:
            await successor.commit(note("after"))
            await store.__aexit__(None, None, None)
            await successor.commit(note("later"))
    async with SqliteStore(path) as store:
        for thread_id in ("before", "after", "later"):
            assert len(await store.events_after(thread_id, 0)) == 1


@pytest.mark.parametrize("by", ["heartbeats", "commits"])
async def test_wal_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(group_writer, "CHECKPOINT_FRAMES", 20)
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store, asyncio.timeout(seconds(30)):
        for number in range(200):
            before = store.metrics()["checkpoints"]
            if by == "commits":
                await store.commit(note(f"t{number}"))
            else:
                store.renew("o", 60)
            while number % 20 == 19 and store.metrics()["checkpoints"] == before:
                await asyncio.to_thread(lambda: None)
        frames = (path.with_name("teal.sqlite-wal").stat().st_size - WAL_HEADER) // FRAME
        assert frames < 100


def test_full_disk_is_told_by_ping_until_there_is_room_again(tmp_path: Path) -> None:
    said = outcome_in_child("ping_full", tmp_path / "teal.sqlite")
    assert said == "ping StoreFull, renew StoreFull, then ping ok, commit ok"


def test_ping_wants_room_for_the_commit_that_was_refused(tmp_path: Path) -> None:
    said = outcome_in_child("ping_refused", tmp_path / "teal.sqlite")
    assert said == "small ok, big StoreFull, ping StoreFull, then ping ok, big ok, ping ok"


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_database_and_the_folders_made_for_it_are_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "deep" / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
        store.renew("o", 60)
        assert modes(path.parent) == {
            "teal.sqlite": 0o600,
            "teal.sqlite-wal": 0o600,
            "teal.sqlite-shm": 0o600,
        }
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


async def test_database_that_everybody_could_read_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
        for name in modes(tmp_path):
            (tmp_path / name).chmod(0o644)
        async with SqliteStore(path):
            assert set(modes(tmp_path).values()) == {0o600}


async def test_database_given_to_a_group_stays_the_groups(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path):
        pass
    path.chmod(0o640)
    async with SqliteStore(path) as store:
        await store.commit(note("t"))
        assert set(modes(tmp_path).values()) == {0o640}


@pytest.mark.parametrize("is_database", [False, True], ids=["text", "database"])
async def test_file_of_another_program_is_refused_and_stays_as_it_was(
    tmp_path: Path, is_database: bool
) -> None:
    path = tmp_path / "theirs"
    if is_database:
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("CREATE TABLE t (x)")
    else:
        path.write_text("root:x:0:0\n" * 100)
    path.chmod(0o644)
    content = path.read_bytes()
    with pytest.raises(StoreUnavailable):
        async with SqliteStore(path):
            pass
    assert modes(tmp_path)[path.name] == 0o644
    assert path.read_bytes() == content
