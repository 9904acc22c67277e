"""What all model clients of one process share: connections, and models that are loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import aiohttp

from sk_agents import __version__
from sk_agents.exceptions import ModelUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pool:
    """Bounds of the pool; 0 connections means no bound. `uses_proxy` obeys `HTTPS_PROXY`."""

    connections: int = 1024
    connections_per_host: int = 0
    keepalive: float = 60.0
    uses_proxy: bool = False


class ModelClients:
    """Entered once per process; the session is made when the first model is called."""

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool or Pool()
        self._session: aiohttp.ClientSession | None = None
        self._is_open = False
        self._loaded: dict[str, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_open = False
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        loaded, self._loaded = self._loaded, {}
        await asyncio.gather(*loaded.values(), return_exceptions=True)

    async def once(self, name: str, load: Callable[[], Awaitable[T]]) -> T:
        """What `load` gives the first who asks for this name; kept until the clients close.

        A caller who gives up does not stop it for the others; a failed load is tried anew.
        """
        future = self._loaded.get(name)
        if future is None or (future.done() and (future.cancelled() or future.exception())):
            future = self._loaded[name] = asyncio.ensure_future(load())
        loaded: T = await asyncio.shield(future)
        return loaded

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session.

        Raises:
            ModelUnavailable: the clients are not open, or no longer.
        """
        if self._session is None:
            self._session = self._open_session()
        return self._session

    def _open_session(self) -> aiohttp.ClientSession:
        if not self._is_open:
            raise ModelUnavailable("the model clients are closed", is_final=True)
        connector = aiohttp.TCPConnector(
            limit=self._pool.connections,
            limit_per_host=self._pool.connections_per_host,
            keepalive_timeout=self._pool.keepalive,
            ttl_dns_cache=60,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # A stream that waits to be worth compressing is no stream.
            headers={"Accept-Encoding": "identity", "User-Agent": f"teal-agents/{__version__}"},
            trust_env=self._pool.uses_proxy,
            read_bufsize=256 * 1024,
        )
