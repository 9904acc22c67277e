"""Requests to a token issuer: for tokens, for codes, and to take tokens back."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from sk_agents.client.errors import ServerUnreachable, SignInFailed

TIMEOUT_SECONDS = 30.0
# Of issuers that do not say how long a token lives.
USUAL_SECONDS = 300.0
MAX_ANSWER_BYTES = 256 * 1024


class IssuerRefused(SignInFailed):
    """The issuer answered with this OAuth error (RFC 6749, 5.2)."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"The sign-in service refused: {code}: {description}".rstrip(": "))
        self.code = code


class IssuerUnreachable(ServerUnreachable):
    """The token issuer cannot be reached, or cannot serve now."""


async def ask_issuer(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The answer to a form.

    Raises:
        IssuerRefused: with an OAuth error.
        SignInFailed: the address is not safe, or the answer makes no sense.
        IssuerUnreachable: no answer in time.
    """
    check_address(url)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        # The environment's proxies and certificates are the user's.
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(url, data=dict(form), allow_redirects=False) as response,
        ):
            body = await response.content.read(MAX_ANSWER_BYTES)
            while more := await response.content.read(65536):
                body += more
                if len(body) > MAX_ANSWER_BYTES:
                    raise SignInFailed("The sign-in service sent too much.")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise IssuerUnreachable(f"The sign-in service cannot be reached: {reason}") from error
    if response.status >= 500 or response.status == 429:
        raise IssuerUnreachable(f"The sign-in service answers {response.status}.")
    answer = _document(body)
    if response.status == 200:
        return answer
    code = answer.get("error")
    if not isinstance(code, str):
        raise SignInFailed(f"The sign-in service answers {response.status}.")
    raise IssuerRefused(code, str(answer.get("error_description") or ""))


def access_token(answer: Mapping[str, Any]) -> str:
    """Raises SignInFailed: there is none in the answer."""
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise SignInFailed("The sign-in service sent no access token.")
    return token


def expiry(answer: Mapping[str, Any]) -> float:
    seconds = answer.get("expires_in")
    # Some issuers send a text.
    try:
        return time.time() + float(seconds if seconds is not None else USUAL_SECONDS)
    except (TypeError, ValueError):
        return time.time() + USUAL_SECONDS


def check_address(url: str) -> None:
    """Only https, or http on loopback.

    Raises:
        SignInFailed: it is neither.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise SignInFailed(f"The server names a sign-in service that is not safe: {url}")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise SignInFailed("The sign-in service sent what is no JSON object.")
    return document
