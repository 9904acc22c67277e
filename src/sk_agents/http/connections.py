"""What one client's connection may take, and the protocol class that holds it to that."""

from __future__ import annotations

import asyncio
import logging
import resource
from dataclasses import dataclass

import uvicorn

logger = logging.getLogger(__name__)

# Files, the store's connections, the model's and the tools'.
OTHER_FILES = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 10_000
    headers: int = 100
    # The request line and all headers together.
    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    # Requests sent ahead of their turn, and the bytes of each one's body.
    pipelined: int = 8
    pipelined_bytes: int = 64 * 1024
    # Whatever is being written: a client that does not take it for so long is cut off.
    write_seconds: float = 30.0


def affordable_connections(wanted: int) -> int:
    """As many of them as this process may have files open, after asking for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    return max(1, soft - OTHER_FILES)


def http_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol] | str:
    """What uvicorn is to be given as `http`: our connections, or its own if it is another uvicorn.

    With its own a server works too. Connections are then bounded by uvicorn's settings alone, and
    live text goes the way of all other frames.
    """
    try:
        # Built on parts of uvicorn that may not be there.
        from sk_agents.http import uvicorn_protocol  # noqa: PLC0415

        reason = uvicorn_protocol.unsupported()
    except ImportError as error:
        reason = str(error)
    if reason is None:
        return uvicorn_protocol.bounded_by(limits)
    logger.warning(
        "connections are uvicorn's own, without our limits: this version is not supported",
        extra={"uvicorn": uvicorn.__version__, "reason": reason},
    )
    return "auto"
