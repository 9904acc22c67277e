"""Signed statements of how far the server's log had come, for an operator to keep elsewhere.

Before one is signed, the server's log takes in the chains of all threads that have changed. So one
line of 300 bytes stands for everything that the store held at that moment.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import ConfigurationError, InvalidInput
from sk_agents.private_files import open_private
from sk_agents.wire.views import Checkpoint

_CONTEXT = b"teal audit checkpoint 1\n"
_PEM = serialization.Encoding.PEM
PUBLIC_SUFFIX = ".pub"


class Signer:
    """Signs with the private key of a file."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = Verifier(key.public_key())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises ConfigurationError: there is no such key in it."""
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise ConfigurationError(f"TA_AUDIT_KEY_FILE: {path}: {error.strerror}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationError(
                f"TA_AUDIT_KEY_FILE: {path}: holds no Ed25519 private key without a password; "
                "`teal audit key` makes one"
            )
        return cls(key)

    def signed(self, checkpoint: Checkpoint) -> Checkpoint:
        named = checkpoint.model_copy(update={"key_id": self.public.key_id, "signature": ""})
        signature = self._key.sign(_statement(named)).hex()
        return named.model_copy(update={"signature": signature})


class Verifier:
    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.key_id = hashlib.sha256(raw).hexdigest()[:16]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises ConfigurationError: there is no such key in it."""
        try:
            key = serialization.load_pem_public_key(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from error
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigurationError(f"{path}: holds no Ed25519 public key")
        return cls(key)

    def verifies(self, checkpoint: Checkpoint) -> bool:
        try:
            signature = bytes.fromhex(checkpoint.signature)
            unsigned = checkpoint.model_copy(update={"signature": ""})
            self._key.verify(signature, _statement(unsigned))
        except (InvalidSignature, ValueError):
            return False
        return checkpoint.key_id == self.key_id


def make_keys(path: Path) -> Verifier:
    """Write a new private key to the path, for this user alone, and its public key beside it.

    Raises:
        ConfigurationError: one of the files exists, or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public_path = path.with_name(path.name + PUBLIC_SUFFIX)
    made: list[Path] = []
    for place, content in ((path, private), (public_path, public)):
        try:
            with open(place, "xb", opener=open_private) as file:
                made.append(place)
                file.write(content)
        except OSError as error:
            # Half of a pair would be in the way of the next one.
            for half in made:
                half.unlink(missing_ok=True)
            raise ConfigurationError(f"{place}: {error.strerror}") from error
    return Verifier(key.public_key())


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Those of a file, one a line.

    Raises:
        ConfigurationError: it cannot be read, or a line is no checkpoint.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise ConfigurationError(f"{path}: {reason}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(Checkpoint.model_validate_json(line))
            except ValidationError:
                raise ConfigurationError(f"{path}: line {number} is no checkpoint") from None
    return found


def _statement(checkpoint: Checkpoint) -> bytes:
    try:
        return _CONTEXT + canonical_json(checkpoint.model_dump(exclude={"signature"}))
    except InvalidInput as error:
        raise ValueError(str(error)) from error
