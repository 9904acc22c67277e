"""The SQLite store under the contract of durable stores that several processes share."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Count
from sk_agents.exceptions import Conflict, StateCorrupt, StoreUnavailable, ThreadNotFound
from sk_agents.persistence.codec import PlainCodec
from sk_agents.persistence.encoding import ThreadCodec
from sk_agents.persistence.sqlite import store as sqlite_store
from sk_agents.persistence.sqlite.group_writer import MAX_GROUP
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.commits import (
    append,
    append_owned,
    create,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.store_contract import Damage, MakeStore, PortableCases, SharedStoreContract
from tests.patience import seconds
from tests.requirements import requirement

OF_THREAD = "place >> 32 = (SELECT no FROM thread WHERE thread_id = ?)"


def record_of(path: Path, thread_id: str) -> bytes:
    with closing(apsw.Connection(str(path))) as database:
        ((body,),) = database.execute(f"SELECT body FROM record WHERE {OF_THREAD}", (thread_id,))
        return bytes(body)


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
class TestSqliteStore(PortableCases, SharedStoreContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "teal.sqlite"

    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda clock: SqliteStore(path, clock=clock)

    @pytest.fixture
    def store_url(self, path: Path) -> str:
        return f"sqlite://{path}"

    @pytest.fixture
    def damage(self, path: Path) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            damaged = bytearray(record_of(path, thread_id))
            damaged[-3] ^= 1
            with closing(apsw.Connection(str(path))) as database:
                database.execute(
                    f"UPDATE record SET body = ? WHERE {OF_THREAD}", (bytes(damaged), thread_id)
                )
            return lambda: record_of(path, thread_id)

        return damage


async def test_damaged_head_is_not_offered_to_a_new_owner_and_hides_no_other(
    tmp_path: Path,
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        for name in ("t1", "t2", "t3"):
            await store.commit(start_run(name, f"run-{name}"))
    with closing(apsw.Connection(str(path))) as database:
        database.execute("UPDATE thread SET checksum = checksum + 1 WHERE thread_id = 't2'")
    async with SqliteStore(path) as store:
        assert sorted(head.thread_id for head in await store.orphans()) == ["t1", "t3"]
        with pytest.raises(StateCorrupt):
            await store.thread("t2")


async def test_commits_that_are_queued_when_the_store_closes_are_kept(tmp_path: Path) -> None:
    """More of them than fit into one transaction."""
    path = tmp_path / "teal.sqlite"
    names = [f"t{number}" for number in range(2 * MAX_GROUP + 1)]
    async with SqliteStore(path) as store:
        sent = [asyncio.ensure_future(store.commit(create(name))) for name in names]
        await asyncio.sleep(0)
        assert not any(commit.done() for commit in sent)
    async with asyncio.timeout(seconds(5)):
        kept = await asyncio.gather(*sent)
    assert [done.thread.thread_id for done in kept] == names
    async with SqliteStore(path) as again:
        assert [(await again.thread(name)).next_seq for name in names] == [1] * len(names)


async def test_commit_to_a_store_that_is_closing_is_refused(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "teal.sqlite") as store:
        first = asyncio.ensure_future(store.commit(create("t1")))
        await asyncio.sleep(0)
        closing_store = asyncio.ensure_future(store.__aexit__())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await store.commit(create("t2"))
        await closing_store
        assert (await first).thread.thread_id == "t1"
        with pytest.raises(StoreUnavailable):
            await store.commit(create("t3"))


async def test_commits_that_wait_together_share_transactions_of_a_bounded_size(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "teal.sqlite") as store:
        await asyncio.gather(*(store.commit(create(f"t{n}")) for n in range(2 * MAX_GROUP)))
        counted = store.metrics()
        assert (counted["commits"], counted["commit_groups"]) == (2 * MAX_GROUP, 2)


class NotingCodec(PlainCodec):
    """Plain JSON; notes whose heads are decoded."""

    def __init__(self) -> None:
        self.decoded: list[str] = []

    def decode_head(self, thread_id: str, stored: bytes, check: int) -> tuple[Thread, ThreadCodec]:
        self.decoded.append(thread_id)
        return super().decode_head(thread_id, stored, check)


async def test_commit_decodes_only_a_head_that_another_process_has_changed(tmp_path: Path) -> None:
    codec, path = NotingCodec(), tmp_path / "teal.sqlite"
    async with SqliteStore(path, codec=codec) as ours, SqliteStore(path) as theirs:
        one = (await ours.commit(create("one"))).thread
        two = (await ours.commit(create("two"))).thread
        await theirs.commit(append(two, run_started("run-2", "hello")))
        one = (await ours.commit(append(one, run_started("run-1", "hello")))).thread
        assert codec.decoded == []
        assert one.next_seq == 2
        with pytest.raises(Conflict):
            await ours.commit(append(two, run_started("run-3", "hello")))
        assert codec.decoded == ["two"]


async def test_heads_of_no_more_threads_are_kept_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_CACHED_HEADS", 1)
    codec = NotingCodec()
    async with SqliteStore(tmp_path / "teal.sqlite", codec=codec) as store:
        one = (await store.commit(create("one"))).thread
        one = (await store.commit(append(one, run_started("run-1", "hello")))).thread
        assert codec.decoded == []
        await store.commit(create("two"))
        await store.commit(append(one, thought()))
        assert codec.decoded == ["one"]


@pytest.mark.parametrize("column", ["checksum = checksum + 1", "user_id = 'eve'"])
async def test_commit_to_a_head_that_was_damaged_under_the_store_is_refused(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        thread = (await store.commit(create("t1"))).thread
        with closing(apsw.Connection(str(path))) as database:
            database.execute(f"UPDATE thread SET {column}")
        with pytest.raises(StateCorrupt):
            await store.commit(append(thread, run_started("run-1", "hello")))


async def test_store_that_was_left_holds_none_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"

    def held() -> set[str]:
        places = {os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
        return {place for place in places if place.startswith(str(path))}

    async with SqliteStore(path) as store:
        await store.commit(create("t"))
        await store.mark_watched(["r"])
        await store.count([Count("k", 1, 60)])
        store.renew("o", 60)
        assert held()
    assert held() == set()


async def test_commit_to_a_thread_whose_row_another_process_gave_to_another_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as ours, SqliteStore(path) as theirs:
        old = (await ours.commit(create("old"))).thread
        await theirs.delete("old", next_seq=old.next_seq)
        # The last row is gone, so this one gets its number.
        new = (await theirs.commit(create("new"))).thread
        with pytest.raises(ThreadNotFound):
            await ours.commit(append(old, run_started("run-1", "hello")))
        assert await ours.thread("new") == new


async def test_step_of_a_run_writes_the_pages_of_its_head_and_its_record_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        thread = (await store.commit(start_run("t", owner="o"))).thread
        with closing(apsw.Connection(str(path))) as other:
            # What is in the WAL is in the database, too: the next commit begins it again.
            other.execute("PRAGMA wal_checkpoint")
            await store.commit(append_owned(thread, thought()))
            ((_, frames, _),) = other.execute("PRAGMA wal_checkpoint")
    # Head, record, and the index of the records' places.
    assert frames == 3


async def test_page_that_its_bytes_just_fill_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        head = (await store.commit(create("t", thought("first")))).thread
        size = len(record_of(path, "t"))
        await store.commit(append(head, thought("second")))
        assert [one.seq for one in await store.events_after("t", 0, max_bytes=size)] == [1]


async def test_record_that_is_missing_between_others_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        head = (await store.commit(start_run("t"))).thread
        for text in ("a", "b"):
            head = (await store.commit(append(head, thought(text)))).thread
        with closing(apsw.Connection(str(path))) as database:
            database.execute(f"DELETE FROM record WHERE {OF_THREAD} AND place & 65535 = 2", ("t",))
        with pytest.raises(StateCorrupt) as damage:
            await store.events_after("t", 0)
        assert damage.value.attributes["seq"] == 2
