"""A whole store is encrypted, or gets another key: also under load, and killed at any point."""

import asyncio
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    StateCorrupt,
    StoreBusy,
    StoreEncrypted,
    StoreNotEncrypted,
    StoreUnavailable,
    WrongEncryptionKey,
)
from sk_agents.persistence.encryption import EncryptingCodec, new_key
from sk_agents.persistence.store_encryption import encrypt_store, rekey_store
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import append, create, thought
from tests.chaos.scale import trials
from tests.forked_python import PYTHON
from tests.patience import seconds
from tests.requirements import requirement
from tests.stores.encrypted import add_thread, codec, contents, fill, hits, on_disk

THREADS = 12
# Enough that each kill leaves something to do.
MANY = trials(full=120, small=THREADS)
KILLS = trials(full=50, small=2)


def ignored(done: int, total: int) -> None: ...


@requirement("S004-10.2-encryption")
async def test_a_store_in_plain_text_is_encrypted_and_keeps_everything(
    durable_url: str, tmp_path: Path
) -> None:
    async with open_store(durable_url) as store:
        await fill(store, THREADS)
        before = await contents(store, THREADS)
    steps: list[tuple[int, int]] = []
    keys = codec()
    outcome = encrypt_store(durable_url, keys, lambda done, total: steps.append((done, total)))
    assert (outcome.changed, outcome.damaged) == (THREADS, ())
    assert steps[-1] == (THREADS, THREADS)
    assert hits(tmp_path) == []
    async with open_store(durable_url, codec=keys) as store:
        assert await contents(store, THREADS) == before
        await add_thread(store, "new", user="ada", records=1)
    assert hits(tmp_path) == []
    assert encrypt_store(durable_url, keys, ignored).changed == 0


async def test_free_pages_and_the_wal_hold_no_plain_text_afterwards(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'teal.sqlite'}"
    async with open_store(url) as store:
        await fill(store, THREADS, records=8)
        for number in range(0, THREADS, 2):
            head = await store.thread(f"t{number}")
            await store.delete(head.thread_id, next_seq=head.next_seq)
    assert hits(tmp_path)
    encrypt_store(url, codec(), ignored)
    assert hits(tmp_path) == []


async def test_a_store_that_is_open_is_not_encrypted(durable_url: str, tmp_path: Path) -> None:
    async with open_store(durable_url) as store:
        await fill(store, 1)
        before = await contents(store, 1)
        with pytest.raises(StoreBusy, match="stop it first"):
            await asyncio.to_thread(encrypt_store, durable_url, codec(), ignored)
        assert await contents(store, 1) == before
        await add_thread(store, "more", user="ada", records=1)


async def test_an_interrupted_encryption_keeps_every_server_out(durable_url: str) -> None:
    async with open_store(durable_url) as store:
        await fill(store, 3)
    keys = codec()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encrypt_store(durable_url, keys, interrupt)
    with pytest.raises(StoreNotEncrypted, match="run it again"):
        await open_store(durable_url, codec=keys).__aenter__()
    with pytest.raises(StoreEncrypted):
        await open_store(durable_url).__aenter__()
    with pytest.raises(WrongEncryptionKey):
        encrypt_store(durable_url, codec(), ignored)
    encrypt_store(durable_url, keys, ignored)
    async with open_store(durable_url, codec=keys) as store:
        assert len(await contents(store, 3)) == 3


async def test_a_damaged_thread_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'teal.sqlite'}"
    async with open_store(url) as store:
        await fill(store, 3)
    database = apsw.Connection(str(tmp_path / "teal.sqlite"))
    database.execute("UPDATE record SET checksum = checksum + 1 WHERE no = 2")
    database.close()
    keys = codec()
    outcome = encrypt_store(url, keys, ignored)
    assert (outcome.changed, outcome.damaged) == (2, ("t0",))
    async with open_store(url, codec=keys) as store:
        with pytest.raises(StateCorrupt):
            await store.thread("t0")
        assert (await store.thread("t1")).user_id == "bob"


async def test_there_must_be_a_store(durable_url: str) -> None:
    for work in (encrypt_store, rekey_store):
        with pytest.raises(StoreUnavailable, match="no store here"):
            work(durable_url, codec(), ignored)


async def test_a_store_in_plain_text_gets_no_other_key(durable_url: str) -> None:
    async with open_store(durable_url) as store:
        await fill(store, 1)
    with pytest.raises(StoreNotEncrypted):
        rekey_store(durable_url, codec(), ignored)


def killed_and_repeated(command: list[str], chance: random.Random, kills: int) -> tuple[int, str]:
    """Kill the process so often, each time a random moment after a few of its lines; then let it
    end. How often a kill came in time, and what it said last."""
    came_in_time = 0
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(1 + chance.randrange(3)):
                process.stdout.readline()
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.choice([0, 0.001, 0.005, 0.02]))
            process.kill()
        came_in_time += process.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds(60))
    return came_in_time, done.stdout.splitlines()[-1]


@requirement("S004-10.2-encryption")
@pytest.mark.timeout(seconds(1800))
async def test_killed_in_the_middle_of_encrypting_it_goes_on_and_loses_nothing(
    durable_url: str, tmp_path: Path
) -> None:
    async with open_store(durable_url) as store:
        await fill(store, MANY, records=2)
        before = await contents(store, MANY)
    key = new_key()
    command = [PYTHON, "-m", "tests.stores.encrypting_process", "encrypt", durable_url, key]
    killed, last = await asyncio.to_thread(killed_and_repeated, command, random.Random(1), KILLS)
    assert last == "done"
    assert killed
    assert hits(tmp_path) == []
    async with open_store(durable_url, codec=codec(key)) as store:
        assert await contents(store, MANY) == before


@requirement("S004-10.2-encryption")
@pytest.mark.timeout(seconds(1800))
async def test_killed_in_the_middle_of_a_change_of_keys_it_goes_on_and_loses_nothing(
    durable_url: str,
) -> None:
    old, new = new_key(), new_key()
    async with open_store(durable_url, codec=codec(old)) as store:
        await fill(store, MANY, records=2)
        before = await contents(store, MANY)
    work = ["rekey", durable_url, new, old]
    command = [PYTHON, "-m", "tests.stores.encrypting_process", *work]
    killed, last = await asyncio.to_thread(killed_and_repeated, command, random.Random(2), KILLS)
    assert last == "done"
    assert killed
    async with open_store(durable_url, codec=codec(new)) as store:
        assert await contents(store, MANY) == before


async def write_until(store: Store, name: str, stop: asyncio.Event) -> int:
    """Make threads and add to them, as a server does, until told to stop; how many commits."""
    commits = 0
    while not stop.is_set():
        head = (await store.commit(create(f"{name}-{commits}", thought("a"), user="ada"))).thread
        head = (await store.commit(append(head, thought("b")))).thread
        assert len(await store.events_after(head.thread_id, 0)) == 2
        commits += 2
    return commits


@requirement("S004-10.2-encryption")
async def test_keys_change_under_load_without_an_error_and_the_old_one_can_go(
    durable_url: str,
) -> None:
    old, new = new_key(), new_key()
    async with open_store(durable_url, codec=codec(old)) as store:
        await fill(store, THREADS)
        before = await contents(store, THREADS)
    stop = asyncio.Event()
    async with (
        open_store(durable_url, codec=codec(new, old)) as store,
        open_store(durable_url, codec=codec(new, old)) as second,
        asyncio.timeout(seconds(60)),
    ):
        writers = [
            asyncio.create_task(write_until(each, name, stop))
            for each, name in ((store, "a"), (store, "b"), (second, "c"))
        ]
        outcome = await asyncio.to_thread(rekey_store, durable_url, codec(new, old), ignored)
        stop.set()
        assert all([await writer for writer in writers])
        assert outcome.changed == THREADS and not outcome.damaged
        assert await contents(store, THREADS) == before
    async with open_store(durable_url, codec=codec(new)) as store:
        assert await contents(store, THREADS) == before
        assert len(await store.events_after("a-0", 0)) == 2
    with pytest.raises(WrongEncryptionKey):
        await open_store(durable_url, codec=codec(old)).__aenter__()


async def test_a_key_that_a_running_server_still_wraps_with_stays_named(durable_url: str) -> None:
    old, new = new_key(), new_key()
    async with open_store(durable_url, codec=codec(old, new)) as late:
        await fill(late, 1)
        await asyncio.to_thread(rekey_store, durable_url, codec(new, old), ignored)
        await add_thread(late, "later", user="ada", records=1)
    with pytest.raises(WrongEncryptionKey):
        await open_store(durable_url, codec=codec(new)).__aenter__()
    await asyncio.to_thread(rekey_store, durable_url, codec(new, old), ignored)
    async with open_store(durable_url, codec=codec(new)) as store:
        assert (await store.thread("later")).user_id == "ada"


def wrapped_key(folder: Path, codec: EncryptingCodec) -> bytes:
    """What follows the id of the wrapping key, wherever it lies first."""
    key_id = bytes.fromhex(codec.keys.ids[0])
    for path in folder.rglob("*"):
        if path.is_file() and (at := path.read_bytes().find(key_id)) >= 0:
            return path.read_bytes()[at : at + 68]
    raise AssertionError("no wrapped key")


async def test_deleting_a_thread_destroys_its_key(tmp_path: Path) -> None:
    url, keys = f"sqlite://{tmp_path / 'teal.sqlite'}", codec()
    async with open_store(url, codec=keys) as store:
        await fill(store, 1)
    wrapped = wrapped_key(tmp_path, keys)
    async with open_store(url, codec=keys) as store:
        head = await store.thread("t0")
        await store.delete("t0", next_seq=head.next_seq)
    assert not any(wrapped in data for data in on_disk(tmp_path).values())
