"""What crosses threads, compared with the threads themselves, from time to time.

Only needed where one step cannot change both: in a cluster, and where conversations expire. Looks
at a few keys at a time, so that it is never in the way of commits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

from sk_agents.exceptions import SchemaTooNew, StateCorrupt, StoreError
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.redis import index, scripts
from sk_agents.persistence.redis.server import RedisServer
from sk_agents.redis_access import Command

logger = logging.getLogger(__name__)

# How long after the start, and how often.
FIRST_SECONDS = 60.0
EVERY_SECONDS = 3_600.0
BATCH = 100
PAUSE_SECONDS = 0.02


class Tidying:
    """Runs in the background from `start` until `stop`."""

    def __init__(self, server: RedisServer, codec: RecordCodec) -> None:
        self._server = server
        self._keys = server.keys
        self._codec = codec
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _repeat(self) -> None:
        pause = FIRST_SECONDS
        while True:
            # Not all instances at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = EVERY_SECONDS
            try:
                await self.tidy()
            except StoreError as error:
                logger.info("indexes were not tidied", extra={"error": type(error).__name__})

    async def tidy(self) -> None:
        """Add what is missing, then remove what points to nothing."""
        prefix = self._keys.prefix
        async for found in self._batches(f"{prefix}:{{t:*}}:head"):
            await self._add([_thread_of(key) for key in found])
        async for found in self._batches(f"{prefix}:{{e:*}}"):
            await self._drop_places(found)
        async for found in self._batches(f"{prefix}:{{u:*}}:threads"):
            for key in found:
                await self._drop_members(key)
        await self._drop_members(self._keys.threads.encode())

    async def _batches(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """All keys of this form; one may come twice."""
        async for page in self._server.scan(pattern, BATCH):
            if page:
                yield page
            await asyncio.sleep(PAUSE_SECONDS)

    async def _add(self, thread_ids: Sequence[str]) -> None:
        commands: list[Command] = []
        for thread_id in thread_ids:
            (body, check), rows = await self._server.ask(
                ("HMGET", self._keys.head(thread_id), "body", "check"),
                ("HGETALL", self._keys.entries(thread_id)),
            )
            if body is None:
                continue
            try:
                head, _ = self._codec.decode_head(thread_id, body, int(check))
            except (StateCorrupt, SchemaTooNew):
                commands.append(("ZADD", self._keys.threads, 0, thread_id))
                continue
            entries = [index.decode_entry(thread_id, *row) for row in rows.items()]
            changes = [*index.of_commit(self._keys, None, head, entries)]
            # A place that is known may be that of another thread, which took the entry over.
            commands += [
                (*change.command, "NX") if change.name == "SET" else change.command
                for change in changes
                if change.adds
            ]
        await self._server.ask(*commands)

    async def _drop_places(self, places: Sequence[bytes]) -> None:
        threads = await self._server.ask(*(("GET", place) for place in places))
        named = [(place, thread) for place, thread in zip(places, threads, strict=True) if thread]
        rows = await self._server.ask(
            *(
                ("HEXISTS", self._keys.entries(_text(thread)), _field(place))
                for place, thread in named
            )
        )
        await self._server.ask(
            *(
                scripts.DROP([_text(place)], thread)
                for (place, thread), exists in zip(named, rows, strict=True)
                if not exists
            )
        )

    async def _drop_members(self, listing: bytes) -> None:
        """Threads of a listing that are no more."""
        first = 0
        while True:
            last = first + BATCH - 1
            [members] = await self._server.ask(("ZRANGE", listing, first, last))
            rows = await self._server.ask(
                *(("EXISTS", self._keys.head(_text(member))) for member in members)
            )
            gone = [member for member, exists in zip(members, rows, strict=True) if not exists]
            if gone:
                await self._server.ask(
                    ("ZREM", listing, *gone), ("HDEL", self._keys.runnable, *gone)
                )
            if len(members) < BATCH:
                return
            first += BATCH - len(gone)


def _thread_of(key: bytes) -> str:
    """The thread of a key that `Keys.head` made."""
    quoted = _text(key).partition("{t:")[2].rpartition("}")[0]
    return unquote(quoted, errors="surrogatepass")


def _field(place: bytes) -> str:
    """Under which the entry lies whose place this is."""
    kind, _, key = _text(place).partition("{e:")[2].rpartition("}")[0].partition(":")
    return f"{kind}:{unquote(key, errors='surrogatepass')}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")
