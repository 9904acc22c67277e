"""Requests to remote services over aiohttp, with bounds on time, size and where they may lead.

No cookies are kept, since one session serves all users, and no compression is asked for or
accepted, so that a small answer cannot become a large one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from sk_agents.exceptions import ToolError, ToolInterrupted
from sk_agents.outbound.aiohttp_options import request_options, request_problem
from sk_agents.outbound.network import Network
from sk_agents.tools.addresses import redirect_target
from sk_agents.tools.openapi.operations import ServiceRequest

logger = logging.getLogger(__name__)

SAFE_METHODS = {"GET", "HEAD"}
REDIRECTS = {301, 302, 303, 307, 308}
MOST_REDIRECTS = 5
CONNECTIONS_PER_HOST = 32
COMMON_HEADERS = {
    "Accept": "application/json, text/*;q=0.9, */*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "teal-agents",
}
UNKNOWN = (
    "The connection broke after the request was sent. It may or may not have been carried out: "
    "do not repeat it without checking."
)


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """`hosts` are those that a redirect may lead to besides the service's own."""

    seconds: float
    max_bytes: int
    hosts: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """`is_cut` says that there was more than may be read."""

    status: int
    reason: str
    content_type: str
    charset: str
    body: bytes
    is_cut: bool

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        try:
            return self.body.decode(self.charset, "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")


class RemoteHttp:
    """Needs a running event loop from the start. `close` ends all connections."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._reading = _session(force_close=False)
        # A kept connection may turn out to be closed when a request is on its way. What changes
        # something gets a connection of its own, and is sent once.
        self._writing = _session(_once, force_close=True)

    async def close(self) -> None:
        await self._reading.close()
        await self._writing.close()

    async def send(
        self, request: ServiceRequest, headers: Mapping[str, str], bounds: RequestBounds
    ) -> ServiceAnswer:
        """The service's answer, whatever its status.

        Raises:
            ToolInterrupted: the request was sent and the connection broke, or no answer to a
                change came in time.
            ToolError: there is none, or it leads where it may not. The text is for the model.
        """
        is_safe = request.method in SAFE_METHODS
        try:
            async with asyncio.timeout(bounds.seconds):
                return await self._follow(request, headers, bounds)
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            logger.warning(
                "a remote service cannot be reached",
                extra={
                    "address": str(URL(request.url).origin()),
                    "reason": request_problem(error, self._network, request.url),
                },
            )
            raise ToolError("The service cannot be reached; nothing was sent.") from None
        except TimeoutError:
            text = f"The service did not answer within {bounds.seconds:g} seconds."
            if is_safe:
                raise ToolError(text) from None
            raise ToolInterrupted(f"{text} {UNKNOWN}") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise ToolInterrupted("The service broke off." if is_safe else UNKNOWN) from None

    async def _follow(
        self, request: ServiceRequest, headers: Mapping[str, str], bounds: RequestBounds
    ) -> ServiceAnswer:
        is_safe = request.method in SAFE_METHODS
        session = self._reading if is_safe else self._writing
        url, sent = request.url, {**COMMON_HEADERS, **request.headers, **headers}
        for _ in range(MOST_REDIRECTS + 1):
            async with session.request(
                request.method,
                URL(url, encoded=True),
                headers=sent,
                data=request.body,
                allow_redirects=False,
                **await request_options(self._network, url),
            ) as response:
                location = response.headers.get("Location")
                if response.status not in REDIRECTS or location is None:
                    return await _answer(response, bounds.max_bytes)
            if not is_safe:
                raise ToolError(
                    f"The service answered {response.status}, a redirect; not followed."
                )
            url, is_same = redirect_target(url, location, hosts=bounds.hosts)
            if not is_same:
                # Keys and the caller's own token are for the service alone.
                sent = dict(COMMON_HEADERS)
        raise ToolError("The service redirects too often.")


async def fetched(
    url: str, headers: Mapping[str, str], bounds: RequestBounds, network: Network
) -> ServiceAnswer:
    """What a GET of this URL answers, over a connection of its own.

    Raises:
        ToolError: as `RemoteHttp.send`.
    """
    http = RemoteHttp(network)
    try:
        return await http.send(ServiceRequest("GET", url, {}, None), headers, bounds)
    finally:
        await http.close()


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp repeats PUT and DELETE by itself when their connection breaks; not so here."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ToolInterrupted(UNKNOWN) from error


def _session(
    *middlewares: aiohttp.ClientMiddlewareType, force_close: bool
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit_per_host=CONNECTIONS_PER_HOST, force_close=force_close
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=middlewares,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        # Otherwise a request without a body would claim to have one of unknown kind.
        skip_auto_headers=["Content-Type"],
    )


async def _answer(response: aiohttp.ClientResponse, max_bytes: int) -> ServiceAnswer:
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        response.close()
        raise ToolError("The service compressed its answer without being asked to.")
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > max_bytes:
            response.close()
            break
    return ServiceAnswer(
        response.status,
        response.reason or "",
        response.content_type.lower(),
        response.charset or "utf-8",
        bytes(body[:max_bytes]),
        len(body) > max_bytes,
    )
