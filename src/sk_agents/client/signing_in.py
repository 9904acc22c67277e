"""The two ways in which a program on the user's computer signs in at an issuer.

With a browser on this computer: the authorization code with PKCE, which comes back to a port that
is open for that moment (RFC 8252). Without one: a code that the user types into a browser elsewhere
(RFC 8628).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from jwt.exceptions import PyJWTError

from sk_agents.client.errors import SignInFailed
from sk_agents.client.issuer_requests import (
    IssuerRefused,
    IssuerUnreachable,
    access_token,
    ask_issuer,
    check_address,
    expiry,
)
from sk_agents.client.stored_sign_in import SignInFile, StoredSignIn
from sk_agents.wire.views import SignInView

BROWSER_SECONDS = 600.0
CALLBACK = "/signed-in"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_SECONDS = 5.0
_GUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
MAX_HEAD_BYTES = 16 * 1024
REQUEST_SECONDS = 10.0
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>Teal</title></head><body><p>{text}</p></body></html>"""
_HEAD = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nContent-Security-Policy: default-src 'none'\r\n"
    "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
)
# Also for the icon that browsers ask for.
_NOTHING_HERE = _HEAD.format(status="404 Not Found", length=0).encode()

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DevicePrompt:
    """What the user has to do elsewhere."""

    address: str
    code: str
    whole_address: str | None


async def sign_in_by_browser(
    server: SignInFile, how: SignInView, open_browser: Callable[[str], Awaitable[None]]
) -> StoredSignIn:
    """`open_browser` leads the user to an address.

    Raises:
        SignInFailed: refused, or the user did not come back in time.
        ServerUnreachable: the issuer does not answer.
    """
    if how.authorization_endpoint is None or how.token_endpoint is None:
        raise SignInFailed("The sign-in service offers no sign-in by browser.")
    check_address(how.authorization_endpoint)
    verifier, state, nonce = (secrets.token_urlsafe(48) for _ in range(3))
    async with _Callback(how.loopback_host, state) as callback:
        query = {
            **how.parameters,
            "client_id": how.cli_client_id or "",
            "response_type": "code",
            "redirect_uri": callback.address,
            "scope": " ".join(how.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(how.authorization_endpoint).query else "?"
        await open_browser(f"{how.authorization_endpoint}{joint}{urlencode(query)}")
        try:
            async with asyncio.timeout(BROWSER_SECONDS):
                code = await callback.code(how.issuer)
        except TimeoutError:
            raise SignInFailed("The browser did not come back in time.") from None
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback.address,
            "code_verifier": verifier,
        }
        answer = await _ask(how, how.token_endpoint, form)
    _check_identity(answer, how, nonce)
    return _sign_in(server, how, answer)


async def sign_in_by_device(
    server: SignInFile, how: SignInView, show: Callable[[DevicePrompt], None]
) -> StoredSignIn:
    """`show` tells the user where to type which code.

    Raises:
        SignInFailed: refused, or the user took too long.
        ServerUnreachable: the issuer does not answer.
    """
    if how.device_authorization_endpoint is None or how.token_endpoint is None:
        raise SignInFailed("The sign-in service offers no device codes: sign in by browser.")
    begun = await _ask(how, how.device_authorization_endpoint, {"scope": " ".join(how.scopes)})
    try:
        prompt = DevicePrompt(
            str(begun["verification_uri"]),
            str(begun["user_code"]),
            begun.get("verification_uri_complete"),
        )
        form = {"grant_type": DEVICE_GRANT, "device_code": str(begun["device_code"])}
        pause, lifetime = float(begun.get("interval") or 5), float(begun["expires_in"])
    except (KeyError, TypeError, ValueError):
        raise SignInFailed("The sign-in service sent no usable device code.") from None
    show(prompt)
    try:
        async with asyncio.timeout(lifetime):
            while True:
                await asyncio.sleep(pause)
                try:
                    answer = await _ask(how, how.token_endpoint, form)
                except IssuerRefused as error:
                    if error.code == "slow_down":
                        pause += SLOWER_SECONDS
                    elif error.code != "authorization_pending":
                        raise
                except IssuerUnreachable:
                    pause += SLOWER_SECONDS
                else:
                    return _sign_in(server, how, answer)
    except TimeoutError:
        raise SignInFailed("The code has expired before it was used.") from None


async def give_back(sign_in: StoredSignIn) -> None:
    """Have the issuer forget the tokens, where it offers that (RFC 7009).

    Raises:
        SignInFailed, ServerUnreachable: it does not.
    """
    if sign_in.revocation_endpoint is not None:
        token = sign_in.refresh_token or sign_in.access_token
        form = {"client_id": sign_in.client_id, "token": token}
        await ask_issuer(sign_in.revocation_endpoint, form)


class _Callback:
    """A port on loopback that waits for the browser to come back with `state`."""

    def __init__(self, host: str, state: str) -> None:
        self._host = host
        self._state = state
        self._server: asyncio.Server | None = None
        self._found: asyncio.Future[dict[str, str]] | None = None
        self.address = ""

    async def __aenter__(self) -> _Callback:
        self._found = asyncio.get_running_loop().create_future()
        listener = socket.create_server(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=MAX_HEAD_BYTES)
        self.address = f"http://{self._host}:{listener.getsockname()[1]}{CALLBACK}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()

    async def code(self, issuer: str | None) -> str:
        """Raises SignInFailed: the issuer gave none, or it is another one."""
        assert self._found is not None
        found = await self._found
        if "iss" in found and not _is_issuer(found["iss"], issuer):
            raise SignInFailed("The browser came back from another issuer.")
        if "code" not in found:
            raise IssuerRefused(found.get("error", "no code"), found.get("error_description", ""))
        return found["code"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                line = (await reader.readline()).decode("latin-1").split(" ")
                while (await reader.readline()).strip():
                    pass
                query = _callback_query(line)
                # Every program and page on this computer can reach the port.
                is_ours = secrets.compare_digest(
                    query.get("state", "").encode(), self._state.encode()
                )
                writer.write(_answer(query) if is_ours else _NOTHING_HERE)
                await writer.drain()
            if is_ours and self._found is not None and not self._found.done():
                self._found.set_result(query)
        except (OSError, ValueError, TimeoutError):
            logger.debug("a request to the sign-in's own port could not be answered")
        finally:
            writer.close()


def _callback_query(line: list[str]) -> dict[str, str]:
    target = urlsplit(line[1] if len(line) == 3 and line[0] == "GET" else "")
    query = parse_qs(target.query) if target.path == CALLBACK else {}
    return {name: values[0] for name, values in query.items()}


def _answer(query: Mapping[str, str]) -> bytes:
    text = "You are signed in. You can close this window."
    if "code" not in query:
        text = f"You are not signed in: {query.get('error', 'no code')}."
    body = _PAGE.format(text=escape(text)).encode()
    return _HEAD.format(status="200 OK", length=len(body)).encode() + body


async def _ask(how: SignInView, url: str, form: Mapping[str, str]) -> dict[str, Any]:
    return await ask_issuer(url, {**how.parameters, "client_id": how.cli_client_id or "", **form})


def _sign_in(server: SignInFile, how: SignInView, answer: Mapping[str, Any]) -> StoredSignIn:
    return StoredSignIn(
        server=server.server,
        access_token=access_token(answer),
        expires_at=expiry(answer),
        refresh_token=answer.get("refresh_token"),
        client_id=how.cli_client_id or "",
        parameters=how.parameters,
        token_endpoint=how.token_endpoint,
        revocation_endpoint=how.revocation_endpoint,
    )


def _check_identity(answer: Mapping[str, Any], how: SignInView, nonce: str) -> None:
    """The issuer itself sent it over TLS, which stands for its signature; what it says must be
    meant for this program and this attempt."""
    if "openid" not in how.scopes:
        return
    try:
        claims = jwt.decode(
            str(answer.get("id_token")),
            options={"verify_signature": False, "verify_exp": True},
            leeway=300,
        )
    except PyJWTError as error:
        raise SignInFailed("The sign-in service sent no usable ID token.") from error
    audience = claims.get("aud")
    is_ours = how.cli_client_id in (audience if isinstance(audience, list) else [audience])
    if claims.get("nonce") != nonce or not is_ours or not _is_issuer(claims.get("iss"), how.issuer):
        raise SignInFailed("The answer of the sign-in service is not for this sign-in.")


def _is_issuer(name: object, issuer: str | None) -> bool:
    """Entra ID names the issuer of several directories by a pattern."""
    before, pattern, after = (issuer or "").partition("{tenantid}")
    if not pattern or not isinstance(name, str):
        return name == issuer
    return re.fullmatch(f"{re.escape(before)}{_GUID}{re.escape(after)}", name) is not None


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
