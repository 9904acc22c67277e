"""From a store's URL to the store, unopened. A new back-end is one more row of `STORES`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sk_agents.engine.ports import Clock, Store
from sk_agents.exceptions import ConfigurationError

SOURCE = "The store's URL (TA_STORE, --store)"


@dataclass(frozen=True, slots=True)
class Kind:
    """`form` is the URL to show; a store on this host takes a path, a server's the whole URL."""

    module: str
    class_name: str
    form: str
    has_path: bool = False
    is_server: bool = False


STORES = {
    "memory": Kind("sk_agents.persistence.memory.store", "MemoryStore", "memory:"),
    "ephemeral": Kind("sk_agents.persistence.memory.store", "EphemeralStore", "ephemeral:"),
    "sqlite": Kind(
        "sk_agents.persistence.sqlite.store", "SqliteStore", "sqlite:///path", has_path=True
    ),
    "file": Kind("sk_agents.persistence.file.store", "FileStore", "file:///dir", has_path=True),
    "postgresql": Kind(
        "sk_agents.persistence.postgres.store",
        "PostgresStore",
        "postgresql://user@host/database",
        is_server=True,
    ),
}
SUPPORTED = ", ".join(kind.form for kind in STORES.values())

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def open_store(
    url: str, *, clock: Clock | None = None, password_command: str | None = None
) -> Store:
    """The store that `url` names; the caller enters it. A server's password may come from a
    command instead of the URL.

    Raises:
        ConfigurationError: the URL names no store we have, or not in its form. The message
            repeats no more of the URL than its scheme: the rest may hold a password.
    """
    scheme, rest = _split(url)
    kind = STORES[scheme]
    if kind.has_path:
        path = _path(rest, kind)
        return _store_class(kind)(path, clock=clock)
    if kind.is_server:
        return _store_class(kind)(
            f"{scheme}:{rest}", clock=clock, password_command=password_command
        )
    if rest.strip("/"):
        raise ConfigurationError(f"{SOURCE} must be just {kind.form}")
    return _store_class(kind)(clock=clock)


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.match(url)
    if match is None:
        raise ConfigurationError(f"{SOURCE} has no scheme; supported: {SUPPORTED}")
    scheme, rest = match[1].lower(), url[match.end() :]
    if scheme in STORES:
        return scheme, rest
    # Without the slashes it need not be a scheme at all: `user:password`.
    shown = f" '{scheme}'" if rest.startswith("//") else ""
    raise ConfigurationError(f"{SOURCE} has an unknown scheme{shown}; supported: {SUPPORTED}")


def _path(rest: str, kind: Kind) -> Path:
    """The path, taken literally: nothing is unescaped, three slashes or four mean the same."""
    if not rest.startswith("///"):
        raise ConfigurationError(
            f"{SOURCE} must be {kind.form}: three slashes, an absolute path, no host and no user"
        )
    if "?" in rest or "\0" in rest:
        raise ConfigurationError(f"{SOURCE} must be {kind.form}, without options")
    if not rest.strip("/"):
        raise ConfigurationError(f"{SOURCE} names no path; it must be {kind.form}")
    return Path("/" + rest.lstrip("/"))


def _store_class(kind: Kind) -> Callable[..., Store]:
    """Loaded when it is chosen: a store that is not in use costs no import of its libraries."""
    store_class: Callable[..., Store] = getattr(
        importlib.import_module(kind.module), kind.class_name
    )
    return store_class
