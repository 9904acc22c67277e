"""A store as a whole: encrypted once, or its threads' keys wrapped by another key.

Each kind of store does it in its own folder, in a module `encrypting` with these two functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


class Encrypting(Protocol):
    """Both go on where a killed one stopped, and change nothing that is done already."""

    def encrypt(self, path: Path, codec: EncryptingCodec, told: Told) -> Outcome:
        """Encrypt every thread of a store that no process has open."""

    def rekey(self, path: Path, codec: EncryptingCodec, told: Told) -> Outcome:
        """Have the first of the codec's keys wrap every thread's, while servers use the store."""


def encrypt_store(url: str, codec: EncryptingCodec, told: Told) -> Outcome:
    """Raises StoreBusy: a process has the store open; ConfigurationError, StoreError."""
    encrypting, path = _encrypting(url)
    return encrypting.encrypt(path, codec, told)


def rekey_store(url: str, codec: EncryptingCodec, told: Told) -> Outcome:
    """Raises StoreNotEncrypted, WrongEncryptionKey; ConfigurationError, StoreError."""
    encrypting, path = _encrypting(url)
    return encrypting.rekey(path, codec, told)


def _encrypting(url: str) -> tuple[Encrypting, Path]:
    scheme, path = place_of(url)
    name = STORES[scheme].encrypting
    if path is None or name is None:
        raise ConfigurationError(f"A store {STORES[scheme].form} cannot be encrypted")
    module: Encrypting = importlib.import_module(name)
    return module, path
