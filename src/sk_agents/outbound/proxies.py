"""Forward proxies, as the environment names them.

`HTTP_PROXY` is for http addresses, `HTTPS_PROXY` for https ones, `ALL_PROXY` for both; `NO_PROXY`
names what is reached without one. The lower-case spelling wins over the upper-case one. This
machine itself (`localhost` and loopback addresses) is never reached through a proxy: a proxy would
take the address for its own.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

from sk_agents.exceptions import ConfigurationError

USUAL_PORTS = {"http": 80, "https": 443}
PROXY_VARIABLES = {"http": ("http_proxy", "all_proxy"), "https": ("https_proxy", "all_proxy")}
NO_PROXY = "no_proxy"
_SEPARATORS = re.compile(r"[\s,]+")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")


@dataclass(frozen=True, slots=True)
class Proxy:
    """`variable` is the one that names it. Its credentials appear in no `repr`."""

    scheme: str
    host: str
    port: int
    variable: str = ""
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """Its address, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def authorization(self) -> str | None:
        """The value of `Proxy-Authorization`."""
        if self.user is None:
            return None
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """What the environment says. A variable's value is looked at when an address needs it: an
    unusable proxy does not stop a server that talks to this machine alone."""

    values: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """By scheme: the variable and its value."""
    exempt: tuple[_Exemption, ...] = ()

    def proxy_for(self, url: str) -> Proxy | None:
        """The proxy through which this address is reached, if any.

        Raises:
            ConfigurationError: the variable that names it cannot be used.
        """
        if not self.values:
            return None
        parts = urlsplit(url)
        named = self.values.get(parts.scheme)
        if named is None or not parts.hostname:
            return None
        host = parts.hostname.lower().removesuffix(".")
        port = parts.port or USUAL_PORTS[parts.scheme]
        if is_this_machine(host) or any(one.covers(host, port) for one in self.exempt):
            return None
        return _parsed(*named)


def read_proxies(environ: Mapping[str, str]) -> ProxyRules:
    values = {}
    for scheme, variables in PROXY_VARIABLES.items():
        found = next(filter(None, (_value(name, environ) for name in variables)), None)
        if found is not None:
            values[scheme] = found
    _, exempt = _value(NO_PROXY, environ) or ("", "")
    return ProxyRules(values, tuple(_exemptions(_SEPARATORS.split(exempt))))


def is_this_machine(host: str) -> bool:
    """By its spelling alone: `localhost`, names below it, and loopback addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _value(name: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that is set, with its value; the lower-case spelling is the older one."""
    for spelling in (name, name.upper()):
        value = environ.get(spelling, "").strip()
        if value:
            return spelling, value
    return None


def _parsed(variable: str, value: str) -> Proxy:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        port = parts.port or USUAL_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise _unusable(variable) from None
    if parts.scheme.startswith("socks"):
        raise ConfigurationError(f"{variable}: only http and https proxies can be used, no SOCKS")
    if parts.scheme not in USUAL_PORTS or not _HOST.fullmatch(parts.hostname or "") or not port:
        raise _unusable(variable)
    user, password = _credentials(parts)
    return Proxy(parts.scheme, parts.hostname or "", port, variable, user, password)


def _credentials(parts: SplitResult) -> tuple[str | None, str]:
    if parts.username is None:
        return None, ""
    return unquote(parts.username), unquote(parts.password or "")


def _unusable(variable: str) -> ConfigurationError:
    # Its value may hold a password.
    return ConfigurationError(f"{variable}: must be like http://proxy.example.com:3128")


@dataclass(frozen=True, slots=True)
class _Exemption:
    """An entry of `NO_PROXY`: a network, or a name with or without what is below it."""

    name: str = ""
    has_itself: bool = True
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def covers(self, host: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            try:
                # Of another family it is in no network.
                return ip_address(host) in self.network
            except ValueError:
                return False
        if self.name == "*":
            return True
        return (self.has_itself and host == self.name) or host.endswith(f".{self.name}")


def _exemptions(entries: Iterable[str]) -> Iterable[_Exemption]:
    for entry in filter(None, entries):
        host, port = _split_port(entry.lower())
        try:
            yield _Exemption(network=ip_network(host, strict=False), port=port)
            continue
        except ValueError:
            pass
        below = host.removeprefix("*") if host != "*" else host
        yield _Exemption(below.strip("."), has_itself=not below.startswith("."), port=port)


def _split_port(entry: str) -> tuple[str, int | None]:
    """`name:8080` and `[::1]:8080`; an address of IPv6 without brackets has no port."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(\d{1,5}))?", entry)
    if bracketed:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    host, colon, port = entry.rpartition(":")
    if colon and ":" not in host and port.isdecimal() and len(port) <= 5:
        return host, int(port)
    return entry, None
