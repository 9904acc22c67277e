"""Power loss under the SQLite store: whatever the disk kept, what was acknowledged is there."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from sk_agents.exceptions import TealError
from sk_agents.persistence.sqlite import group_writer
from sk_agents.persistence.sqlite.database import HeartbeatConnection, SqliteFiles
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.commits import append, start_run, thought
from tests.chaos.scale import trials
from tests.crash_images.disk import ROOT, Recording, Sync
from tests.crash_images.history import History, state_of
from tests.crash_images.images import Findings, examine_images, quick_folder
from tests.crash_images.sqlite_recorder import recorded
from tests.crash_images.workload import work
from tests.patience import seconds

DATABASE = "teal.sqlite"
BACKUP = "backup.sqlite"
# Small enough for many checkpoints in a short recording.
FRAMES = 12

SEEDS = trials(full=12, small=1)
IMAGES = trials(full=1_400, small=100)


class OffLease(HeartbeatConnection):
    """A broken build: signs of life that sync nothing at all."""

    def _set_up(self, connection: apsw.Connection) -> None:
        super()._set_up(connection)
        connection.execute("PRAGMA synchronous = OFF")


class CheckpointingLease(HeartbeatConnection):
    """A broken build: they also empty the WAL, as SQLite does if it is not told otherwise."""

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.wal_autocheckpoint(FRAMES)


class BrokenStore(SqliteStore):
    lease: type[HeartbeatConnection]

    def _heartbeat_connection(
        self, files: SqliteFiles, writer: group_writer.GroupWriter
    ) -> HeartbeatConnection:
        return self.lease(self._path, files, writer.wal_grew)


class OffStore(BrokenStore):
    lease = OffLease


class CheckpointingStore(BrokenStore):
    lease = CheckpointingLease


@dataclass(slots=True)
class Recorded:
    recording: Recording
    history: History


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_writer, "CHECKPOINT_FRAMES", FRAMES)
    monkeypatch.setattr(group_writer, "RESTART_FRAMES", 4 * FRAMES)


async def instances_at_work(
    seed: int, folder: Path, store_class: type[SqliteStore] = SqliteStore
) -> Recorded:
    """Two instances, then one of them alone, then both closed and the file opened again."""
    chance = random.Random(seed)
    recording = Recording()
    history = History(lambda: recording.now)
    path = folder / DATABASE
    with recorded(recording):
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(store_class(path))
            async with store_class(path) as second:
                await work([first, second], history, chance, turns=10, name="both")
            await work([first], history, chance, turns=12, name="one")
        async with store_class(path) as store:
            await work([store], history, chance, turns=4, name="again")
    return Recorded(recording, history)


def examination(history: History) -> Callable[[Path, int], Awaitable[list[str]]]:
    async def examine(folder: Path, point: int) -> list[str]:
        try:
            async with SqliteStore(folder / DATABASE) as store:
                found = await history.problems(store, point)
                await _works_on(store)
            return found + _damage(folder / DATABASE)
        except (TealError, apsw.Error) as error:
            return [f"at {point}: {type(error).__name__} {error}"]

    return examine


async def _works_on(store: SqliteStore) -> None:
    head = (await store.commit(start_run("new"))).thread
    await store.commit(append(head, thought("and more")))
    assert len(await state_of(store, "new") or ()) == 2


def _damage(path: Path) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()
    return [] if said == ["ok"] else said


@asynccontextmanager
async def recording_of(
    seed: int, store_class: type[SqliteStore] = SqliteStore
) -> AsyncIterator[Recorded]:
    with quick_folder() as folder:
        yield await instances_at_work(seed, folder, store_class)


@pytest.mark.timeout(seconds(3600))
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_image_of_instances_at_work_has_lost_anything_acknowledged(seed: int) -> None:
    async with recording_of(seed) as run:
        findings = await examine_images(
            run.recording, examination(run.history), count=IMAGES, seed=seed
        )
    assert findings.problems == []


FIRST_SCHEMA = """
ALTER TABLE record RENAME TO newer;
CREATE TABLE record (
    place INTEGER PRIMARY KEY,
    commit_id TEXT NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
INSERT INTO record SELECT place, commit_id, body, checksum FROM newer;
DROP TABLE newer;
DROP TABLE watched;
DROP TABLE counter;
DROP TABLE encryption;
PRAGMA user_version = 1;
"""


async def test_no_image_of_a_migration_has_lost_anything() -> None:
    recording = Recording()
    history = History(lambda: recording.now)
    with quick_folder() as folder:
        path = folder / DATABASE
        async with SqliteStore(path) as store:
            for number in range(20):
                head = (await store.commit(start_run(f"old-{number}", text="x" * 2_000))).thread
                await store.commit(append(head, thought("y" * 700)))
                history.had(head.thread_id, await state_of(store, head.thread_id))
        connection = apsw.Connection(str(path))
        connection.execute(FIRST_SCHEMA)
        connection.close()
        safe = {DATABASE: path.read_bytes()}
        recording.had(DATABASE)
        with recorded(recording):
            async with SqliteStore(path) as store:
                await work([store], history, random.Random(1), turns=3, name="new")
        findings = await examine_images(
            recording, examination(history), count=trials(2_500, 60), seed=1, safe=safe
        )
    assert findings.problems == []


async def test_every_image_after_a_backup_has_the_whole_backup() -> None:
    recording = Recording()
    history = History(lambda: recording.now)
    with quick_folder() as folder:
        with recorded(recording):
            async with SqliteStore(folder / DATABASE) as store:
                await work([store], history, random.Random(2), turns=6, name="before")
                saved = history.states()
                _back_up(folder)
                recording.add(Sync(ROOT, recording.now))  # as the documentation asks for
                saved_at = recording.now
                await work([store], history, random.Random(3), turns=3, name="after")

        async def examine(image: Path, point: int) -> list[str]:
            found = await examination(history)(image, point)
            if point >= saved_at:
                async with SqliteStore(image / BACKUP) as store:
                    kept = {thread_id: await state_of(store, thread_id) for thread_id in saved}
                found += [
                    f"{name}: not in the backup" for name in saved if kept[name] != saved[name]
                ]
            return found

        findings = await examine_images(recording, examine, count=trials(1_500, 40), seed=2)
    assert findings.problems == []


def _back_up(folder: Path) -> None:
    """As SQLite's own `.backup` does."""
    source = apsw.Connection(str(folder / DATABASE))
    target = apsw.Connection(str(folder / BACKUP))
    with target.backup("main", source, "main") as backup:
        backup.step(-1)
    target.close()
    source.close()


@pytest.mark.timeout(seconds(600))
@pytest.mark.parametrize("broken", [OffStore, CheckpointingStore])
async def test_images_find_heartbeats_that_do_not_sync(broken: type[SqliteStore]) -> None:
    """Threads meet differently each time: rather many recordings than many images of one."""
    findings = Findings()
    for seed in range(20):
        async with recording_of(seed, broken) as run:
            findings = await examine_images(
                run.recording,
                examination(run.history),
                count=200,
                seed=seed,
                until_found=True,
            )
        if findings.problems:
            break
    assert findings.problems, "unsynced heartbeats went unnoticed"
