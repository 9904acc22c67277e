"""How the instances that share a store reach each other: by the store's URL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from sk_agents.engine.ports import Peers, Signals
from sk_agents.signals.host import HostPeers, HostSignals
from sk_agents.signals.local import LocalSignals


class Exchange(NamedTuple):
    """Without `peers` the store is this process's alone, or each instance polls."""

    signals: Signals
    peers: Peers | None


@asynccontextmanager
async def open_exchange(store_url: str | None) -> AsyncIterator[Exchange]:
    """The way between the instances of this store; `None` for a store of one process."""
    folder = peers_folder(store_url) if store_url is not None else None
    if folder is None:
        yield Exchange(LocalSignals(), None)
        return
    async with HostPeers(folder) as peers:
        yield Exchange(HostSignals(peers), peers)


def peers_folder(store_url: str) -> Path | None:
    """Where the processes of this host that share the store meet; `None` if it is no file."""
    scheme, _, rest = store_url.partition(":")
    path = Path("/" + rest.lstrip("/"))
    match scheme.lower():
        case "sqlite":
            return path.with_name(f"{path.name}-peers")
        case "file":
            return path / ".peers"
        case _:
            return None
