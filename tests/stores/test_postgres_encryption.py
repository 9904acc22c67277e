"""Encryption on PostgreSQL: the rows hold no plain text, and keys change while servers write."""

import asyncio

import psycopg
import pytest

from sk_agents.exceptions import ConfigurationError, StoreEncrypted, WrongEncryptionKey
from sk_agents.persistence.encryption import new_key
from sk_agents.persistence.store_encryption import encrypt_store, rekey_store
from sk_agents.persistence.store_factory import open_store
from tests.patience import seconds
from tests.requirements import requirement
from tests.stores.encrypted import CANARY, codec, contents, fill
from tests.stores.test_encrypting import ignored, write_until

THREADS = 6


def all_rows(url: str) -> bytes:
    """Every byte of every row of the store's tables."""
    tables = ("thread", "record", "entry", "owner", "watched", "counter", "schema")
    with psycopg.connect(url) as database:
        rows = [
            row
            for table in tables
            for row in database.execute(f"SELECT * FROM teal_{table}").fetchall()
        ]
    values = (value for row in rows for value in row)
    return b"\n".join(v if isinstance(v, bytes) else str(v).encode() for v in values)


@requirement("S004-10.2-encryption")
async def test_rows_hold_no_plain_text_and_a_wrong_key_is_refused(schema: str) -> None:
    async with open_store(schema, codec=codec(key := new_key())) as store:
        await fill(store, THREADS)
        before = await contents(store, THREADS)
    assert CANARY.encode() not in await asyncio.to_thread(all_rows, schema)
    with pytest.raises(WrongEncryptionKey):
        await open_store(schema, codec=codec()).__aenter__()
    with pytest.raises(StoreEncrypted):
        await open_store(schema).__aenter__()
    async with open_store(schema, codec=codec(key)) as store:
        assert await contents(store, THREADS) == before


@requirement("S004-10.2-encryption")
async def test_keys_change_under_load_without_an_error_and_the_old_one_can_go(schema: str) -> None:
    old, new = new_key(), new_key()
    async with open_store(schema, codec=codec(old)) as store:
        await fill(store, THREADS)
        before = await contents(store, THREADS)
    stop = asyncio.Event()
    async with (
        open_store(schema, codec=codec(new, old)) as store,
        open_store(schema, codec=codec(new, old)) as second,
        asyncio.timeout(seconds(60)),
    ):
        # Known to the writer before their keys are wrapped again.
        assert await contents(store, THREADS) == before
        writers = [
            asyncio.create_task(write_until(each, name, stop))
            for each, name in ((store, "a"), (second, "b"))
        ]
        outcome = await asyncio.to_thread(rekey_store, schema, codec(new, old), ignored)
        stop.set()
        assert all([await writer for writer in writers])
        assert outcome.changed >= THREADS and not outcome.damaged
    async with open_store(schema, codec=codec(new)) as store:
        assert await contents(store, THREADS) == before


async def test_a_database_is_not_encrypted_in_place(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="Copy its conversations"):
        encrypt_store(schema, codec(), ignored)
