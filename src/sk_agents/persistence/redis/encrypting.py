"""The threads' keys in a Redis store wrapped by another one, while servers use it.

A head is replaced only if it is still the one that was read, and gets a mark of its own: a server
that knew the head reads it again before its next commit.
"""

from __future__ import annotations

import asyncio
import secrets

from sk_agents.exceptions import ConfigurationError, StateCorrupt, StoreBusy
from sk_agents.persistence.encoding import head_checksum
from sk_agents.persistence.encryption import EncryptingCodec, StoreMarker
from sk_agents.persistence.redis import scripts
from sk_agents.persistence.redis.server import RedisServer
from sk_agents.persistence.store_encryption import Outcome, ServerPlace, Told
from sk_agents.redis_access import RedisAccess

BATCH = 200
# How often threads are looked for that were changed while they were looked at.
PASSES = 5


def encrypt(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """Raises ConfigurationError: the server would keep what it replaces, in its append-only file
    and in its snapshots."""
    raise ConfigurationError(
        "A Redis store cannot be encrypted in place: the server's files keep old values. Copy its "
        "conversations into an empty one with `teal migrate-store`, while the keys are set"
    )


def rekey(place: ServerPlace, codec: EncryptingCodec, told: Told) -> Outcome:
    """See `Encrypting.rekey`."""
    return asyncio.run(_rekey(RedisServer(RedisAccess(place.url)), codec, told))


async def _rekey(server: RedisServer, codec: EncryptingCodec, told: Told) -> Outcome:
    await server.open(codec)
    try:
        changed = 0
        for _ in range(PASSES):
            outcome = await _rewrap_threads(server, codec, told)
            changed += outcome.changed
            if outcome.changed == 0:
                await _drop_unused_keys(server, codec)
                return Outcome(changed, outcome.damaged)
    finally:
        await server.close()
    raise StoreBusy("Threads change faster than their keys can be wrapped; run this again.")


async def _rewrap_threads(server: RedisServer, codec: EncryptingCodec, told: Told) -> Outcome:
    keys = server.keys
    [total] = await server.ask(("ZCARD", keys.threads))
    damaged: list[str] = []
    changed = done = 0
    start: bytes | str = "-"
    while True:
        [page] = await server.ask(("ZRANGE", keys.threads, start, "+", "BYLEX", "LIMIT", 0, BATCH))
        if not page:
            return Outcome(changed, tuple(damaged))
        for name in page:
            thread_id = name.decode("utf-8", "surrogatepass")
            [(mark, head, check)] = await server.ask(
                ("HMGET", keys.head(thread_id), "mark", "body", "check")
            )
            if mark is None:
                continue
            try:
                if head_checksum(thread_id, head) != int(check):
                    raise StateCorrupt(thread_id=thread_id)
                again = codec.rewrapped_head(thread_id, head)
            except StateCorrupt:
                damaged.append(thread_id)
                continue
            if again is not None:
                values = (mark, secrets.token_hex(16), again, head_checksum(thread_id, again))
                await server.ask(scripts.REPLACE_HEAD([keys.head(thread_id)], *values))
                changed += 1
        start, done = b"(" + page[-1], done + len(page)
        told(min(done, total), total)


async def _drop_unused_keys(server: RedisServer, codec: EncryptingCodec) -> None:
    """Have the store name only the key that wraps now."""
    marker = StoreMarker(keys=codec.keys.ids[:1]).encoded()
    while True:
        [found] = await server.ask(("HGET", server.keys.about, "encryption"))
        if await server.set_marker(found, marker):
            return
