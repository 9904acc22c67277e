"""Encrypted stores for tests: keys, stores that are filled, and what lies on the disk of them."""

from __future__ import annotations

from pathlib import Path

from sk_agents.engine.events import Event
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.persistence.encryption import EncryptingCodec, new_key, read_keys
from sk_agents.testing.commits import answered, append, create, run_ended, run_started, thought

CANARY = "canary-7d1f"


def codec(*keys: str) -> EncryptingCodec:
    return EncryptingCodec(read_keys(",".join(keys or (new_key(),)), "a test"))


async def fill(store: Store, threads: int, *, records: int = 3) -> None:
    """Threads `t0`, `t1`, ... of two users, each with a canary in title, message and thoughts."""
    for number in range(threads):
        await add_thread(store, f"t{number}", user=("ada", "bob")[number % 2], records=records)


async def add_thread(store: Store, thread_id: str, *, user: str, records: int) -> None:
    started = run_started(f"run-{thread_id}", f"{CANARY} message of {thread_id}")
    commit = create(thread_id, started, user=user, metadata={"title": f"{CANARY} {thread_id}"})
    head = (await store.commit(commit)).thread
    for number in range(records):
        said = thought(f"{CANARY} {thread_id} {number}", run_id=f"run-{thread_id}")
        head = (await store.commit(append(head, said))).thread
    run_id = f"run-{thread_id}"
    await store.commit(append(head, answered(f"{CANARY} answer", run_id), run_ended(run_id)))


async def contents(store: Store, threads: int) -> dict[str, tuple[Thread, list[Event]]]:
    names = [f"t{number}" for number in range(threads)]
    return {
        name: (await store.thread(name), list(await store.events_after(name, 0))) for name in names
    }


def hits(folder: Path, text: str = CANARY) -> list[str]:
    """The files below the folder that hold the text."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def on_disk(folder: Path) -> dict[Path, bytes]:
    """Every file that holds something, without SQLite's index of its WAL."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm")
    return {path: data for path in files if (data := path.read_bytes())}


def put_back(folder: Path, files: dict[Path, bytes]) -> None:
    for path in on_disk(folder).keys() - files.keys():
        path.unlink()
    for path, data in files.items():
        path.write_bytes(data)
