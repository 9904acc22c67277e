"""The threads' keys in a DynamoDB table wrapped by another one, while servers use it.

A head is replaced only if it is still the one that was read, and its version grows: a server that
knew the head reads it again before its next commit.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sk_agents.exceptions import (
    ConfigurationError,
    SchemaTooNew,
    StateCorrupt,
    StoreBusy,
    StoreUnavailable,
)
from sk_agents.persistence.dynamodb import schema
from sk_agents.persistence.dynamodb.address import read_address
from sk_agents.persistence.dynamodb.items import (
    ALL_THREADS,
    BY_LIST,
    HeadItem,
    key,
    puts,
    split,
    values,
)
from sk_agents.persistence.dynamodb.reading import Reader
from sk_agents.persistence.dynamodb.table import ConditionFailed, Refused, Table, Unanswered
from sk_agents.persistence.dynamodb.table_writer import IS_KNOWN
from sk_agents.persistence.dynamodb.unfinished import Unfinished
from sk_agents.persistence.encoding import head_checksum
from sk_agents.persistence.encryption import EncryptingCodec, StoreMarker
from sk_agents.persistence.store_encryption import Outcome, ServerPlace, Told

# How often threads are looked for that were changed while they were looked at.
PASSES = 5


def encrypt(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """Raises ConfigurationError: the table's backups would keep what it replaces."""
    raise ConfigurationError(
        "A DynamoDB table cannot be encrypted in place: its point-in-time backups keep old items."
        " Copy its conversations into a new table with `teal migrate-store`, while the keys are set"
    )


def rekey(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """See `Encrypting.rekey`."""
    return asyncio.run(_rekey(place.url, codec, told))


async def _rekey(url: str, codec: EncryptingCodec, told: Told) -> Outcome:
    address = read_address(url)
    table = Table(address)
    await table.open()
    try:
        await schema.prepare(table, address, codec)
        changed = 0
        for _ in range(PASSES):
            outcome = await _Rewrapping(table, codec).all_threads(told)
            changed += outcome.changed
            # A pass in which nothing was left to change.
            if not outcome.changed and await _drop_unused_keys(table, codec):
                return Outcome(changed, outcome.damaged)
    except (Unanswered, Refused) as error:
        raise StoreUnavailable(f"{table}: {error}") from error
    finally:
        await table.close()
    raise StoreBusy("Threads change faster than their keys can be wrapped; run this again.")


class _Rewrapping:
    def __init__(self, table: Table, codec: EncryptingCodec) -> None:
        self._table = table
        self._codec = codec
        self._reader = Reader(table)
        self._unfinished = Unfinished(table, self._reader, codec)

    async def all_threads(self, told: Told) -> Outcome:
        ids = await self._ids()
        damaged: list[str] = []
        changed = 0
        for number, thread_id in enumerate(ids, 1):
            try:
                changed += await self._rewrapped(thread_id)
            except (StateCorrupt, SchemaTooNew):
                damaged.append(thread_id)
            told(number, len(ids))
        return Outcome(changed, tuple(damaged))

    async def _ids(self) -> list[str]:
        query = self._table.query("list_pk = :pk", values(pk=ALL_THREADS), IndexName=BY_LIST)
        async with aclosing(query) as pages:
            return [item["list_sk"]["S"] async for page in pages for item in page]

    async def _rewrapped(self, thread_id: str) -> bool:
        """Whether its key was wrapped by another one, and is not any more."""
        head = await self._reader.head(thread_id)
        if head is None:
            return False
        if head_checksum(thread_id, head.body) != head.checksum:
            raise StateCorrupt(thread_id=thread_id)
        again = self._codec.rewrapped_head(thread_id, head.body)
        if again is None:
            return False
        body, token, parts = split(thread_id, f"h#{head.life}", again)
        await self._table.write_all(puts(parts))
        check = head_checksum(thread_id, again)
        new = replace(
            head, version=head.version + 1, body=body, checksum=check, token=token, parts=len(parts)
        )
        try:
            await self._table.send("UpdateItem", **_update(head, new))
        except ConditionFailed:
            return True  # changed by a server: it is looked at in the next pass
        if head.token:
            await self._unfinished.drop_parts(thread_id, f"h#{head.life}#{head.token}#")
        return True


def _update(head: HeadItem, new: HeadItem) -> dict[str, Any]:
    """Of the head's own attributes; those of the indexes stay as they are."""
    known = values(life=head.life, version=head.version)
    given = values(next=new.version, checksum=new.checksum)
    change = "SET head_version = :next, checksum = :checksum"
    if new.parts:
        given = {**given, **values(token=new.token, parts=new.parts)}
        change += ", token = :token, parts = :parts"
    else:
        given = {**given, ":body": {"B": new.body}}
        change += ", body = :body"
    return {
        "Key": key(f"u#{head.user_id}", head.thread_id),
        "UpdateExpression": change,
        "ConditionExpression": IS_KNOWN,
        "ExpressionAttributeValues": {**known, **given},
    }


async def _drop_unused_keys(table: Table, codec: EncryptingCodec) -> bool:
    """Have the table name only the key that wraps now; False if a server named one since."""
    found = await table.get(key("schema"))
    if found is None or "encryption" not in found:
        return False
    marker = StoreMarker(keys=codec.keys.ids[:1]).encoded()
    return await schema.replace_marker(table, found["encryption"]["B"], marker)
