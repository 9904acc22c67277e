"""The server of one store: its connections, its scripts, and whether it can be relied on."""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from sk_agents.engine.models import Durability
from sk_agents.exceptions import (
    ConfigurationError,
    SchemaTooNew,
    StoreReadOnly,
    StoreUnavailable,
)
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.redis import scripts
from sk_agents.persistence.redis.keys import Keys
from sk_agents.persistence.redis.scripts import RedisScript
from sk_agents.redis_access import LOST, Command, RedisAccess, RedisLink, close_blocking

OLDEST_SERVER = (7, 0)
SCHEMA = 1
READERS = 8


class RedisServer:
    """Bound to one event loop, from `open` until `close`; `lease` is for any thread."""

    def __init__(self, access: RedisAccess) -> None:
        self.access = access
        self.keys = Keys(access.options.prefix)
        self.is_cluster = access.options.is_cluster
        self.touch: Command = ("HSET", self.keys.about, "touched", 1)
        self._generation = b""
        self._readers: RedisLink | None = None
        self._writer: RedisLink | None = None
        self._lease_lock = threading.Lock()
        self._lease_client: Any = None

    def __str__(self) -> str:
        return str(self.access)

    async def open(self, codec: RecordCodec) -> None:
        """Look at the server and its settings.

        Raises:
            StoreNotEncrypted, StoreEncrypted, WrongEncryptionKey: the codec is not for this store.
            ConfigurationError: it cannot be used, as the message says.
            StoreReadOnly: it is a replica.
            SchemaTooNew: a newer version wrote it.
            StoreUnavailable: it cannot be reached.
        """
        self._readers = RedisLink(self.access, READERS)
        self._writer = RedisLink(self.access, 1)
        try:
            await self._check_settings()
            await self._prepare(codec)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for link in (self._readers, self._writer):
            if link is not None:
                await link.close()
        self._readers = self._writer = None

    async def ask(self, *commands: Command) -> list[Any]:
        """The replies to commands that may be sent again. Raises StoreError."""
        readers = self._live_readers()
        if not commands:
            return []
        try:
            return await readers.ask(*commands)
        except NoScriptError:
            await self.load_scripts()
            return await readers.ask(*commands)

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """All keys of this form, about so many at a time; one may come twice. Raises StoreError."""
        if self._readers is not None:
            async for page in self._readers.scan(pattern, size):
                yield page

    async def run_scripts(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands that are sent once, in their order; errors that the server
        answered among them. Raises one of `LOST`."""
        if self._writer is None or not commands:
            return []
        replies = await self._writer.run_plain(commands)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server was started again, or another one took its place
            await self.load_scripts()
            again = await self._writer.run_plain([commands[number] for number in unknown])
            for number, reply in zip(unknown, again, strict=True):
                replies[number] = reply
        return replies

    def lease(self, script: RedisScript, keys: Sequence[str], *values: Any) -> None:
        """Run a script past the event loop, from any thread, within a few seconds.

        Raises:
            StoreError: it was not carried out, as far as is known.
        """
        with self._lease_lock:
            for is_last in (False, True):
                try:
                    if self._lease_client is None:
                        self._lease_client = self.access.blocking_client()
                    try:
                        self._lease_client.execute_command(*script(keys, *values))
                    except NoScriptError:
                        self._lease_client.eval(script.text, len(keys), *keys, *values)
                    return
                except ResponseError as error:
                    raise self.access.refused(error) from error
                except LOST as error:
                    self._close_lease()
                    if is_last:
                        raise self.access.unreachable(error) from error

    def close_lease(self) -> None:
        with self._lease_lock:
            self._close_lease()

    def _close_lease(self) -> None:
        if self._lease_client is not None:
            close_blocking(self._lease_client)
            self._lease_client = None

    async def load_scripts(self) -> None:
        if self._readers is not None:
            for script in scripts.ALL:
                await self._readers.everywhere("SCRIPT LOAD", script.text)

    async def check_generation(self) -> None:
        """Return iff the server still has the data that it had when it was opened.

        A server that was started again without its data answers as if no thread had ever been.

        Raises:
            StoreUnavailable: it has lost them.
        """
        [found] = await self.ask(("HGET", self.keys.about, "generation"))
        if found != self._generation:
            raise StoreUnavailable(
                f"{self}: the server has lost its data, or was given other data; restore it, or"
                " restart this process to go on with what is there"
            )

    async def _check_settings(self) -> None:
        for server in await self._everywhere_info("server", "replication", "memory"):
            self._check_server(server)

    async def _everywhere_info(self, *sections: str) -> list[dict[str, str]]:
        """What each server says of itself."""
        servers: list[dict[str, str]] = []
        for section in sections:
            found = await self._live_readers().everywhere("INFO", section)
            servers = servers or [{} for _ in found]
            for server, said in zip(servers, found, strict=True):
                server.update(_info(said))
        return servers

    def _live_readers(self) -> RedisLink:
        if self._readers is None:
            raise StoreUnavailable(f"{self}: the store is not open")
        return self._readers

    def _check_server(self, about: Mapping[str, str]) -> None:
        version = about.get("valkey_version") or about.get("redis_version") or "0.0"
        if tuple(map(int, version.split(".")[:2])) < OLDEST_SERVER:
            raise ConfigurationError(f"Redis {version} is too old: 7.0 is the oldest")
        if about.get("role") == "slave":
            raise StoreReadOnly(
                f"{self}: this server is a replica and takes no writes; name the primary, or the"
                " sentinels"
            )
        policy = about.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise ConfigurationError(
                f"the server's maxmemory-policy is {policy}: it would drop conversations when its"
                " memory is full. Set it to noeviction"
            )

    async def durability(self) -> tuple[Durability, tuple[str, ...]]:
        """What the weakest of the servers keeps, and by which settings that is less than it could
        be. Raises StoreError."""
        servers = await self._everywhere_info("persistence")
        if not all(server.get("aof_enabled") == "1" for server in servers):
            return Durability.D0, ("Redis's setting appendonly is off",)
        try:
            found = await self._live_readers().everywhere("CONFIG GET", "appendfsync")
        except StoreUnavailable:  # a server that others run may not let us look
            unreadable = "Redis's setting appendfsync cannot be read and counts as everysec"
            return Durability.D1, (unreadable,)
        weaker = sorted({_setting(said) for said in found} - {"always"})
        weaknesses = tuple(f"Redis's setting appendfsync is {how}" for how in weaker)
        return (Durability.D1 if weaker else Durability.D2), weaknesses

    async def _prepare(self, codec: RecordCodec) -> None:
        keys = self.keys
        await self.load_scripts()
        await self.ask(
            ("HSETNX", keys.about, "schema", SCHEMA),
            ("HSETNX", keys.about, "generation", secrets.token_hex(8)),
        )
        [(schema, self._generation)] = await self.ask(("HMGET", keys.about, "schema", "generation"))
        if int(schema) > SCHEMA:
            raise SchemaTooNew(
                f"the store was written by a newer version (schema {int(schema)}, this one knows"
                f" {SCHEMA}); it was not touched."
            )
        while True:
            found, threads = await self.ask(
                ("HGET", keys.about, "encryption"), ("ZCARD", keys.threads)
            )
            marker = codec.marker(found, is_empty=threads == 0)
            if marker == found or await self.set_marker(found, marker):
                return

    async def set_marker(self, found: bytes | None, marker: bytes | None) -> bool:
        """Have the store say how it is encrypted, if it says what was found."""
        swap = scripts.SWAP_FIELD([self.keys.about], "encryption", found or b"", marker or b"")
        [done] = await self.ask(swap)
        return bool(done)


def liveness(reply: Any) -> tuple[dict[str, float], float]:
    """Until when each owner's leases hold, and the time, from the reply to `scripts.OWNERS`."""
    now, pairs = reply
    owners = zip(pairs[::2], pairs[1::2], strict=True)
    return {owner.decode(): float(until) for owner, until in owners}, float(now)


def _setting(found: Any) -> str:
    """The one value in the reply to CONFIG GET."""
    values = [*found.values()] if isinstance(found, dict) else found[1::2]
    value = values[0] if values else b""
    return value.decode() if isinstance(value, bytes) else str(value)


def _info(found: Any) -> dict[str, str]:
    """From the reply to INFO."""
    return {str(name): str(value) for name, value in found.items()}
