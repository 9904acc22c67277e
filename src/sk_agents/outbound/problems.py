"""Why a connection failed, in words that say what to do about it."""

from __future__ import annotations

import asyncio
import socket
import ssl

SET_AUTHORITY = "set SSL_CERT_FILE to a file that holds it"
_CERTIFICATE_REASONS = {
    # OpenSSL's numbers of what it finds wrong with a chain.
    10: "its certificate has expired",
    9: "its certificate is not valid yet",
    18: f"its certificate signed itself; if it is the right one, {SET_AUTHORITY}",
    19: f"an authority that is not trusted here signed its certificate; {SET_AUTHORITY}",
    20: f"an authority that is not known here signed its certificate; {SET_AUTHORITY}",
    21: f"it sends no intermediate certificate, or its authority is not known; {SET_AUTHORITY}",
    62: "its certificate is for another name",
    64: "its certificate is for another address",
}


class ProxyRefused(OSError):
    """The proxy did not let a connection through."""

    def __init__(self, proxy: str, status: int) -> None:
        super().__init__(f"the proxy {proxy} refused the connection with {status}")
        self.proxy = proxy
        self.status = status


class ProxyBroken(OSError):
    """The other end does not speak as a proxy does."""


def connection_problem(error: BaseException) -> str:
    """What is wrong, without anything the other end wrote."""
    error = cause_of(error)
    if isinstance(error, ProxyRefused):
        if error.status == 407:
            return (
                f"the proxy {error.proxy} wants a user and a password: "
                "put them into the proxy's URL, as http://user:password@host:port"
            )
        return str(error)
    if isinstance(error, ProxyBroken):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        number = error.verify_code
        return _CERTIFICATE_REASONS.get(number, f"its certificate: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return _tls_problem(error)
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused: nothing listens there"
    if isinstance(error, ConnectionError):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__


def cause_of(error: BaseException) -> BaseException:
    """The one that says most: libraries wrap what the system raised."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
            continue
        if isinstance(wrapped := getattr(error, "certificate_error", None), Exception):
            # aiohttp's looks like Python's own error, but says less.
            error = wrapped
            continue
        if isinstance(error, ssl.SSLError | socket.gaierror | ConnectionError | ProxyRefused):
            break
        inner = getattr(error, "os_error", None) or error.__cause__ or error.__context__
        if not isinstance(inner, BaseException) or isinstance(inner, asyncio.CancelledError):
            break
        error = inner
    return error


def is_lasting(error: BaseException) -> bool:
    """Trying again does not help: a certificate or a proxy's rule stands in the way."""
    error = cause_of(error)
    if isinstance(error, ProxyRefused):
        return error.status < 500
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and "CERTIFICATE" in (error.reason or "")
    )


def _tls_problem(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason:
        return "it wants a client certificate: set TA_CLIENT_CERT"
    if "HANDSHAKE_FAILURE" in reason:
        return "it refused the handshake; if it wants a client certificate, set TA_CLIENT_CERT"
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason:
        return "it does not speak TLS: is the address http, not https?"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return "it does not accept this server's client certificate"
    return f"TLS failed: {reason.replace('_', ' ').lower() or type(error).__name__}"
