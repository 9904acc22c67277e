"""How the instances that share a store reach each other: by the store's URL, unless told."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from sk_agents.config.store_url import path_of
from sk_agents.engine.ports import Peers, Signals
from sk_agents.exceptions import ConfigurationError
from sk_agents.signals.host import HostPeers, HostSignals
from sk_agents.signals.local import LocalSignals
from sk_agents.signals.messages import MessagePeers, Messages, MessageSignals

REDIS = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
POSTGRES = "postgresql"
WAYS = ("local", "sqlite", "file", POSTGRES, *REDIS)


class InstanceLinks(NamedTuple):
    """Without `peers` the store is this process's alone, or each instance polls."""

    signals: Signals
    peers: Peers | None


@asynccontextmanager
async def open_exchange(
    url: str | None, *, password_command: str | None = None
) -> AsyncIterator[InstanceLinks]:
    """The way between instances that a store's URL, or `TA_SIGNALS`, stands for; `None` for a store
    of one process."""
    folder = peers_folder(url) if url is not None else None
    if url is not None and (opened := _messages(url, password_command)) is not None:
        async with opened as messages:
            yield InstanceLinks(MessageSignals(messages), MessagePeers(messages))
    elif folder is not None:
        async with HostPeers(folder) as peers:
            yield InstanceLinks(HostSignals(peers), peers)
    else:
        yield InstanceLinks(LocalSignals(), None)


def _messages(url: str, password_command: str | None) -> Messages | None:
    """Their module is loaded when it is used: the driver of a server is an extra."""
    scheme = url.partition(":")[0].lower()
    if scheme == POSTGRES:
        module = importlib.import_module("sk_agents.signals.postgres")
        by_database: Messages = module.PostgresMessages(url, password_command=password_command)
        return by_database
    if scheme in REDIS:
        by_redis: Messages = importlib.import_module("sk_agents.signals.redis").RedisMessages(url)
        return by_redis
    return None


def check_signals(url: str) -> str:
    """The URL, if `TA_SIGNALS` may be this one.

    Raises:
        ConfigurationError: there is no such way. The message repeats nothing of the URL.
    """
    if url.partition(":")[0].lower() not in WAYS:
        raise ConfigurationError(
            "TA_SIGNALS must be local: or a URL that begins with sqlite://, file://,"
            " postgresql://, redis://, rediss:// or the same with +sentinel or +cluster"
        )
    return url


def peers_folder(store_url: str) -> Path | None:
    """Where the processes of this host that share the store meet; `None` if it is no file."""
    scheme, _, rest = store_url.partition(":")
    path = path_of(rest)
    match scheme.lower():
        case "sqlite":
            return path.with_name(f"{path.name}-peers")
        case "file":
            return path / ".peers"
        case _:
            return None
