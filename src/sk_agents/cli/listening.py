"""The address a server listens on, taken before anything else is opened."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

from sk_agents.cli.options import Exit

BACKLOG = 2048
UNSENT_BYTES = 128 * 1024
# Elsewhere the kernel gives all connections to the socket that was bound last.
SPREADS_CONNECTIONS = sys.platform == "linux"


class CannotListen(Exception):
    """Carries the exit code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything else is opened: a busy one must have no side effect.

    Raises:
        CannotListen: and why.
    """
    return _checked(host, port, is_shared=False)


class SharedAddress:
    """One address with a listening socket for each worker, among which the kernel spreads new
    connections by their hash.

    The sockets belong to the supervisor: what has connected to one of them waits for its next
    worker when its last one has died. On systems where the kernel does not spread connections, all
    workers share one socket.

    Raises:
        CannotListen: and why.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        if SPREADS_CONNECTIONS and port != 0:
            # Sockets that may be shared would also share it with another server of this user.
            listen(host, port).close()
        self._first: socket.socket | None = _checked(host, port, is_shared=SPREADS_CONNECTIONS)
        self.port: int = self._first.getsockname()[1]

    def open(self) -> socket.socket:
        """One more socket, for one more worker."""
        if not SPREADS_CONNECTIONS:
            assert self._first is not None
            return self._first.dup()
        first, self._first = self._first, None
        return first or _checked(self._host, self.port, is_shared=True)


def _checked(host: str, port: int, *, is_shared: bool) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _listener(family, address, is_shared=is_shared)
    except OSError as error:
        place = f"{host} port {port}"
        match error.errno:
            case errno.EADDRINUSE:
                code, reason = Exit.UNAVAILABLE, f"{place} is in use; --port 0 picks a free port"
            case errno.EACCES | errno.EPERM:
                code, reason = Exit.NOT_PERMITTED, f"not permitted to listen on {place}"
            case _:
                code = Exit.BAD_CONFIGURATION
                reason = f"TA_HOST: cannot listen on {place}: {error.strerror}"
        raise CannotListen(code, reason) from None


def _listener(family: int, address: tuple[Any, ...], *, is_shared: bool) -> socket.socket:
    # asyncio sends small packets without delay only if the socket names its protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # Connections inherit it. Without it the kernel keeps megabytes for a stuck client.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
