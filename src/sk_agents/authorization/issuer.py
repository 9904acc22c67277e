"""A token issuer: its description and its public keys, fetched when needed and kept.

A key that is not known makes the keys be fetched again, at most once in `MIN_INTERVAL`: a token
that names a new key waits for that fetch, however many tokens name keys that do not exist. While
the issuer cannot be reached, known keys serve for `MAX_STALE`; after that no token is accepted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from sk_agents.exceptions import (
    AuthorizerUnavailable,
    ConfigurationError,
    TealError,
    Unauthenticated,
)
from sk_agents.outbound.aiohttp_options import request_options, request_problem
from sk_agents.outbound.network import Network

logger = logging.getLogger(__name__)

MIN_INTERVAL = 5.0
REFRESH_AFTER = 3600.0
MAX_STALE = 24 * 3600.0
FETCH_TIMEOUT = 5.0
MAX_DOCUMENT_BYTES = 1024 * 1024
MAX_KEYS = 100
# Tokens that may wait for the next fetch; the rest is refused at once.
MAX_WAITING = 1_000
_UNREADABLE = (TealError, OSError, ValueError, LookupError, TypeError)


class Issuer:
    """`configuration_url` leads to an OpenID Connect discovery document, of the issuer `expected`
    if that is known."""

    def __init__(
        self,
        configuration_url: str,
        *,
        expected: str | None = None,
        min_interval: float = MIN_INTERVAL,
        max_stale: float = MAX_STALE,
        now: Callable[[], float] = time.monotonic,
        network: Network | None = None,
    ) -> None:
        self.url = configuration_url
        self._network = network or Network()
        self._expected = expected
        self._min_interval = min_interval
        self._max_stale = max_stale
        self._now = now
        self._name = ""
        self._described: Mapping[str, Any] = {}
        # How far its clock is ahead of ours, as far as it says.
        self.clock_gap: float | None = None
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def name(self) -> str:
        """The `iss` that this issuer's tokens carry.

        Raises:
            AuthorizerUnavailable: it was never reached, or not for too long.
        """
        await self._be_fresh()
        return self._name

    async def key(self, key_id: str) -> PyJWK:
        """The public key of this id.

        Raises:
            Unauthenticated: the issuer has no such key.
            AuthorizerUnavailable: it was never reached, or not for too long.
        """
        await self._be_fresh()
        if key_id not in self._keys:
            await self._look_for(key_id)
        try:
            return self._keys[key_id]
        except KeyError:
            raise Unauthenticated("The token is signed with an unknown key.") from None

    async def address(self, name: str) -> str | None:
        """The address that the discovery document gives by this name, such as `token_endpoint`.

        Raises:
            AuthorizerUnavailable: it was never reached, or not for too long.
        """
        await self._be_fresh()
        address = self._described.get(name)
        try:
            check_url(str(address), name)
        except ConfigurationError:
            return None
        return str(address)

    async def read(self) -> None:
        """Fetch its description and keys now, whatever is known.

        Raises:
            AuthorizerUnavailable: with the reason.
        """
        try:
            await self._fetch()
        except (aiohttp.ClientError, *_UNREADABLE) as error:
            raise AuthorizerUnavailable(self._problem(error)) from error

    def key_types(self) -> list[str]:
        """The kind of each of its keys, such as `RSA`."""
        return [str(key.key_type) for key in self._keys.values()]

    async def ping(self) -> None:
        """Raises AuthorizerUnavailable: no usable keys are known."""
        await self._be_fresh()

    async def _be_fresh(self) -> None:
        age = self._age()
        if age < REFRESH_AFTER:
            return
        if self._now() >= self._tried_at + self._min_interval:
            self._begin_fetch()
        if age >= self._max_stale:
            if self._fetching is not None:
                await asyncio.shield(self._fetching)
            if self._age() >= self._max_stale:
                raise AuthorizerUnavailable("The token issuer cannot be reached.")

    async def _look_for(self, key_id: str) -> None:
        """Waits for a fetch that began after this call, unless an earlier one brings the key."""
        if self._waiting >= MAX_WAITING:
            return
        asked_at = self._now()
        self._waiting += 1
        try:
            while key_id not in self._keys and self._tried_at < asked_at:
                self._begin_fetch(self._tried_at + self._min_interval - self._now())
                assert self._fetching is not None
                await asyncio.shield(self._fetching)
        finally:
            self._waiting -= 1

    def _begin_fetch(self, pause: float = 0.0) -> None:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_after(pause))

    async def _fetch_after(self, pause: float) -> None:
        try:
            if pause > 0:
                await asyncio.sleep(pause)
            self._tried_at = self._now()
            await self._fetch()
        except (aiohttp.ClientError, *_UNREADABLE) as error:
            logger.warning(
                "the token issuer cannot be read",
                extra={"issuer": self.url, "error": self._problem(error)},
            )
        finally:
            self._fetching = None

    async def _fetch(self) -> None:
        timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            described = await self._document(session, self.url)
            keys_url = str(described["jwks_uri"])
            check_url(keys_url, "jwks_uri")
            published = await self._document(session, keys_url)
        if self._expected not in (None, described["issuer"]):
            raise ValueError(f"{self.url} describes another issuer")
        self._name = str(described["issuer"])
        self._described = described
        self._keys = dict(_usable_keys(published, self._name))
        self._fetched_at = self._now()

    async def _document(self, session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
        options = await request_options(self._network, url)
        async with session.get(url, allow_redirects=False, **options) as response:
            self.clock_gap = _clock_gap(response.headers.get("Date"))
            return await _read(response, url)

    def _problem(self, error: Exception) -> str:
        if isinstance(error, aiohttp.ClientError | OSError):
            return request_problem(error, self._network, self.url)
        return f"{type(error).__name__}: {error}"

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self._now() - self._fetched_at


def check_url(url: str, what: str) -> None:
    """Only https, or http on loopback.

    Raises:
        ConfigurationError: it is neither.
    """
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname:
        raise ConfigurationError(f"{what}: '{url}' is not an address of a token issuer")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ConfigurationError(f"{what}: '{url}' must begin with https://")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _clock_gap(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date or "").timestamp() - time.time()
    except ValueError:
        return None


async def _read(response: aiohttp.ClientResponse, url: str) -> Mapping[str, Any]:
    if response.status != 200:
        raise ValueError(f"{url} answered {response.status}")
    body = await response.content.read(MAX_DOCUMENT_BYTES + 1)
    while len(body) <= MAX_DOCUMENT_BYTES and (more := await response.content.read(65536)):
        body += more
    if len(body) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"{url} is larger than {MAX_DOCUMENT_BYTES} bytes")
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{url} is not an object")
    return document


def _usable_keys(published: Mapping[str, Any], issuer: str) -> list[tuple[str, PyJWK]]:
    """Those that sign: with an id, not for encryption, and of this issuer where they name one."""
    keys = []
    for entry in list(published["keys"])[:MAX_KEYS]:
        if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str):
            continue
        if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        if not _verifies(entry.get("key_ops")):
            continue
        if not _is_of(entry.get("issuer"), issuer):
            continue
        try:
            keys.append((entry["kid"], PyJWK(entry)))
        except PyJWTError:
            continue
    return keys


def _verifies(operations: object) -> bool:
    """What a key says that it is for. One that says it in another shape is not used, and the keys
    beside it are."""
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _is_of(named: object, issuer: str) -> bool:
    """Entra ID says with each key whose it is: a tenant's, or every tenant's as a template."""
    return named is None or named == issuer or (isinstance(named, str) and "{tenantid}" in named)
