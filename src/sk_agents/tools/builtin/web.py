"""Fetching text from hosts that the operator lists.

A URL comes from a model, so it is checked before every connection, also after a redirect, and the
connection goes to the address that was checked. A proxy is given that address instead of the name,
so it cannot find another one for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ToolError
from sk_agents.outbound.aiohttp_options import request_options
from sk_agents.outbound.network import Network
from sk_agents.tools.addresses import (
    AllowedUrls,
    CheckedAddress,
    PinnedResolver,
    Resolve,
    checked_address,
    system_addresses,
)
from sk_agents.tools.builtin.function_tool import BuiltinFunction

if TYPE_CHECKING:
    from sk_agents.tools.builtin.loader import WebLimits

MOST_REDIRECTS = 5
MARGIN_SECONDS = 5.0
_REDIRECTS = {301, 302, 303, 307, 308}
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")
_HEADERS = {
    "Accept": "text/*, application/json, application/xml;q=0.9",
    "Accept-Encoding": "identity",
    "User-Agent": "teal-agents",
}


class WebTools:
    def __init__(
        self,
        limits: WebLimits,
        resolve: Resolve = system_addresses,
        *,
        network: Network | None = None,
    ) -> None:
        self._limits, self._resolve = limits, resolve
        # A host that a model chose learns nothing of this server's certificate.
        self._network = (network or Network()).anonymous()

    def functions(self) -> Iterator[BuiltinFunction]:
        yield BuiltinFunction(
            "Web",
            self.http_get,
            Effect.READ_ONLY,
            timeout=self._limits.seconds + MARGIN_SECONDS,
            bound_to=self._limits.model_dump(),
        )

    async def http_get(
        self, url: Annotated[str, "An absolute URL, such as https://example.org/page"]
    ) -> str:
        """Fetch a page of text from the web."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                for _ in range(MOST_REDIRECTS + 1):
                    text, location = await self._fetch(await self._checked(url))
                    if location is None:
                        return text
                    url = urljoin(url, location)
        except TimeoutError:
            raise ToolError(f"No answer within {self._limits.seconds:g} seconds.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise ToolError("The host cannot be reached, or broke off.") from None
        raise ToolError("The host redirects too often.")

    async def _checked(self, url: str) -> CheckedAddress:
        """Raises: ToolError, if the URL may not be asked for."""
        rule = self._rule(url)
        allow = AllowedUrls(
            schemes=frozenset({"http", "https"} if rule.plain else {"https"}),
            ports=frozenset({rule.port} if rule.port else {80, 443} if rule.plain else {443}),
            hosts=frozenset(self._limits.private),
        )
        return await checked_address(url, allow=allow, resolve=self._resolve)

    def _rule(self, url: str) -> _Rule:
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower().removesuffix("."), parts.port
        except ValueError:
            raise ToolError("This is not a URL.") from None
        rules = [rule for rule in map(_rule, self._limits.allow) if rule.fits(host)]
        if not rules:
            listed = ", ".join(self._limits.allow)
            raise ToolError(f"This host is not allowed. Allowed are: {listed}.")
        # The one that allows most of it: what is wrong is then said by the check.
        return max(rules, key=lambda rule: (rule.port == port, rule.plain))

    async def _fetch(self, checked: CheckedAddress) -> tuple[str, str | None]:
        """The text, or where a redirect leads."""
        options = await request_options(self._network, checked.url)
        url, headers = URL(checked.url, encoded=True), dict(_HEADERS)
        resolver: AbstractResolver | None = PinnedResolver(checked)
        if "proxy" in options:
            headers["Host"] = url.host_port_subcomponent or checked.host
            options["server_hostname"] = checked.host
            url, resolver = url.with_host(checked.addresses[0]), None
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.get(url, headers=headers, allow_redirects=False, **options) as response,
        ):
            location = response.headers.get("Location")
            if response.status in _REDIRECTS and location is not None:
                return "", location
            return await self._text(response), None

    async def _text(self, response: aiohttp.ClientResponse) -> str:
        kind = response.content_type.lower()
        if not 200 <= response.status < 300:
            raise ToolError(f"The host answered {response.status} {response.reason or ''}.".strip())
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ToolError("The host compressed its answer without being asked to.")
        if not (kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))):
            raise ToolError(f"The host answered with {ascii(kind[:100])}, which is not text.")
        most, body = self._limits.max_kb * 1024, bytearray()
        async for chunk in response.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > most:
                break
        try:
            text = bytes(body[:most]).decode(response.charset or "utf-8", "replace")
        except LookupError:
            text = bytes(body[:most]).decode("utf-8", "replace")
        return f"{text}\n[cut: the first {most} bytes]" if len(body) > most else text


@dataclass(frozen=True, slots=True)
class _Rule:
    host: str
    port: int | None
    plain: bool

    def fits(self, host: str) -> bool:
        if self.host == "*":
            return True
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host


def _rule(entry: str) -> _Rule:
    plain = entry.startswith("http://")
    host, _, port = entry.removeprefix("http://").removeprefix("https://").partition(":")
    return _Rule(host.lower(), int(port) if port else None, plain)
