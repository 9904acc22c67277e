"""How a Redis or Valkey server is reached: its URL, its connections, and what went wrong in words.

For the store and the signals alike. Nothing is sent twice behind a caller's back: the library's own
retries are off, since a command whose answer was lost may have been carried out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sk_agents.exceptions import (
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TealError,
)

try:
    import redis as blocking
    from hiredis import pack_command
    from redis import asyncio as redis
    from redis import exceptions as errors
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel
    from redis.backoff import NoBackoff
except ImportError as error:
    raise ConfigurationError(
        "Redis's driver is not installed: pip install 'teal-agents[redis]'"
    ) from error

logger = logging.getLogger(__name__)

FORMS = (
    "redis://user:password@host:6379/0",
    "redis+sentinel://user:password@host:26379,host:26379/service/0",
    "redis+cluster://user:password@host:6379,host:6379",
)
SCHEMES = tuple(
    f"{tls}{way}" for tls in ("redis", "rediss") for way in ("", "+sentinel", "+cluster")
)
PREFIX = "teal"
CONNECT_SECONDS = 5.0
# How long an answer may take; a connection that is silent for longer is given up.
ANSWER_SECONDS = 15.0
RENEWAL_SECONDS = 4.0
# How long replicas have time to say that they have what was written.
REPLICA_SECONDS = 5.0
# How long a command waits for a connection to be free.
BUSY_SECONDS = 5.0

# What a connection can be lost with. Whether the last command was carried out is not known then.
LOST = (
    errors.ConnectionError,
    errors.TimeoutError,
    errors.ClusterError,
    errors.RedisClusterException,
    OSError,
)
# Those of a server that is there, but lets us not in.
REFUSED = (errors.AuthenticationError, errors.AuthorizationError)

Command = tuple[Any, ...]
_Sentinel: Any = Sentinel  # not typed


@dataclass(frozen=True, slots=True)
class Options:
    """What a URL says. `service` is the name under which the sentinels know the server."""

    hosts: tuple[tuple[str, int], ...]
    is_cluster: bool = False
    service: str | None = None
    database: int = 0
    tls: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict)
    sentinel_credentials: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = PREFIX
    ttl: int | None = None
    replicas: int = 0


class RedisAccess:
    """Opens connections to one server, cluster or group of replicas. Safe to use from any
    thread."""

    def __init__(self, place: str | Options) -> None:
        """Raises ConfigurationError: the URL makes no sense. Its message repeats nothing of it."""
        self.options = read_url(place) if isinstance(place, str) else place

    def __str__(self) -> str:
        options = self.options
        tls = "rediss" if options.tls else "redis"
        hosts = ",".join(f"{_bracketed(host)}:{port}" for host, port in options.hosts)
        if options.service is not None:
            return f"{tls}+sentinel://{hosts}/{options.service}/{options.database}"
        if options.is_cluster:
            return f"{tls}+cluster://{hosts}"
        return f"{tls}://{hosts}/{options.database}"

    def client(self) -> redis.Redis | redis.RedisCluster:
        """Opens nothing yet."""
        options = self.options
        common: dict[str, Any] = {
            **_timeouts(ANSWER_SECONDS),
            **options.credentials,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "teal",
        }
        if options.is_cluster:
            nodes = [ClusterNode(host, port) for host, port in options.hosts]
            return redis.RedisCluster(
                startup_nodes=nodes, **common, **options.certificates, ssl=options.tls
            )
        common["db"] = options.database
        if options.tls:
            common |= {"ssl": True, **options.certificates}
        if options.service is not None:
            sentinel: Any = _Sentinel(
                options.hosts, sentinel_kwargs=self._sentinel_options(), **common
            )
            found: redis.Redis = sentinel.master_for(options.service)
            return found
        [(host, port)] = options.hosts
        return redis.Redis(host=host, port=port, **common)

    def listening_client(self, attempt: int) -> redis.Redis | redis.RedisCluster:
        """For publishing and subscribing. A cluster hands messages on among its servers, so that
        one of them will do: another one at each attempt."""
        options = self.options
        if not options.is_cluster:
            return self.client()
        one = replace(
            options, is_cluster=False, hosts=(options.hosts[attempt % len(options.hosts)],)
        )
        return RedisAccess(one).client()

    def blocking_client(self) -> Any:
        """The same for an OS thread. Opens nothing yet."""
        options = self.options
        common: dict[str, Any] = {
            **_timeouts(RENEWAL_SECONDS),
            **options.credentials,
            "retry": blocking.retry.Retry(NoBackoff(), 0),
            "client_name": "teal-leases",
        }
        # The blocking half of the library is not typed.
        library: Any = blocking
        if options.is_cluster:
            nodes = [library.cluster.ClusterNode(host, port) for host, port in options.hosts]
            return library.RedisCluster(
                startup_nodes=nodes, **common, **options.certificates, ssl=options.tls
            )
        common["db"] = options.database
        if options.tls:
            common |= {"ssl": True, **options.certificates}
        if options.service is not None:
            sentinel = library.Sentinel(
                options.hosts, sentinel_kwargs=self._sentinel_options(), **common
            )
            return sentinel.master_for(options.service)
        [(host, port)] = options.hosts
        return library.Redis(host=host, port=port, **common)

    def _sentinel_options(self) -> dict[str, Any]:
        options = self.options
        tls = {"ssl": True, **options.certificates} if options.tls else {}
        return {**_timeouts(CONNECT_SECONDS), **options.sentinel_credentials, **tls}

    def unreachable(self, error: Exception) -> StoreUnavailable:
        why = "it refuses this user" if isinstance(error, REFUSED) else _line(error)
        return StoreUnavailable(f"{self}: the server cannot be reached ({why})")

    def refused(self, error: errors.ResponseError) -> TealError:
        """What the server refused, in our words. The command changed nothing."""
        said = _line(error)
        match error:
            case errors.OutOfMemoryError():
                return StoreFull(f"{self}: the server's memory is full; nothing was written")
            case errors.ReadOnlyError():
                return StoreReadOnly(f"{self}: this server is a replica and takes no writes")
            case errors.NoPermissionError():
                return StoreUnavailable(f"{self}: the server's user may not do this ({said})")
            case errors.TryAgainError():
                return StoreBusy(f"{self}: the cluster is being rearranged ({said})")
        match said.partition(" ")[0]:
            case "MISCONF":
                return StoreFull(f"{self}: the server cannot write to its disk ({said})")
            case "BUSY":
                return StoreBusy(f"{self}: the server is busy ({said})")
            case "NOREPLICAS":
                return StoreUnavailable(f"{self}: the server has too few replicas ({said})")
            case _:
                return StoreError(f"{self}: the server refused ({said})")


class RedisLink:
    """Commands to one server or cluster, over a bounded number of connections."""

    def __init__(
        self,
        access: RedisAccess,
        connections: int,
        client: redis.Redis | redis.RedisCluster | None = None,
    ) -> None:
        self._access = access
        self._client = client or access.client()
        self._free = asyncio.Semaphore(connections)

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to all of them, in order; an error that the server answered is among them.

        They are sent at once and carried out in order, by one server; in a cluster in any order.

        Raises:
            One of `LOST`: which of them were carried out is not known.
        """
        async with self._turn():
            pipeline: Any = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, errors.ResponseError):
                raise reply
        return replies

    async def run_plain(self, commands: Sequence[Command]) -> list[Any]:
        """The same for replies that are needed as they come.

        The library's pipeline packs each value in Python, which took a third of a commit's CPU; for
        one server they are packed in C.
        """
        if isinstance(self._client, redis.RedisCluster):
            return await self.run(commands)
        async with self._turn():
            pool: Any = self._client.connection_pool
            connection = await pool.get_connection()
            try:
                await connection.send_packed_command(_packed(connection, commands))
                return [await _reply(connection) for _ in commands]
            except BaseException:
                await connection.disconnect()
                raise
            finally:
                await pool.release(connection)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """While one of the connections may be used."""
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise errors.ConnectionError("all connections are busy") from None
        try:
            yield
        finally:
            self._free.release()

    async def everywhere(self, *command: Any) -> list[Any]:
        """The replies of all servers that take writes; one unless it is a cluster.

        Raises:
            StoreError: one is away, or refuses.
        """
        try:
            if isinstance(self._client, redis.RedisCluster):
                nodes = self._client.get_primaries()
                return [
                    await self._client.execute_command(*command, target_nodes=[node])
                    for node in nodes
                ]
            client: Any = self._client  # this method of it is not typed
            return [await client.execute_command(*command)]
        except LOST as error:
            raise self._access.unreachable(error) from error
        except errors.ResponseError as error:
            raise self._access.refused(error) from error

    async def ask(self, *commands: Command) -> list[Any]:
        """The replies to commands that may be sent again, and are if a connection was lost while it
        was idle.

        Raises:
            StoreError: the server is away, or refused one of them.
        """
        try:
            replies = await self.run(commands)
        except LOST:
            try:
                replies = await self.run(commands)
            except LOST as error:
                raise self._access.unreachable(error) from error
        for reply in replies:
            if isinstance(reply, errors.NoScriptError):
                raise reply
            if isinstance(reply, errors.ResponseError):
                raise self._access.refused(reply) from reply
        return replies

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """All keys of this form, about so many at a time; one may come twice.

        Raises:
            StoreError: the server is away, or refuses.
        """
        page: list[bytes] = []
        try:
            async for key in self._client.scan_iter(match=pattern, count=size):
                page.append(key)
                if len(page) >= size:
                    yield page
                    page = []
        except LOST as error:
            raise self._access.unreachable(error) from error
        except errors.ResponseError as error:
            raise self._access.refused(error) from error
        yield page

    async def close(self) -> None:
        await close(self._client)


def _packed(connection: Any, commands: Sequence[Command]) -> Any:
    try:
        return [b"".join([pack_command(command) for command in commands])]
    except UnicodeEncodeError:  # half of a surrogate pair, which the library knows how to write
        return connection.pack_commands(commands)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except errors.ResponseError as error:
        return error


async def close(client: redis.Redis | redis.RedisCluster) -> None:
    """With its connections to sentinels, which the library leaves open."""
    await client.aclose()
    for sentinel in _sentinels(client):
        await sentinel.aclose()


def close_blocking(client: Any) -> None:
    client.close()
    for sentinel in _sentinels(client):
        sentinel.close()


def _sentinels(client: Any) -> Sequence[Any]:
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return manager.sentinels if manager is not None else ()


def read_url(url: str) -> Options:
    """Raises ConfigurationError; it repeats nothing of the URL, which may hold a password."""
    try:
        return _options(url)
    except (ValueError, KeyError) as error:
        said = str(error) if isinstance(error, _Wrong) else "it cannot be read"
        raise ConfigurationError(
            f"the URL is not Redis's: {said}. It must be {', '.join(FORMS)} or the same with"
            " rediss for TLS; what is special in a URL must be percent-encoded in its parts"
        ) from None


class _Wrong(ValueError):
    """With words that hold nothing of the URL."""


def _options(url: str) -> Options:
    parts = urlsplit(url)
    tls, _, way = parts.scheme.partition("+")
    if tls not in ("redis", "rediss") or way not in ("", "sentinel", "cluster"):
        raise _Wrong("it has another scheme")
    who, _, places = parts.netloc.rpartition("@")
    hosts = tuple(_host(place, 26379 if way == "sentinel" else 6379) for place in places.split(","))
    if len(hosts) > 1 and not way:
        raise _Wrong("only sentinels and clusters have several hosts")
    user, _, password = who.partition(":")
    asked = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    path = [unquote(part) for part in parts.path.split("/")[1:] if part]
    service = None
    if way == "sentinel":
        if not path:
            raise _Wrong("it names no service after the sentinels' hosts")
        service = path.pop(0)
    if len(path) > 1 or (path and (way == "cluster" or not path[0].isdecimal())):
        raise _Wrong("its path must be the number of a database")
    options = Options(
        hosts,
        is_cluster=way == "cluster",
        service=service,
        database=int(path[0]) if path else 0,
        tls=tls == "rediss",
        credentials=_credentials(unquote(user), unquote(password)),
        sentinel_credentials=_credentials(
            asked.pop("sentinel_username", ""), asked.pop("sentinel_password", "")
        ),
        certificates={
            name: value for name in _CERTIFICATES if (value := asked.pop(name, None)) is not None
        },
        prefix=asked.pop("prefix", PREFIX),
        ttl=_positive(asked.pop("ttl", None), "ttl"),
        replicas=_positive(asked.pop("replicas", None), "replicas") or 0,
    )
    if options.is_cluster and options.replicas:
        raise _Wrong("a cluster's replicas cannot be waited for; see min-replicas-to-write")
    if asked:
        raise _Wrong("it has an option that is none of ours")
    if _PREFIX.fullmatch(options.prefix) is None:
        raise _Wrong("its prefix must be letters, digits and . _ : -")
    return options


_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_CERTIFICATES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


def _host(place: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise _Wrong("it names no host")
    return parts.hostname, parts.port or port


def _credentials(user: str, password: str) -> dict[str, str]:
    given = {"username": user, "password": password}
    return {name: value for name, value in given.items() if value}


def _positive(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise _Wrong(f"its {name} must be a positive whole number")
    return int(text)


def _timeouts(seconds: float) -> dict[str, Any]:
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": min(seconds, CONNECT_SECONDS),
        "socket_keepalive": True,
        "protocol": 2,
        "encoding_errors": "surrogatepass",
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
