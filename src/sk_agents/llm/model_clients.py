"""What all model clients of one process share: connections, and models that are loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

from sk_agents.exceptions import ModelUnavailable
from sk_agents.llm.http_client import HttpClient, Pool, RequestTarget, request_target
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import Network

T = TypeVar("T")


class ModelClients:
    """Entered once per process; connections are made when the first model is called."""

    def __init__(
        self,
        pool: Pool | None = None,
        *,
        trace: Callable[[], str | None] | None = None,
        network: Network | None = None,
    ) -> None:
        """`trace` gives the `traceparent` of the call that is being made."""
        self._pool = pool or Pool()
        self.network = network or Network()
        self.trace = trace
        self._http: HttpClient | None = None
        self._is_open = False
        self._loaded: dict[str, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_open = False
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        loaded, self._loaded = self._loaded, {}
        await asyncio.gather(*loaded.values(), return_exceptions=True)

    async def once(self, name: str, load: Callable[[], Awaitable[T]]) -> T:
        """What `load` gives the first caller for this name; kept until the clients close.

        A caller that gives up does not stop it for the others; a failed load is tried again.
        """
        future = self._loaded.get(name)
        if future is None or (future.done() and (future.cancelled() or future.exception())):
            future = self._loaded[name] = asyncio.ensure_future(load())
        loaded: T = await asyncio.shield(future)
        return loaded

    @property
    def http(self) -> HttpClient:
        """The one client, with the connections of all.

        Raises:
            ModelUnavailable: the clients are not open, or no longer.
        """
        if self._http is None:
            if not self._is_open:
                raise ModelUnavailable("the model clients are closed", is_final=True)
            self._http = HttpClient(self._pool, self.trace, self.network)
        return self._http

    def target(
        self,
        url: str,
        headers: Mapping[str, str],
        certificate: ClientCertificate | None = None,
    ) -> RequestTarget:
        """Where requests that are posted to this address go.

        Raises:
            ConfigurationError: a header, the proxy or the certificate cannot be used.
        """
        if certificate is not None:
            self.network.check(certificate)
        proxy = self.network.proxy_for(url)
        return request_target("POST", url, headers, proxy=proxy, certificate=certificate)
