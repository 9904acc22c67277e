"""What a file store does when it cannot know what is kept: it acknowledges nothing more."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sk_agents.engine.ports import Count
from sk_agents.exceptions import CommitOutcomeUnknown, StoreBroken, StoreFull
from sk_agents.persistence.file.disk import FileDisk
from sk_agents.persistence.file.log import IN_DOUBT
from sk_agents.persistence.file.store import FileStore
from sk_agents.testing.commits import append, start_run, thought
from sk_agents.testing.predictable import SettableClock

ANN = "ann"


class FaultyDisk(FileDisk):
    """Refuses to sync, or has little room, on demand; runs `before_sync` first."""

    def __init__(self) -> None:
        self.refuses = False
        self.room: int | None = None
        self.writes: list[bytes] = []
        self.before_sync: Callable[[], None] = lambda: None

    def sync(self, fd: int) -> None:
        self.before_sync()
        if self.refuses:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        if self.room is not None and len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.writes.append(data)
        return super().write(fd, data, offset)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


@pytest.fixture
async def store(root: Path, disk: FaultyDisk) -> AsyncIterator[FileStore]:
    async with FileStore(root, clock=SettableClock(), single_user=ANN, disk=disk) as store:
        yield store


async def assert_broken(store: FileStore, match: str) -> None:
    """Nothing is acknowledged, no lease renewed, nothing shown."""
    with pytest.raises(StoreBroken, match=match):
        store.renew("o", 60)
    attempts: list[Awaitable[object]] = [
        store.ping(),
        store.commit(start_run("later")),
        store.claim("t", "o"),
        store.delete("t", next_seq=2),
        store.mark_watched(["r"]),
        store.count([Count("k", 1, 60)]),
        store.sums("k"),
        store.thread("t"),
        store.events_after("t", 0),
        store.find("run", "run-1"),
        store.orphans(),
    ]
    for attempt in attempts:
        with pytest.raises(StoreBroken, match=match):
            await attempt


async def test_one_refused_sync_ends_renewals_reads_and_writes(
    store: FileStore, disk: FaultyDisk
) -> None:
    head = (await store.commit(start_run("t"))).thread
    disk.refuses = True
    with pytest.raises(CommitOutcomeUnknown):
        await store.commit(append(head, thought()))
    disk.refuses = False
    await assert_broken(store, "refused to sync")


async def test_line_of_a_refused_sync_is_written_again_before_it_is_believed(
    root: Path, store: FileStore, disk: FaultyDisk
) -> None:
    """A second sync of the same bytes would succeed and write nothing."""
    head = (await store.commit(start_run("t"))).thread
    commit = append(head, thought("in doubt"))
    disk.refuses = True
    with pytest.raises(CommitOutcomeUnknown):
        await store.commit(commit)
    log = root / "chats" / "t" / "log.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == IN_DOUBT
    before = log.read_bytes()
    later = FaultyDisk()
    async with FileStore(root, single_user=ANN, disk=later) as other:
        assert [event.seq for event in (await other.commit(commit)).events] == [2]
    (again,) = (
        data for data in later.writes if data.startswith(b'{"size"') and b"in doubt" in data
    )
    assert before.endswith(again)
    assert log.read_bytes() == before
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_line_in_doubt_that_cannot_be_synced_is_not_shown(
    root: Path, store: FileStore, disk: FaultyDisk
) -> None:
    head = (await store.commit(start_run("t"))).thread
    later = FaultyDisk()
    async with FileStore(root, single_user=ANN, disk=later) as other:
        assert (await other.thread("t")).next_seq == 2
        disk.refuses = later.refuses = True
        with pytest.raises(CommitOutcomeUnknown):
            await store.commit(append(head, thought()))
        with pytest.raises(StoreBroken):
            await other.thread("t")
        later.refuses = False
        await assert_broken(other, "refused to sync")


def remove_all(root: Path) -> None:
    shutil.rmtree(root)


def empty(root: Path) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace(root: Path) -> None:
    aside = root.with_name("aside")
    shutil.copytree(root, aside)
    shutil.rmtree(root)
    aside.rename(root)


def remove_chats(root: Path) -> None:
    shutil.rmtree(root / "chats")


@pytest.mark.parametrize("change", [remove_all, empty, replace, remove_chats])
async def test_nothing_is_acknowledged_into_folders_that_a_restart_would_not_find(
    root: Path, store: FileStore, change: Callable[[Path], None]
) -> None:
    await store.commit(start_run("t"))
    change(root)
    with pytest.raises(StoreBroken, match="removed or replaced"):
        await store.commit(start_run("lost", "run-2"))
    await assert_broken(store, "removed or replaced")


async def test_stores_opened_at_once_are_all_sound(tmp_path: Path) -> None:
    for number in range(10):
        root = tmp_path / str(number)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            opened = [
                group.create_task(stack.enter_async_context(FileStore(root, single_user=ANN)))
                for _ in range(4)
            ]
            for n, store in enumerate(opened):
                await (await store).commit(start_run(f"t{n}", f"run-{n}"))
            for store in opened:
                await (await store).ping()


async def test_what_another_process_wrote_into_other_folders_is_not_shown(
    root: Path, store: FileStore
) -> None:
    await store.commit(start_run("t"))
    async with FileStore(root, single_user=ANN) as other:
        remove_chats(root)
        with pytest.raises(StoreBroken):
            await other.commit(start_run("lost", "run-2"))
    with pytest.raises(StoreBroken, match="removed or replaced"):
        await store.thread("lost")
    await assert_broken(store, "removed or replaced")


async def test_thread_that_was_taken_away_is_not_told_to_be_missing(
    root: Path, store: FileStore
) -> None:
    await store.commit(start_run("t"))
    remove_chats(root)
    with pytest.raises(StoreBroken, match="removed or replaced"):
        await store.thread("t")


@pytest.mark.parametrize("notices", ["renew", "ping"])
async def test_removed_root_is_noticed_without_a_commit(
    root: Path, store: FileStore, notices: str
) -> None:
    await store.commit(start_run("t"))
    shutil.rmtree(root)
    with pytest.raises(StoreBroken, match="removed or replaced"):
        if notices == "renew":
            store.renew("o", 60)
        else:
            await store.ping()


async def test_log_removed_during_a_commit_is_named_and_not_acknowledged(
    root: Path, store: FileStore, disk: FaultyDisk
) -> None:
    head = (await store.commit(start_run("t"))).thread
    folder = root / "chats" / "t"
    disk.before_sync = lambda: shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises(StoreBroken, match=r"chats/t/log\.jsonl was removed"):
        await store.commit(append(head, thought()))


async def test_ping_wants_room_for_the_commit_that_was_refused(
    store: FileStore, disk: FaultyDisk
) -> None:
    big = start_run("t", text="x" * 5_000)
    disk.room = 2_000
    await store.ping()
    with pytest.raises(StoreFull):
        await store.commit(big)
    with pytest.raises(StoreFull):
        await store.ping()
    disk.room = None
    await store.ping()
    await store.commit(big)


async def test_folders_made_for_a_store_are_the_users_alone(root: Path, store: FileStore) -> None:
    await store.commit(start_run("t"))
    assert modes(root.parent) == {"folder": {0o700}, "file": {0o600}}


def modes(folder: Path) -> dict[str, set[int]]:
    paths = [folder, *folder.rglob("*")]
    return {
        kind: {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir() == is_folder}
        for kind, is_folder in (("folder", True), ("file", False))
    }
