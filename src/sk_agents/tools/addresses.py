"""Which addresses may be connected to when it was not the operator who chose the URL.

A URL in the configuration may lead anywhere, loopback included: it says what the operator wants.
A URL that a model gives, or that came with data, is checked here: what it is made of, what its name
stands for, and that the connection goes to the very address that was checked.
"""

from __future__ import annotations

import asyncio
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from sk_agents.exceptions import ToolError

MOST_CHARACTERS = 8192
RESOLVE_SECONDS = 5.0
USUAL_PORTS = {"http": 80, "https": 443}

_NOT_PUBLIC_V4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's metadata service on an address like any other
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
]
# Everything outside is private, link-local, multicast or an IPv4 address in disguise.
_GLOBAL_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # tunnels, among them Teredo
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",
    )
]
# As browsers read hosts: a last label like these makes the whole host a number.
_NUMBER = re.compile(r"\d+|0[xX][0-9a-fA-F]*")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class AllowedUrls:
    """What may be asked for. `hosts` are names whose addresses may also be private ones."""

    schemes: frozenset[str] = frozenset({"http", "https"})
    ports: frozenset[int] = frozenset({80, 443})
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckedAddress:
    """A URL that may be asked for, and the addresses its host stood for when it was checked."""

    url: str
    host: str
    port: int
    addresses: tuple[str, ...]


DEFAULT = AllowedUrls()


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """What the system's resolver says, all families.

    Raises:
        OSError: it knows no such host, or does not answer in time.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RESOLVE_SECONDS):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def checked_address(
    url: str, *, allow: AllowedUrls = DEFAULT, resolve: Resolve = system_addresses
) -> CheckedAddress:
    """The URL in the form to ask for, with the addresses to connect to.

    Connect through a `PinnedResolver` over it, and check every redirect in the same way.

    Raises:
        ToolError: it may not be asked for. The text is for the model.
    """
    parts = _split(url)
    if parts.scheme not in allow.schemes:
        raise _refused(f"only {' and '.join(sorted(allow.schemes))} are allowed")
    if "@" in parts.netloc:
        raise _refused("it carries credentials")
    host, port = _host(parts), _port(parts)
    if port not in allow.ports:
        raise _refused(f"port {port} is not allowed")
    literal = _literal(host)
    if literal is not None:
        addresses: Sequence[str] = [str(literal)]
    else:
        try:
            addresses = await resolve(host, port)
        except (OSError, UnicodeError):
            # TimeoutError is an OSError.
            raise ToolError("The URL's host cannot be resolved.") from None
    if not addresses:
        raise ToolError("The URL's host cannot be resolved.")
    if host not in allow.hosts and not all(map(is_public, addresses)):
        raise _refused("its host is not a public address")
    return CheckedAddress(_url(parts, host), host, port, tuple(addresses))


def is_public(address: str) -> bool:
    """Whether this address means the same machine everywhere on the Internet."""
    try:
        # A zone makes an address one of this machine's own links.
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_V4)
    if parsed.scope_id is not None or parsed not in _GLOBAL_V6:
        return False
    return not any(parsed in network for network in _NOT_PUBLIC_V6)


class PinnedResolver(AbstractResolver):
    """Answers only for hosts that were checked, and only with the addresses found then.

    So a name that means something else a moment later is still connected to what was checked.
    Use it with `TCPConnector(use_dns_cache=False)`.
    """

    def __init__(self, *checked: CheckedAddress) -> None:
        self._known = {entry.host: entry.addresses for entry in checked}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        known = self._known.get(host.lower().removesuffix("."))
        if known is None:
            raise OSError("this host was not checked")
        results = [_result(host, port, address) for address in known]
        wanted = [entry for entry in results if family in {socket.AF_UNSPEC, entry["family"]}]
        if not wanted:
            raise OSError("this host has no address of that family")
        return wanted

    async def close(self) -> None:
        """Nothing is held open."""


def redirect_target(asked: str, location: str, *, hosts: Iterable[str] = ()) -> tuple[str, bool]:
    """Where a redirect from a configured URL leads, and whether that is the same service.

    The same service is the same scheme, host and port, or the same host from http to https on
    their usual ports. `hosts` are the others the operator allows: `name` or `name:port`.

    Raises:
        ToolError: it leads elsewhere.
    """
    before, after = _split(asked), _split(urljoin(asked, location))
    if after.scheme not in USUAL_PORTS or "@" in after.netloc:
        raise ToolError("The service redirects to an address that is not allowed.")
    host, port = _host(after), _port(after)
    old_host, old_port = _host(before), _port(before)
    url = _url(after, host)
    if (after.scheme, host, port) == (before.scheme, old_host, old_port):
        return url, True
    upgraded = (before.scheme, old_port, after.scheme, port) == ("http", 80, "https", 443)
    if host == old_host and upgraded:
        return url, True
    downgraded = before.scheme == "https" and after.scheme == "http"
    is_listed = f"{host}:{port}" in hosts or (host in hosts and port == USUAL_PORTS[after.scheme])
    if is_listed and not downgraded:
        return url, False
    raise ToolError("The service redirects to another host, which is not allowed.")


def _split(url: str) -> SplitResult:
    if len(url) > MOST_CHARACTERS:
        raise _refused(f"it is longer than {MOST_CHARACTERS} characters")
    if _UNSAFE.search(url):
        raise _refused("it holds spaces, control characters or backslashes")
    try:
        return urlsplit(url)
    except ValueError:
        raise _refused("it is not a URL") from None


def _host(parts: SplitResult) -> str:
    """In lower case, as ASCII, without the dot that may end it."""
    host = unicodedata.normalize("NFKC", parts.hostname or "").lower()
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise _refused("its host is not a name") from None
    host = host.removesuffix(".")
    if ":" in host:
        if _literal(host) is None:
            raise _refused("its host is not an address")
        return host
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # 127.1, 2130706433, 0x7f.1, 0177.0.0.1: spellings that resolvers take for an address.
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise _refused("its host is an oddly spelt address") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _refused("its host is not a name")
    return host


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        raise _refused("its port is not a number") from None
    return USUAL_PORTS.get(parts.scheme, 0) if port is None else port


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _url(parts: SplitResult, host: str) -> str:
    """Rebuilt, so that what is asked for is what was checked; a fragment is not sent."""
    shown = f"[{host}]" if ":" in host else host
    port = _port(parts)
    if port != USUAL_PORTS.get(parts.scheme):
        shown = f"{shown}:{port}"
    return parts._replace(netloc=shown, path=parts.path or "/", fragment="").geturl()


def _result(host: str, port: int, address: str) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )


def _refused(reason: str) -> ToolError:
    return ToolError(f"This URL is not allowed: {reason}.")
