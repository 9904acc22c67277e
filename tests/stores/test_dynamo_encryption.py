"""Encryption on DynamoDB: the items hold no plain text, and keys change while servers write."""

import asyncio

import pytest

from sk_agents.exceptions import ConfigurationError, StoreEncrypted, WrongEncryptionKey
from sk_agents.persistence.encryption import new_key
from sk_agents.persistence.store_encryption import encrypt_store, rekey_store
from sk_agents.persistence.store_factory import open_store
from tests.patience import seconds
from tests.requirements import requirement
from tests.stores.encrypted import CANARY, codec, contents, fill
from tests.stores.test_dynamo_server import items_in
from tests.stores.test_encrypting import ignored, write_until

THREADS = 4


@requirement("S004-10.2-encryption")
async def test_keys_change_under_load_and_no_item_holds_plain_text(dynamo_url: str) -> None:
    old, new = new_key(), new_key()
    async with open_store(dynamo_url, codec=codec(old)) as store:
        await fill(store, THREADS, records=1)
        before = await contents(store, THREADS)
    assert CANARY not in str(await asyncio.to_thread(items_in, dynamo_url))
    with pytest.raises(WrongEncryptionKey):
        await open_store(dynamo_url, codec=codec()).__aenter__()
    with pytest.raises(StoreEncrypted):
        await open_store(dynamo_url).__aenter__()
    stop = asyncio.Event()
    async with (
        open_store(dynamo_url, codec=codec(new, old)) as store,
        asyncio.timeout(seconds(60)),
    ):
        # Known to the writer before their keys are wrapped again.
        assert await contents(store, THREADS) == before
        writer = asyncio.create_task(write_until(store, "a", stop))
        outcome = await asyncio.to_thread(rekey_store, dynamo_url, codec(new, old), ignored)
        stop.set()
        assert await writer
        assert outcome.changed >= THREADS and not outcome.damaged
    async with open_store(dynamo_url, codec=codec(new)) as store:
        assert await contents(store, THREADS) == before


def test_a_table_is_not_encrypted_in_place(dynamo_url: str) -> None:
    with pytest.raises(ConfigurationError, match="Copy its conversations"):
        encrypt_store(dynamo_url, codec(), ignored)
