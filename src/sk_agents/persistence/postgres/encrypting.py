"""The threads' keys in a PostgreSQL database wrapped by another one, while servers use it.

A head is replaced only if it is still the one that was read, and its `version` grows: a server that
knew the head reads it again before its next commit.
"""

from __future__ import annotations

import asyncio
from typing import LiteralString

import psycopg

from sk_agents.exceptions import ConfigurationError, StateCorrupt, StoreBusy
from sk_agents.persistence.codec import SEALED
from sk_agents.persistence.encoding import head_checksum
from sk_agents.persistence.encryption import EncryptingCodec, StoreMarker
from sk_agents.persistence.postgres import schema
from sk_agents.persistence.postgres.connections import open_connection
from sk_agents.persistence.store_encryption import Outcome, ServerPlace, Told
from sk_agents.postgres_access import AsyncConnection, PostgresAccess, store_error

BATCH = 200
# How often threads are looked for that were changed while they were looked at.
PASSES = 5

PAGE: LiteralString = """
SELECT no, thread_id, version, head, checksum FROM teal_thread
WHERE no > %(after)s ORDER BY no LIMIT %(limit)s
"""
REPLACE: LiteralString = """
UPDATE teal_thread SET head = %(head)s, checksum = %(checksum)s, version = version + 1
WHERE no = %(no)s AND version = %(version)s
"""
OTHERS: LiteralString = """
SELECT thread_id FROM teal_thread WHERE substring(head FROM %(at)s FOR %(size)s) <> %(key_id)s
"""


def encrypt(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """Raises ConfigurationError: the database would keep what it replaces, in dead rows and in its
    write-ahead log."""
    raise ConfigurationError(
        "A PostgreSQL database cannot be encrypted in place: the server keeps old rows. Copy its "
        "conversations into an empty one with `teal migrate-store`, while the keys are set"
    )


def rekey(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """See `Encrypting.rekey`."""
    access = PostgresAccess(place.url, password_command=place.password_command)
    return asyncio.run(_rekey(access, codec, told))


async def _rekey(access: PostgresAccess, codec: EncryptingCodec, told: Told) -> Outcome:
    connection = await open_connection(access)
    try:
        await schema.prepare(connection, codec)
        changed = 0
        for _ in range(PASSES):
            outcome = await _rewrap_threads(connection, codec, told)
            changed += outcome.changed
            if await _drop_unused_keys(connection, codec, outcome.damaged):
                return Outcome(changed, outcome.damaged)
    except psycopg.Error as error:
        raise store_error(error, access) from error
    finally:
        await connection.close()
    raise StoreBusy("Threads change faster than their keys can be wrapped; run this again.")


async def _rewrap_threads(
    connection: AsyncConnection, codec: EncryptingCodec, told: Told
) -> Outcome:
    [(total,)] = await (await connection.execute("SELECT count(*) FROM teal_thread")).fetchall()
    damaged: list[str] = []
    after = done = changed = 0
    while page := await _page(connection, after):
        for no, thread_id, version, head, check in page:
            try:
                if head_checksum(thread_id, head) != check:
                    raise StateCorrupt(thread_id=thread_id)
                again = codec.rewrapped_head(thread_id, head)
            except StateCorrupt:
                damaged.append(thread_id)
                continue
            if again is not None:
                values = {"head": again, "checksum": head_checksum(thread_id, again)}
                ran = await connection.execute(REPLACE, {**values, "no": no, "version": version})
                changed += ran.rowcount
        after, done = page[-1][0], done + len(page)
        told(min(done, total), total)
    return Outcome(changed, tuple(damaged))


async def _page(connection: AsyncConnection, after: int) -> list[tuple[int, str, int, bytes, int]]:
    cursor = await connection.execute(PAGE, {"after": after, "limit": BATCH})
    return [
        (no, thread_id, version, bytes(head), check)
        for no, thread_id, version, head, check in await cursor.fetchall()
    ]


async def _drop_unused_keys(
    connection: AsyncConnection, codec: EncryptingCodec, damaged: tuple[str, ...]
) -> bool:
    """Have the database name only the key that wraps now; False if others are still in use."""
    key_id = bytes.fromhex(codec.keys.ids[0])
    sought = {"at": len(SEALED) + 1, "size": len(key_id), "key_id": key_id}
    async with connection.transaction():
        # No thread is made or changed until the database says which keys it needs.
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (schema.LOCK,))
        await connection.execute("LOCK TABLE teal_thread IN SHARE MODE")
        others = await (await connection.execute(OTHERS, sought)).fetchall()
        if any(thread_id not in damaged for (thread_id,) in others):
            return False
        marker = StoreMarker(keys=codec.keys.ids[:1]).encoded()
        await connection.execute("UPDATE teal_schema SET encryption = %s", (marker,))
    return True
