"""Where the file store puts things, how it finds them again and what it leaves behind."""

import asyncio
import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Absent, Commit, Release
from sk_agents.engine.models import NewThread, Thread
from sk_agents.exceptions import (
    CommitReused,
    LeaseLost,
    StoreBusy,
    StoreUnavailable,
    ThreadNotFound,
)
from sk_agents.persistence.file import tree as file_tree
from sk_agents.persistence.file.log import line_place
from sk_agents.persistence.file.store import FileStore
from sk_agents.persistence.file.tree import FileTree
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    decide,
    new_commit,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from tests.patience import seconds
from tests.requirements import requirement

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


def create_as(thread_id: str, wire_id: str, user: str = ANN) -> Commit:
    return new_commit(thread_id, Absent(NewThread(user, wire_id=wire_id)))


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True
    )


def paths_below(root: Path) -> set[Path]:
    """Every file and folder but the lock files, which stay."""
    return {path for path in root.rglob("*") if path.parent.name != "locks"}


def everything_below(root: Path) -> list[Path]:
    return list(root.rglob("*"))


@requirement("S004-1-file-storage")
async def test_file_url_opens_a_store_whose_chats_are_files(tmp_path: Path) -> None:
    async with open_store(f"file://{tmp_path / 'chats'}") as store:
        await store.commit(start_run("t", user="dummyuser"))
    assert log_of(tmp_path / "chats").is_file()


ACKNOWLEDGE = """
import asyncio, os, signal, sys
from pathlib import Path
from sk_agents.persistence.file.store import FileStore
from sk_agents.testing.commits import append, start_run, thought

async def write() -> None:
    async with FileStore(Path(sys.argv[1])) as store:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(append(head, thought("acknowledged")))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(write())
"""


@requirement("S004-11.2-write-ahead-log")
async def test_acknowledged_commit_outlives_its_killed_process(root: Path) -> None:
    killed = run_python(ACKNOWLEDGE, str(root))
    assert killed.returncode == -signal.SIGKILL
    async with FileStore(root) as store:
        (_, event) = await store.events_after("t", 0)
    assert event.type == "thinking"


async def test_commit_without_events_is_decided_each_time_it_is_sent(store: FileStore) -> None:
    head = (await store.commit(start_run("t", owner="o"))).thread
    released = append_owned(head, lease=Release())
    await store.commit(released)
    with pytest.raises(LeaseLost):
        await store.commit(released)


async def test_nothing_is_read_where_no_event_is_asked_for(store: FileStore) -> None:
    await store.commit(create_as("t", "one"))
    await store.commit(append(await store.thread("t"), thought("here")))
    assert await store.events_after("t", 0, 0) == []


async def test_no_more_is_read_than_has_room_beside_the_first_event(store: FileStore) -> None:
    await store.commit(create_as("t", "one"))
    for text in ("a", "b", "c"):
        await store.commit(append(await store.thread("t"), thought(text)))
    found = [await store.events_after("t", seq, max_bytes=1) for seq in range(4)]
    assert [[event.seq for event in events] for events in found] == [[1], [2], [3], []]


async def test_store_that_is_not_open_says_so(root: Path) -> None:
    store = FileStore(root)
    with pytest.raises(StoreUnavailable):
        await store.thread("t")
    with pytest.raises(StoreUnavailable):
        store.renew("o", 1)


async def test_only_the_owner_of_the_process_can_read_the_files(
    root: Path, store: FileStore
) -> None:
    await store.commit(start_run("t"))
    for path in (root, *paths_below(root)):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


async def test_lock_files_are_the_owners_too_whatever_the_umask_allows(root: Path) -> None:
    before = os.umask(0)
    try:
        async with FileStore(root, clock=SettableClock(), single_user=ANN) as store:
            await store.commit(start_run("t"))
            await store.commit(create_as("u", "wire"))
            store.renew("me", 60)
    finally:
        os.umask(before)
    made = everything_below(root)
    assert any(path.parent.name == "locks" for path in made)
    for path in made:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_folder_is_not_moved_to_a_place_that_is_taken(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    for name in ("old", "taken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "plain").touch()
    for place in ("taken", "plain"):
        with pytest.raises(FileExistsError):
            tree.move_folder(("old",), (place,))
    tree.move_folder(("old",), ("inner", "new"))
    assert (tmp_path / "inner" / "new" / "file").is_file()
    with pytest.raises(FileNotFoundError):
        tree.move_folder(("old",), ("newer",))


def test_lock_that_another_holds_for_too_long_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "LOCK_SECONDS", 0.05)
    tree = FileTree(tmp_path)
    with tree.locked(("lock",)), pytest.raises(StoreBusy), tree.locked(("lock",)):
        pass
    with tree.locked(("lock",)):
        pass


async def test_leftovers_are_ignored_and_swept_after_an_hour(root: Path) -> None:
    async with FileStore(root):
        pass
    old, new, folder = (root / "tmp" / name for name in ("old.tmp", "new.tmp", "folder.tmp"))
    for path in (old, new, folder / "log.jsonl"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    for path in (old, folder):
        os.utime(path, (1, 1))
    async with FileStore(root) as store:
        assert await store.orphans() == []
    assert list((root / "tmp").iterdir()) == [new]


async def test_file_of_a_writer_at_work_stays_when_a_process_has_its_clock_a_day_ahead(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FileStore(root):
        pass
    at_work = root / "tmp" / "at-work.tmp"
    at_work.write_bytes(b"half")
    tomorrow = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    async with FileStore(root):
        pass
    assert at_work.exists()


@pytest.mark.parametrize("wire_id", ["Chat", "..", ".", "a/b", "a\n", "x" * 65, "con.", "ｆｕｌｌ"])
async def test_name_that_no_disk_can_be_trusted_with_is_hashed(
    root: Path, store: FileStore, wire_id: str
) -> None:
    await store.commit(create_as("t", wire_id))
    await store.commit(create_as("u", "chat"))
    assert (await store.thread("t")).wire_id == wire_id
    names = sorted(path.name for path in (root / "chats").iterdir())
    # The same in every version: it is where the others look for it.
    assert names == ["chat", f"~{hashlib.sha256(wire_id.encode()).hexdigest()[:40]}"]


async def test_store_that_was_left_holds_none_of_its_files(root: Path) -> None:
    def held() -> set[str]:
        places = {os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
        return {place for place in places if place.startswith(str(root))}

    async with FileStore(root) as store:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(append(head, thought("here")))
        await store.events_after("t", 0)
        assert held()
    assert held() == set()


async def test_users_other_than_the_single_one_have_folders_of_their_own(
    root: Path, store: FileStore
) -> None:
    for user in (ANN, "bob", "../bob"):
        await store.commit(create_as(f"of {user}", "chat_1", user))
        assert (await store.thread(f"of {user}")).user_id == user
    assert len(list((root / "users").glob("*/chats/chat_1"))) == 2
    assert log_of(root, "chat_1").is_file()


async def test_two_threads_of_one_name_are_kept_apart(root: Path, store: FileStore) -> None:
    for thread_id in ("a", "b"):
        await store.commit(create_as(thread_id, "chat_1"))
    assert (await store.thread("a")).thread_id == "a"
    assert (await store.thread("b")).thread_id == "b"


async def test_thread_that_was_only_about_to_be_made_is_not_there(
    root: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError(errno.EIO, "killed here")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(StoreUnavailable):
            await store.commit(create_as("a", "chat_1"))
    with pytest.raises(ThreadNotFound):
        await store.thread("a")
    await store.commit(create_as("b", "chat_1"))
    with pytest.raises(ThreadNotFound):
        await store.thread("a")
    await store.commit(create_as("a", "chat_1"))
    assert (await store.thread("a")).thread_id == "a"


async def test_index_is_made_anew_after_the_machine_went_down(root: Path) -> None:
    async with FileStore(root, single_user=ANN) as store:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", park=True))
        await store.commit(start_run("of-bob", "run-2", user="bob"))
    for path in (root / "index").rglob("*"):
        if path.is_file():
            path.unlink()
    async with FileStore(root, single_user=ANN) as store:
        assert [entry.key for entry in await store.open_entries("approval", ANN)] == ["a"]
        found = await store.find("run", "run-2")
        assert found is not None
        assert found.thread_id == "of-bob"
        await store.commit(decide("t", "a"))


async def test_thread_that_lost_its_index_is_not_made_twice(root: Path, store: FileStore) -> None:
    commit = start_run("t")
    await store.commit(commit)
    (root / "index" / "threads" / "t").unlink()
    async with FileStore(root, single_user=ANN) as other:
        assert (await other.commit(commit)).thread.next_seq == 2
    assert len(list((root / "chats").iterdir())) == 1


async def test_sweep_opens_no_log_that_has_not_changed(
    root: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = [(await store.commit(start_run(f"t{n}", f"run-{n}"))).thread for n in range(20)]
    opened: list[str] = []
    real_open = os.open

    def watched(path: str, *args: int, **options: int) -> int:
        opened.append(str(path))
        return real_open(path, *args, **options)

    assert len(await store.orphans()) == 20
    await store.commit(append(heads[0], thought()))
    monkeypatch.setattr(os, "open", watched)
    assert len(await store.orphans()) == 20
    assert await store.overdue("approval") == []
    assert opened.count("log.jsonl") <= 1


async def test_deleted_thread_leaves_no_file(root: Path, store: FileStore) -> None:
    before = paths_below(root)
    head = (await store.commit(start_run("t"))).thread
    await store.delete("t", next_seq=head.next_seq)
    assert paths_below(root) == before


@asynccontextmanager
async def read_of_a_thread_made_again(
    root: Path, thoughts: int, monkeypatch: pytest.MonkeyPatch, *, of_first: bool
) -> AsyncIterator[Awaitable[Sequence[Event]]]:
    """A reader that has looked up the places of the lines, and reads them when the thread was made
    again and a second reader has brought the log that both share up to date."""
    reached, goes_on = threading.Event(), threading.Event()
    real_open = os.open

    def stopped(path: str, *args: int, **options: int) -> int:
        if not reached.is_set():
            reached.set()
            assert goes_on.wait(seconds(30))
        return real_open(path, *args, **options)

    async with FileStore(root) as store, FileStore(root) as other:
        head = await made(store, "run-1", thoughts)
        monkeypatch.setattr(os, "open", stopped)
        meant = head.incarnation if of_first else None
        read = asyncio.ensure_future(store.events_after("t", 0, incarnation=meant))
        assert await asyncio.to_thread(reached.wait, seconds(30))
        await other.delete("t", next_seq=head.next_seq)
        again = await made(other, "run-2", thoughts)
        assert (await store.thread("t")).incarnation == again.incarnation
        goes_on.set()
        yield read


async def made(store: FileStore, run_id: str, thoughts: int) -> Thread:
    head = (await store.commit(start_run("t", run_id, text=f"the text of {run_id}"))).thread
    for _ in range(thoughts):
        head = (await store.commit(append(head, thought("hm", run_id)))).thread
    return head


@pytest.mark.parametrize("thoughts", [0, 1])
async def test_reader_is_not_misled_by_another_one_that_saw_the_thread_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, thoughts: int
) -> None:
    async with read_of_a_thread_made_again(root, thoughts, monkeypatch, of_first=False) as read:
        assert {event.run_id for event in await read} == {"run-2"}


@pytest.mark.parametrize("thoughts", [0, 1])
async def test_reader_of_a_deleted_thread_gets_nothing_of_the_one_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, thoughts: int
) -> None:
    async with read_of_a_thread_made_again(root, thoughts, monkeypatch, of_first=True) as read:
        with pytest.raises(ThreadNotFound):
            await read


NAME_ITSELF = """
import sys
from sk_agents.persistence.liveness import new_owner

sys.stdout.write(new_owner())
"""


async def test_ended_processes_leave_no_heartbeats(root: Path) -> None:
    async with FileStore(root) as store:
        store.renew(run_python(NAME_ITSELF).stdout, 1000)
        store.renew("elsewhere", 1000)
    async with FileStore(root):
        assert [path.name for path in (root / "owners").iterdir()] == ["elsewhere"]


def test_line_of_a_thread_made_before_threads_had_incarnations_keeps_its_place() -> None:
    assert line_place("t", 3, 120) == "t\n3\n120"
    assert line_place("t", 3, 120, "i") == "t\n3\n120\ni"
    assert line_place("t", 1, 0, "i") == "t\n1\n0"


async def test_commit_that_is_reused_is_refused_by_its_name(store: FileStore) -> None:
    first = start_run("t")
    thread = (await store.commit(first)).thread
    other = replace(append(thread, thought()), commit_id=first.commit_id)
    with pytest.raises(CommitReused) as refused:
        await store.commit(other)
    assert refused.value.attributes["commit_id"] == first.commit_id
