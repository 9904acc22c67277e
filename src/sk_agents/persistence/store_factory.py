"""From a store's URL to the store, unopened. A new back-end is one more row of `STORES`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sk_agents.config.class_loader import build_configured
from sk_agents.config.settings import Settings
from sk_agents.config.store_url import path_of
from sk_agents.engine.models import Durability
from sk_agents.engine.ports import Clock, Store
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.codec import RecordCodec

SOURCE = "The store's URL (TA_STORE, --store)"
OWN_SOURCE = "TA_STORE_MODULE, TA_STORE_CLASS"


@dataclass(frozen=True, slots=True)
class Kind:
    """`form` is the URL to show; a store that is kept somewhere takes a path, or the whole URL of a
    server, and a codec.

    `encrypting` is the module that encrypts a whole store; see `store_encryption`.
    """

    module: str
    class_name: str
    form: str
    has_path: bool = False
    is_server: bool = False
    has_password: bool = True
    encrypting: str | None = None


REDIS_GROUPS = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

STORES = {
    "memory": Kind("sk_agents.persistence.memory.store", "MemoryStore", "memory:"),
    "ephemeral": Kind("sk_agents.persistence.memory.store", "EphemeralStore", "ephemeral:"),
    "sqlite": Kind(
        "sk_agents.persistence.sqlite.store",
        "SqliteStore",
        "sqlite:///path",
        has_path=True,
        encrypting="sk_agents.persistence.sqlite.encrypting",
    ),
    "file": Kind(
        "sk_agents.persistence.file.store",
        "FileStore",
        "file:///dir",
        has_path=True,
        encrypting="sk_agents.persistence.file.encrypting",
    ),
    "postgresql": Kind(
        "sk_agents.persistence.postgres.store",
        "PostgresStore",
        "postgresql://user@host/database",
        is_server=True,
        encrypting="sk_agents.persistence.postgres.encrypting",
    ),
    **dict.fromkeys(
        # With TLS; by sentinels; a cluster.
        ("redis", "rediss", *REDIS_GROUPS),
        Kind(
            "sk_agents.persistence.redis.store",
            "RedisStore",
            "redis://host:6379/0",
            is_server=True,
            encrypting="sk_agents.persistence.redis.encrypting",
        ),
    ),
    "dynamodb": Kind(
        "sk_agents.persistence.dynamodb.store",
        "DynamoStore",
        "dynamodb://table?region=...",
        is_server=True,
        has_password=False,
        encrypting="sk_agents.persistence.dynamodb.encrypting",
    ),
}
SUPPORTED = ", ".join(dict.fromkeys(kind.form for kind in STORES.values()))

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    codec: RecordCodec | None = None,
    password_command: str | None = None,
) -> Store:
    """The store that `url` names; the caller enters it. `codec` is how it writes threads; a
    server's password may come from a command instead of the URL.

    Raises:
        ConfigurationError: the URL names no store we have, or not in its form. The message
            repeats no more of the URL than its scheme: the rest may hold a password.
    """
    scheme, path = place_of(url)
    kind = STORES[scheme]
    options = {} if codec is None else {"codec": codec}
    if kind.is_server and not kind.has_password:
        return _store_class(kind)(url, clock=clock, **options)
    if kind.is_server:
        return _store_class(kind)(url, clock=clock, password_command=password_command, **options)
    if path is not None:
        return _store_class(kind)(path, clock=clock, **options)
    return _store_class(kind)(clock=clock)


def own_store(settings: Settings) -> Store:
    """The operator's own, which `TA_STORE_MODULE` and `TA_STORE_CLASS` name; the caller enters it.

    Raises:
        ConfigurationError: it cannot be loaded or built, lacks a method of the port, or another
            setting asks for another store.
    """
    if settings.store is not None:
        raise ConfigurationError("TA_STORE and TA_STORE_MODULE are both set; choose one")
    if settings.encrypts:
        raise ConfigurationError(
            "TA_STORE_MODULE and TA_ENCRYPTION_KEYS are both set: a store of your own encrypts by "
            "itself"
        )
    module, name = settings.store_module or "", settings.store_class or ""
    store: Any = build_configured(module, name, object, settings, source=OWN_SOURCE)
    needed = (method for method, value in vars(Store).items() if inspect.isfunction(value))
    missing = [method for method in needed if not callable(getattr(store, method, None))]
    if not isinstance(getattr(store, "durability", None), Durability):
        missing.append("durability")
    if missing:
        raise ConfigurationError(f"{OWN_SOURCE}: '{name}' is no Store: it has no {missing[0]}")
    own: Store = store
    return own


def place_of(url: str) -> tuple[str, Path | None]:
    """The kind of store, and its path, if it has one. Raises ConfigurationError, as
    `open_store`."""
    scheme, rest = _split(url)
    kind = STORES[scheme]
    if kind.has_path:
        return scheme, _path(rest, kind)
    if rest.strip("/") and not kind.is_server:
        raise ConfigurationError(f"{SOURCE} must be just {kind.form}")
    return scheme, None


def check_exists(url: str) -> None:
    """For those who read a store: opening it would make an empty one where the path is mistyped,
    and then all that is found in it is well.

    Raises:
        ConfigurationError: nothing is kept at the URL's path; or as `open_store`.
    """
    path = place_of(url)[1]
    if path is not None and not (any(path.iterdir()) if path.is_dir() else path.exists()):
        raise ConfigurationError(f"{path}: there is no store here")


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
    """The path, taken literally: absolute, nothing is unescaped, links are followed.

    Three slashes or four mean the same, except in the root folder: where only three precede a name,
    the person may have meant a path from the current folder, which other programs write in this
    way.
    """
    if not rest.startswith("///"):
        raise ConfigurationError(
            f"{SOURCE} must be {kind.form}: three slashes, an absolute path, no host and no user"
        )
    if "?" in rest or "\0" in rest:
        raise ConfigurationError(f"{SOURCE} must be {kind.form}, without options")
    if not rest.strip("/"):
        raise ConfigurationError(f"{SOURCE} names no path; it must be {kind.form}")
    path = Path("/" + rest.lstrip("/"))
    if path.parent == Path("/") and not rest.startswith("////"):
        raise ConfigurationError(
            f"{SOURCE} names a place in the root folder, {path}: {kind.form} is absolute. For the "
            f"current folder write {kind.form.partition(':')[0]}://$PWD{path}, for the root "
            f"folder four slashes"
        )
    return path_of(rest)


def _store_class(kind: Kind) -> Callable[..., Store]:
    """Loaded when it is chosen: a store that is not in use costs no import of its libraries."""
    store_class: Callable[..., Store] = getattr(
        importlib.import_module(kind.module), kind.class_name
    )
    return store_class
