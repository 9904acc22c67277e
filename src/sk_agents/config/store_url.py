"""Which store the settings ask for, as a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.private_files import data_folder

BARE_REDIS = "redis:"

# Our own persistence classes, by module and class, and the URL that means the same.
OWN_CLASSES = {
    (
        "sk_agents.persistence.in_memory_persistence_manager",
        "InMemoryPersistenceManager",
    ): "memory:",
}


def store_url(settings: Settings, environ: Mapping[str, str] = os.environ) -> str:
    """The store's URL: `TA_STORE`, else the one a named class of ours stands for, else the Redis
    that `TA_REDIS_HOST` names, else SQLite.

    Raises:
        ConfigurationError: `TA_STORE` and `TA_PERSISTENCE_*` name different stores.
    """
    named = own_class_url(settings)
    if settings.store is None:
        if named is None and settings.redis_host is not None and not settings.persistence_module:
            return completed_url(BARE_REDIS, settings)
        return named or default_store_url(environ)
    if named is not None and settings.store.rstrip("/") != named:
        raise ConfigurationError(
            f"TA_STORE and TA_PERSISTENCE_CLASS name different stores: "
            f"{settings.persistence_class} is {named}"
        )
    return completed_url(settings.store, settings)


def completed_url(url: str, settings: Settings) -> str:
    """The URL of a Redis with what the settings say of it and the URL does not: the server, for a
    bare `redis:`; the password; how long conversations are kept. Others as they are.

    Raises:
        ConfigurationError: a bare `redis:`, and `TA_REDIS_HOST` is not set.
    """
    scheme, _, rest = url.partition(":")
    if scheme.lower().partition("+")[0] not in ("redis", "rediss"):
        return url
    if not rest.strip("/"):
        url = _redis_url(settings)
    parts = urlsplit(url)
    place, query = parts.netloc, dict(parse_qsl(parts.query, keep_blank_values=True))
    who, at, hosts = place.rpartition("@")
    if settings.redis_pwd is not None and ":" not in who:
        place = f"{who}:{quote(settings.redis_pwd.get_secret_value(), safe='')}@{hosts}"
    if settings.redis_ttl is not None:
        query.setdefault("ttl", str(settings.redis_ttl))
    return parts._replace(netloc=place, query=urlencode(query)).geturl()


def _redis_url(settings: Settings) -> str:
    if settings.redis_host is None:
        raise ConfigurationError("the URL redis: names no server, and TA_REDIS_HOST is not set")
    host = f"[{settings.redis_host}]" if ":" in settings.redis_host else settings.redis_host
    scheme = "rediss" if settings.redis_ssl else "redis"
    return f"{scheme}://{host}:{settings.redis_port}/{settings.redis_db}"


def path_of(rest: str) -> Path:
    """The path that the URL of a file or a folder names behind its scheme, and what a link there
    leads to: SQLite's own files lie beside the database, not beside the link."""
    return Path(os.path.realpath("/" + rest.lstrip("/")))


def own_class_url(settings: Settings) -> str | None:
    """The URL of the class named by `TA_PERSISTENCE_*` if it is one of ours."""
    module = settings.persistence_module
    if module is None or settings.persistence_class is None:
        return None
    if module.endswith(".py"):
        parts = Path(module).with_suffix("").parts
        start = max((i for i, part in enumerate(parts) if part == "sk_agents"), default=0)
        module = ".".join(parts[start:])
    return OWN_CLASSES.get((module, settings.persistence_class))


def default_store_url(environ: Mapping[str, str]) -> str:
    try:
        return f"sqlite://{data_folder(environ) / 'teal-agents' / 'teal.sqlite'}"
    except ConfigurationError as error:
        raise ConfigurationError(f"TA_STORE is not set, and {error}") from None


def store_name(settings: Settings) -> str:
    """The store as it may be shown: its URL without secrets, or the operator's own class."""
    if settings.store_module is not None:
        return f"{settings.store_class} of {settings.store_module}"
    return without_secrets(store_url(settings))


def without_secrets(url: str) -> str:
    """The URL as it may be shown: no password, no query."""
    parts = urlsplit(url)
    if not parts.netloc:
        return url.partition("?")[0]
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}"
