"""The connections that all tools of remote services share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sk_agents.exceptions import ToolError
from sk_agents.outbound.network import Network

if TYPE_CHECKING:
    from sk_agents.tools.openapi.http import RemoteHttp, RequestBounds, ServiceAnswer
    from sk_agents.tools.openapi.operations import ServiceRequest

T = TypeVar("T")


class RemoteClients:
    """Entered once per process; nothing is connected before the first call."""

    def __init__(
        self, *, trace: Callable[[], str | None] | None = None, network: Network | None = None
    ) -> None:
        """`trace` gives the `traceparent` of the call that is being made."""
        self._trace = trace
        self.network = network or Network()
        self._http: RemoteHttp | None = None
        self._is_open = False
        self._known: dict[Hashable, Any] = {}
        self.addresses: dict[str, str] = {}
        """By the plugin's name: where its requests go."""

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_open = False
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def send(
        self, request: ServiceRequest, headers: Mapping[str, str], bounds: RequestBounds
    ) -> ServiceAnswer:
        """As `RemoteHttp.send`.

        Raises:
            ToolError: as there, or this is not open.
        """
        if not self._is_open:
            raise ToolError("The server is shutting down.")
        if self._http is None:
            # aiohttp takes a fifth of a second to import, which servers without remote tools save.
            from sk_agents.tools.openapi.http import RemoteHttp  # noqa: PLC0415

            self._http = RemoteHttp(self.network)
        if self._trace is not None and (trace := self._trace()) is not None:
            headers = {**headers, "traceparent": trace}
        return await self._http.send(request, headers, bounds)

    def once(self, key: Hashable, read: Callable[[], T]) -> T:
        """What `read` gave the first caller that asked for this key."""
        if key not in self._known:
            self._known[key] = read()
        known: T = self._known[key]
        return known
