"""The file store when files are damaged, cut, planted, full or refused."""

import asyncio
import errno
import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    SchemaTooNew,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TealError,
    ThreadNotFound,
)
from sk_agents.persistence.encryption import EncryptingCodec, new_key, read_keys
from sk_agents.persistence.file.lines import SECTOR
from sk_agents.persistence.file.log import FileLog
from sk_agents.persistence.file.store import FileStore
from sk_agents.persistence.file.tree import FileTree
from sk_agents.testing.commits import append, create, run_ended, run_started, start_run, thought
from sk_agents.testing.predictable import SettableClock
from tests.missing import lacks
from tests.patience import seconds

ANN = "ann"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileStore]:
    async with FileStore(root, clock=SettableClock(), single_user=ANN) as store:
        yield store


def log_of(root: Path, name: str = "t") -> Path:
    return root / "chats" / name / "log.jsonl"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_flip_of_any_byte_of_a_log_is_found_and_left_as_it_is(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    await store.commit(append(head, thought("é")))
    log = log_of(root)
    whole = log.read_bytes()
    for place in range(len(whole)):
        flip(log, place)
        damaged = log.read_bytes()
        with pytest.raises(StateCorrupt):
            FileLog(FileTree(root), "t", ("chats", "t")).refresh()
        assert log.read_bytes() == damaged
        log.write_bytes(whole)


async def test_lost_sector_before_other_lines_is_damage_and_cuts_nothing(
    root: Path, store: FileStore
) -> None:
    """At the end of a log it is what power loss leaves of a line; here others followed it."""
    head = (await store.commit(start_run("t"))).thread
    for _ in range(2):
        head = (await store.commit(append(head, thought("x" * 2048)))).thread
    log = log_of(root)
    whole = log.read_bytes()
    start = (whole.index(b"\n") // SECTOR + 2) * SECTOR
    log.write_bytes(whole[:start] + bytes(SECTOR) + whole[start + SECTOR :])
    damaged = log.read_bytes()
    async with FileStore(root) as again:
        for attempt in (again.thread("t"), again.commit(append(head, thought()))):
            with pytest.raises(StateCorrupt):
                await attempt
    assert log.read_bytes() == damaged


async def test_damaged_thread_leaves_the_others_working(root: Path, store: FileStore) -> None:
    await store.commit(start_run("t"))
    head = (await store.commit(start_run("u", "run-2"))).thread
    flip(log_of(root), 200)
    damaged = log_of(root).read_bytes()
    for attempt in (store.thread("t"), store.events_after("t", 0), store.find("run", "run-1")):
        with pytest.raises(StateCorrupt):
            await attempt
    with pytest.raises(StateCorrupt):
        await store.commit(start_run("t"))
    assert [thread.thread_id for thread in await store.orphans()] == ["u"]
    await store.commit(append(head, thought()))
    assert log_of(root).read_bytes() == damaged


async def test_page_reads_only_its_own_lines_and_finds_the_damage_in_them(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    for number in range(9):
        head = (await store.commit(append(head, thought(str(number))))).thread
    log = log_of(root)
    found = log.stat()
    flip(log, found.st_size - 100)
    os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert [event.seq for event in await store.events_after("t", 3, 6)] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(StateCorrupt):
        await store.events_after("t", 9)


async def test_line_cut_anywhere_was_never_written(root: Path, store: FileStore) -> None:
    head = (await store.commit(start_run("t"))).thread
    log = log_of(root)
    first = log.stat().st_size
    await store.commit(append(head, thought("cut")))
    whole = log.read_bytes()
    for size in range(first, len(whole)):
        log.write_bytes(whole[:size])
        cut = FileLog(FileTree(root), "t", ("chats", "t"))
        cut.refresh()
        assert cut.known.next_seq == 2


async def test_what_is_kept_of_a_log_is_counted_as_more_with_each_commit_and_entry(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(create("t"))).thread
    log = FileLog(FileTree(root), "t", ("chats", "t"))
    sizes = []
    for event in (None, thought("a commit"), run_started()):
        if event is not None:
            head = (await store.commit(append(head, event))).thread
        log.refresh()
        sizes.append(log.memory)
    assert 0 < sizes[1] - sizes[0] < sizes[2] - sizes[1]


async def test_torn_line_of_an_encrypted_log_is_left_as_one_in_plain_text(root: Path) -> None:
    codec = EncryptingCodec(read_keys(new_key(), "test"))
    async with FileStore(root, single_user=ANN, codec=codec) as store:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(append(head, thought("torn")))
    os.truncate(log_of(root), log_of(root).stat().st_size - 7)
    log_of(root).with_name("chat.json").unlink()
    async with FileStore(root, single_user=ANN, codec=codec) as store:
        assert (await store.thread("t")).next_seq == 2
        assert [event.seq for event in await store.events_after("t", 0)] == [1]


async def test_next_writer_cuts_a_torn_line_and_readers_leave_it(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    await store.commit(append(head, thought("torn")))
    log = log_of(root)
    torn = log.read_bytes()[:-7]
    log.write_bytes(torn)
    log.with_name("chat.json").unlink()  # it is written after a line, never before
    async with FileStore(root, single_user=ANN) as reopened:
        assert (await reopened.thread("t")).next_seq == 2
        assert log.read_bytes() == torn
        await reopened.commit(append(head, thought("again")))
        assert [event.seq for event in await reopened.events_after("t", 0)] == [1, 2]
        assert b"torn" not in log.read_bytes()


async def test_log_cut_under_an_open_store_is_damaged(root: Path, store: FileStore) -> None:
    head = (await store.commit(start_run("t"))).thread
    first = log_of(root).stat().st_size
    await store.commit(append(head, thought("acknowledged")))
    os.truncate(log_of(root), first)
    with pytest.raises(StateCorrupt, match="lost events") as damage:
        await store.thread("t")
    assert (damage.value.attributes["thread_id"], damage.value.attributes["seq"]) == ("t", 2)
    with pytest.raises(StateCorrupt, match="lost events"):
        await store.commit(append(head, thought("again")))


async def test_log_cut_or_damaged_after_it_was_read_is_told_with_its_place(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    first = log_of(root).stat().st_size
    await store.commit(append(head, thought("here")))
    log = FileLog(FileTree(root), "t", ("chats", "t"))
    log.refresh()
    assert [seq for seq, _ in log.payloads()] == [1, 2]
    whole = log_of(root).read_bytes()
    log_of(root).write_bytes(whole[:-5] + b"#" + whole[-4:])
    with pytest.raises(StateCorrupt, match="checksum") as damage:
        log.events_after(0, 10)
    assert (damage.value.attributes["thread_id"], damage.value.attributes["seq"]) == ("t", 2)
    os.truncate(log_of(root), first)
    for read in (lambda: log.events_after(0, 10), lambda: list(log.payloads())):
        with pytest.raises(StateCorrupt, match="The log was cut"):
            read()


async def test_writer_takes_in_what_another_process_has_appended_since(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    log = FileLog(FileTree(root), "t", ("chats", "t"))
    log.refresh()
    await store.commit(append(head, thought("meanwhile")))
    with log.writing():
        assert log.known.next_seq == 3


async def test_line_whose_sectors_did_not_all_arrive_was_never_written(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    log = log_of(root)
    first = log.stat().st_size
    await store.commit(append(head, thought("x" * 3000)))
    whole = log.read_bytes()
    for start in range(first // 512 * 512, len(whole), 512):
        lost = slice(max(start, first), min(start + 512, len(whole)))
        torn = bytearray(whole)
        torn[lost] = bytes(lost.stop - lost.start)
        log.write_bytes(torn)
        cut = FileLog(FileTree(root), "t", ("chats", "t"))
        cut.refresh()
        assert cut.known.next_seq == 2


@pytest.mark.parametrize("left", [0, 10])
async def test_log_without_its_first_line_is_damaged(root: Path, left: int) -> None:
    async with FileStore(root, single_user=ANN) as store:
        await store.commit(start_run("t"))
    os.truncate(log_of(root), left)
    async with FileStore(root) as store:
        with pytest.raises(StateCorrupt):
            await store.thread("t")


async def test_log_that_lost_what_its_files_show_is_damaged(root: Path) -> None:
    async with FileStore(root, single_user=ANN) as store:
        head = (await store.commit(start_run("t"))).thread
        size = log_of(root).stat().st_size
        await store.commit(append(head, run_ended()))
    os.truncate(log_of(root), size)
    async with FileStore(root) as store:
        with pytest.raises(StateCorrupt):
            await store.thread("t")


async def test_log_copied_over_another_thread_is_damaged(root: Path, store: FileStore) -> None:
    await store.commit(start_run("t"))
    await store.commit(start_run("u", "run-2"))
    log_of(root, "u").write_bytes(log_of(root).read_bytes())
    with pytest.raises(StateCorrupt):
        await store.thread("u")
    assert (await store.thread("t")).thread_id == "t"


def plant_link(place: Path, aside: Path) -> None:
    place.rename(aside)
    place.symlink_to(aside)


def plant_pipe(place: Path, aside: Path) -> None:
    place.rename(aside)
    os.mkfifo(place)


@pytest.mark.parametrize("plant", [plant_link, plant_pipe])
@pytest.mark.parametrize("planted", ["chats/t", "chats/t/log.jsonl", "index/threads/t"])
async def test_planted_file_is_not_followed(
    root: Path, tmp_path: Path, planted: str, plant: Callable[[Path, Path], None]
) -> None:
    async with FileStore(root, single_user=ANN) as store:
        await store.commit(start_run("t"))
    plant(root / planted, tmp_path / "aside")
    async with FileStore(root) as store:
        async with asyncio.timeout(seconds(5)):
            with pytest.raises(StateCorrupt):
                await store.thread("t")


async def test_file_that_may_not_grow_makes_the_store_full_and_nothing_is_half_written(
    root: Path, store: FileStore
) -> None:
    head = (await store.commit(start_run("t"))).thread
    before = log_of(root).read_bytes()
    big = append(head, thought("x" * 5000))
    with file_size_limit(len(before) + 3000), pytest.raises(StoreFull):
        await store.commit(big)
    assert log_of(root).read_bytes() == before
    assert (await store.commit(big)).thread.next_seq == 3


async def test_thread_that_does_not_fit_is_not_made(root: Path, store: FileStore) -> None:
    with file_size_limit(300), pytest.raises(StoreFull):
        await store.commit(start_run("t"))
    with pytest.raises(ThreadNotFound):
        await store.thread("t")
    assert await store.find("run", "run-1") is None
    assert [*root.joinpath("tmp").iterdir(), *root.joinpath("chats").iterdir()] == []
    await store.commit(start_run("t"))


async def test_unconfirmed_write_stops_all_writes_until_the_store_is_opened_again(
    root: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (await store.commit(start_run("t"))).thread
    commit = append(head, thought())

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(CommitOutcomeUnknown):
            await store.commit(commit)
    for attempt in (store.commit(commit), store.claim("t", "o"), store.ping()):
        with pytest.raises(StoreUnavailable):
            await attempt
    async with FileStore(root) as reopened:
        assert [event.seq for event in (await reopened.commit(commit)).events] == [2]


async def opening(root: Path) -> TealError:
    with pytest.raises(TealError) as raised:
        async with FileStore(root):
            pass
    return raised.value


async def test_file_in_the_place_of_the_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for root in (tmp_path / "file", tmp_path / "file" / "store"):
        error = await opening(root)
        assert type(error) is StoreUnavailable
        assert str(root) in str(error)


async def test_folder_that_may_not_be_written_is_named(tmp_path: Path, root: Path) -> None:
    if os.geteuid() != 0:
        lacks("root", "needs a second user to be refused")
    os.mkdir(root, mode=0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        os.chmod(folder, 0o755)
    os.seteuid(65534)
    try:
        error = await opening(root)
    finally:
        os.seteuid(0)
    assert type(error) is StoreReadOnly
    assert os.listdir(root) == []


async def test_store_of_a_newer_version_is_not_touched(root: Path) -> None:
    os.mkdir(root)
    (root / "store.json").write_text('{"format": 2}')
    assert type(await opening(root)) is SchemaTooNew
    assert os.listdir(root) == ["store.json"]


async def test_store_with_an_unreadable_format_is_refused(root: Path) -> None:
    os.mkdir(root)
    (root / "store.json").write_text("?")
    assert type(await opening(root)) is StoreUnavailable
