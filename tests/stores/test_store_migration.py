"""Whole stores are copied, in each direction, and what is told of it is true."""

import asyncio
import itertools
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from sk_agents.engine.ports import PortableStore
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.store_factory import open_store
from sk_agents.persistence.store_migration import Migration, migrate_store
from sk_agents.testing.commits import append, start_run, thought
from sk_agents.testing.store_contract.case import snapshot
from sk_agents.testing.store_contract.portable import filled
from tests.forked_python import PYTHON
from tests.patience import seconds

KINDS = ("sqlite", "file", "postgresql")
Place = Callable[[str], str]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """The URL of an empty store of this kind; two of a kind have two places."""
    numbers = itertools.count()

    def place(kind: str) -> str:
        if kind == "postgresql":
            return str(request.getfixturevalue("schema"))
        if kind == "redis":
            return str(request.getfixturevalue("empty_redis"))
        if kind == "dynamodb":
            return str(request.getfixturevalue("dynamo_url"))
        return f"{kind}://{tmp_path / f'{kind}-{next(numbers)}'}"

    return place


def portable(url: str) -> PortableStore:
    store = open_store(url)
    assert isinstance(store, PortableStore)
    return store


async def migrated(source: str, target: str, *, merge: bool = False) -> Migration:
    async with portable(source) as old, portable(target) as new:
        return await migrate_store(old, new, lambda *_: None, merge=merge)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *itertools.permutations(KINDS, 2),
        ("sqlite", "sqlite"),
        ("sqlite", "dynamodb"),
        ("dynamodb", "file"),
        ("postgresql", "redis"),
        ("redis", "sqlite"),
    ],
)
async def test_everything_reads_the_same_in_the_other_store(
    place: Place, source: str, target: str
) -> None:
    here, there = place(source), place(target)
    async with portable(here) as store:
        ids = await filled(store)
        before = await snapshot(store, *ids)
    done = await migrated(here, there)
    assert done.is_complete
    assert (done.threads, done.copied, done.foreign) == (len(ids), len(ids), [])
    async with portable(there) as store:
        assert await snapshot(store, *ids) == before
    again = await migrated(here, there)
    assert (again.copied, again.digest, again.events) == (0, done.digest, done.events)


async def test_thread_that_went_on_since_is_copied_again(place: Place) -> None:
    here, there = place("sqlite"), place("postgresql")
    async with portable(here) as store:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(start_run("u", "run-2"))
    await migrated(here, there)
    async with portable(here) as store:
        await store.commit(append(head, thought()))
    done = await migrated(here, there)
    assert (done.is_complete, done.copied) == (True, 1)


async def test_what_changed_in_the_source_meanwhile_is_named(place: Place) -> None:
    """A server that was not stopped: nothing it has taken is left behind unsaid."""
    here, there = place("sqlite"), place("file")
    async with portable(here) as store:
        heads = [(await store.commit(start_run(id, f"run-{id}"))).thread for id in ("t", "u", "v")]

    async def add() -> None:
        async with portable(here) as store:
            await store.commit(start_run("new", "run-new"))

    async def go_on() -> None:
        async with portable(here) as store:
            await store.commit(append(heads[0], thought()))
            await store.delete("u", next_seq=heads[1].next_seq, incarnation=heads[1].incarnation)

    def told(what: str, done: int, all_of_them: int) -> None:
        change = add if what == "copied" else go_on
        other = threading.Thread(target=lambda: asyncio.run(change()))
        other.start()
        other.join()

    async with portable(here) as old, portable(there) as new:
        done = await migrate_store(old, new, told)
    assert sorted(done.different) == ["new", "t", "u"]
    assert (done.is_complete, done.threads) == (False, 1)


async def test_target_with_other_conversations_is_refused_unless_told(place: Place) -> None:
    here, there = place("sqlite"), place("sqlite")
    for url, name in ((here, "t"), (there, "u")):
        async with portable(url) as store:
            await store.commit(start_run(name, f"run-{name}"))
    with pytest.raises(ConfigurationError, match="--merge"):
        await migrated(here, there)
    done = await migrated(here, there, merge=True)
    assert (done.is_complete, done.copied, done.foreign) == (True, 1, ["u"])


async def test_another_thread_of_the_same_id_is_left_alone_and_named(place: Place) -> None:
    here, there = place("sqlite"), place("sqlite")
    for url in (here, there):
        async with portable(url) as store:
            await store.commit(start_run("t"))
    async with portable(there) as store:
        kept = await store.thread("t")
    done = await migrated(here, there, merge=True)
    assert (done.is_complete, done.different, done.copied) == (False, ["t"], 0)
    async with portable(there) as store:
        assert await store.thread("t") == kept


async def test_damaged_thread_is_named_and_the_others_are_copied(
    place: Place, tmp_path: Path
) -> None:
    here, there = place("sqlite"), place("file")
    async with portable(here) as store:
        for name in ("t", "u"):
            await store.commit(start_run(name, f"run-{name}"))
    database = apsw.Connection(here.removeprefix("sqlite://"))
    database.execute("UPDATE record SET body = CAST(body || x'00' AS BLOB) WHERE no = 1")
    database.close()
    done = await migrated(here, there)
    assert (done.is_complete, done.damaged, done.threads) == (False, ["t"], 1)


async def test_killed_migration_goes_on_where_it_stopped(place: Place) -> None:
    """Killed in the middle, as often as it takes."""
    here, there = place("sqlite"), place("postgresql")
    async with portable(here) as store:
        await asyncio.gather(*(store.commit(start_run(f"t{n:03}", f"run-{n}")) for n in range(200)))
    command = [PYTHON, "-m", "sk_agents", "migrate-store", here, there]
    running = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    async with asyncio.timeout(seconds(60)):
        for _ in iter(lambda: copied(there) > 20 or running.returncode is not None, True):
            await asyncio.sleep(0)
        if running.returncode is None:
            running.kill()
        await running.wait()
        before = copied(there)
        running = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        output = (await running.communicate())[0].decode()
    assert running.returncode == 0
    assert "200 conversations with 200 events are the same in both stores" in output
    assert f"{200 - before} of them copied now" in output


def copied(url: str) -> int:
    with psycopg.connect(url) as database:
        [(there,)] = database.execute("SELECT to_regclass('teal_thread')").fetchall()
        if there is None:
            return 0
        [(count,)] = database.execute("SELECT count(*) FROM teal_thread").fetchall()
        return int(count)
