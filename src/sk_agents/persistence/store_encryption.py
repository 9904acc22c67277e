"""A store as a whole: encrypted once, or its threads' keys wrapped by another key.

Each kind of store does it in its own folder, in a module `encrypting` with these two functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.encryption import EncryptingCodec
from sk_agents.persistence.store_factory import STORES, place_of

# Is called with how many threads were looked at, and how many there are.
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many threads were changed, and the ids of those that are damaged and were left alone."""

    changed: int
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a database server is, and the command that prints its password, if there is one."""

    url: str
    password_command: str | None = None


class Encrypting(Protocol):
    """`place` is a path, or a `ServerPlace`. Both go on where a killed one stopped, and change
    nothing that is done already."""

    def encrypt(self, place: Any, codec: EncryptingCodec, told: Told) -> Outcome:
        """Encrypt every thread of a store that no process has open."""

    def rekey(self, place: Any, codec: EncryptingCodec, told: Told) -> Outcome:
        """Have the first of the codec's keys wrap every thread's, while servers use the store."""


def encrypt_store(
    url: str, codec: EncryptingCodec, told: Told, *, password_command: str | None = None
) -> Outcome:
    """Raises StoreBusy: a process has the store open; ConfigurationError, StoreError."""
    encrypting, place = _encrypting(url, password_command)
    return encrypting.encrypt(place, codec, told)


def rekey_store(
    url: str, codec: EncryptingCodec, told: Told, *, password_command: str | None = None
) -> Outcome:
    """Raises StoreNotEncrypted, WrongEncryptionKey; ConfigurationError, StoreError."""
    encrypting, place = _encrypting(url, password_command)
    return encrypting.rekey(place, codec, told)


def _encrypting(url: str, password_command: str | None) -> tuple[Encrypting, Path | ServerPlace]:
    scheme, path = place_of(url)
    kind = STORES[scheme]
    if kind.encrypting is None:
        raise ConfigurationError(f"A store {kind.form} cannot be encrypted")
    module: Encrypting = importlib.import_module(kind.encrypting)
    return module, path or ServerPlace(url, password_command)
