"""Encryption at rest: AES-256-GCM, a key of its own for each thread, wrapped by the operator's.

A thread's key is made with the thread, lies wrapped beside its head and goes with it: what was
copied of a deleted thread's records cannot be read any more. Associated data binds the wrapped key
and the head to the thread, a record to thread, incarnation, user and place, so none of them opens
anywhere else.

Nonces are 96 random bits. A number from the place in the log would not do: a place is written a
second time, with other bytes, when a transaction was rolled back or a killed writer left a torn
line. Random ones are safe for 2^32 messages under one key (NIST SP 800-38D, 8.3). A thread's key
seals two for a commit, and a log has at most 2^32 events; an operator's key seals one for a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Sequence
from typing import Literal

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, ValidationError

from sk_agents.engine.models import Thread
from sk_agents.exceptions import (
    ConfigurationError,
    SchemaTooNew,
    StateCorrupt,
    StoreNotEncrypted,
    StoreUnavailable,
    WrongEncryptionKey,
)
from sk_agents.persistence.codec import SEALED
from sk_agents.persistence.encoding import ThreadCodec, encode_head, head_checksum, head_from

KEY_BYTES = 32
FORMAT = 1

_NONCE = 12
_ID = 8
_WRAPPED = _ID + _NONCE + KEY_BYTES + 16
# A word typed in, or a key of zeros, has fewer different bytes than 32 random ones ever have.
_LEAST_DIFFERENT_BYTES = 12


def new_key() -> str:
    """A key as an operator keeps it."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode().rstrip("=")


def read_keys(text: str, source: str) -> Keyring:
    """The keys in a variable, a file or a command's output: one a line, or with commas between.

    Raises:
        ConfigurationError: one of them is no key. The message repeats none.
    """
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = [word for line in lines for word in re.split(r"[,\s]+", line) if word]
    if not words:
        raise ConfigurationError(f"{source}: there is no key in it")
    keys = [_key(word, f"{source}, key {number}") for number, word in enumerate(words, 1)]
    if len(set(keys)) < len(keys):
        raise ConfigurationError(f"{source}: a key is given twice")
    return Keyring(keys)


def _key(word: str, source: str) -> bytes:
    try:
        if re.fullmatch(r"[0-9a-fA-F]{64}", word):
            key = bytes.fromhex(word)
        else:
            padded = word.rstrip("=") + "=" * (-len(word.rstrip("=")) % 4)
            key = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{source}: must be 32 random bytes, as base64 or 64 hexadecimal digits; "
            "`teal encryption-key` makes one"
        )
    if len(set(key)) < _LEAST_DIFFERENT_BYTES:
        raise ConfigurationError(f"{source}: is not random; `teal encryption-key` makes one")
    return key


class Keyring:
    """The operator's keys. The first one wraps, each of them unwraps."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._first = next(iter(self._ciphers))

    @property
    def ids(self) -> list[str]:
        """The first is that of the key that wraps. An id says nothing about its key."""
        return [key_id.hex() for key_id in self._ciphers]

    def wrap(self, thread_id: str, key: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._ciphers[self._first].encrypt(nonce, key, _bound("key", thread_id))
        return self._first + nonce + sealed

    def unwrap(self, thread_id: str, wrapped: bytes) -> bytes:
        """Raises StateCorrupt: it is not this thread's key, or wrapped by one we do not have."""
        cipher = self._ciphers.get(wrapped[:_ID])
        if cipher is None:
            raise StateCorrupt(
                f"A thread's key was wrapped by the key {wrapped[:_ID].hex()}, which is not among "
                "the encryption keys.",
                thread_id=thread_id,
            )
        return _opened(cipher, _bound("key", thread_id), wrapped[_ID:], thread_id)

    def wraps(self, wrapped: bytes) -> bool:
        """Whether the first of our keys wrapped it."""
        return wrapped[:_ID] == self._first

    def rewrapped(self, thread_id: str, wrapped: bytes) -> bytes | None:
        """The same key under the first of ours; `None` if it is already. Raises as `unwrap`."""
        if self.wraps(wrapped):
            return None
        return self.wrap(thread_id, self.unwrap(thread_id, wrapped))


class EncryptedThread:
    """What one thread's head and records are sealed with. Implements `ThreadCodec`."""

    __slots__ = ("_bound_to", "_cipher", "_head_bound_to", "_thread_id", "wrapped")

    def __init__(self, cipher: AESGCM, wrapped: bytes, identity: tuple[str, str, str]) -> None:
        """`identity` is the thread, its incarnation and its user."""
        self._cipher = cipher
        self._thread_id = identity[0]
        self._bound_to = _bound("record", *identity)
        self._head_bound_to = _bound("head", self._thread_id)
        self.wrapped = wrapped

    def encode_head(self, thread: Thread) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, encode_head(thread), self._head_bound_to)
        return b"".join((SEALED, self.wrapped, nonce, sealed))

    def seal_record(self, first_seq: int, commit_id: str, body: bytes) -> bytes:
        return self.seal(f"{first_seq} {commit_id}", body)

    def open_record(self, first_seq: int, commit_id: str, stored: bytes) -> bytes:
        return self.opened(f"{first_seq} {commit_id}", stored)

    def seal(self, place: str, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(
            nonce, body, self._bound_to + place.encode(errors="surrogatepass")
        )
        return b"".join((SEALED, nonce, sealed))

    def opened(self, place: str, stored: bytes) -> bytes:
        """Raises StateCorrupt: it was not sealed for this place, or is not sealed at all."""
        sealed = _without_mark(stored, self._thread_id)
        return _opened(
            self._cipher,
            self._bound_to + place.encode(errors="surrogatepass"),
            sealed,
            self._thread_id,
        )


class EncryptingCodec:
    """Implements `RecordCodec`: everything is sealed, and what is not sealed is refused."""

    def __init__(self, keys: Keyring) -> None:
        self.keys = keys

    def marker(self, found: bytes | None, *, is_empty: bool) -> bytes | None:
        if found is None:
            if not is_empty:
                raise StoreNotEncrypted
            return StoreMarker(keys=self.keys.ids[:1]).encoded()
        marker = StoreMarker.read(found)
        if marker.state == "encrypting":
            raise StoreNotEncrypted("`teal encrypt` was interrupted here; run it again to its end.")
        return marker.opened_with(self.keys).encoded()

    def for_new(self, thread: Thread) -> EncryptedThread:
        return self.new_thread(thread.thread_id, thread.incarnation, thread.user_id)

    def new_thread(self, thread_id: str, incarnation: str, user_id: str) -> EncryptedThread:
        key = os.urandom(KEY_BYTES)
        wrapped = self.keys.wrap(thread_id, key)
        return EncryptedThread(AESGCM(key), wrapped, (thread_id, incarnation, user_id))

    def known_thread(
        self, thread_id: str, incarnation: str, user_id: str, wrapped: bytes
    ) -> EncryptedThread:
        """Raises StateCorrupt: the key is not this thread's."""
        cipher = AESGCM(self.keys.unwrap(thread_id, wrapped))
        return EncryptedThread(cipher, wrapped, (thread_id, incarnation, user_id))

    def decode_head(self, thread_id: str, stored: bytes, check: int) -> tuple[Thread, ThreadCodec]:
        if head_checksum(thread_id, stored) != check:
            raise StateCorrupt("A stored head does not match its checksum.", thread_id=thread_id)
        sealed = _without_mark(stored, thread_id)
        wrapped = sealed[:_WRAPPED]
        cipher = AESGCM(self.keys.unwrap(thread_id, wrapped))
        body = _opened(cipher, _bound("head", thread_id), sealed[_WRAPPED:], thread_id)
        head = head_from(thread_id, orjson.loads(body))
        identity = (thread_id, head.incarnation, head.user_id)
        return head, EncryptedThread(cipher, wrapped, identity)

    def rewrapped_head(self, thread_id: str, stored: bytes) -> bytes | None:
        """The same head, its thread's key under the first of our keys; `None` if it is already.
        Raises StateCorrupt."""
        sealed = _without_mark(stored, thread_id)
        wrapped = self.keys.rewrapped(thread_id, sealed[:_WRAPPED])
        return None if wrapped is None else b"".join((SEALED, wrapped, sealed[_WRAPPED:]))


class StoreMarker(BaseModel):
    """What an encrypted store says of itself: the ids of all keys that wrap a key in it."""

    format: int = FORMAT
    keys: list[str]
    state: Literal["encrypted", "encrypting"] = "encrypted"

    @classmethod
    def read(cls, found: bytes) -> StoreMarker:
        try:
            marker = cls.model_validate_json(found)
        except ValidationError:
            raise StoreUnavailable("What the store says of its encryption is damaged.") from None
        if marker.format > FORMAT:
            raise SchemaTooNew
        return marker

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()

    def opened_with(self, keys: Keyring) -> StoreMarker:
        """With the key that will wrap. Raises WrongEncryptionKey: one in use is missing."""
        missing = [key_id for key_id in self.keys if key_id not in keys.ids]
        if missing:
            raise WrongEncryptionKey(
                "The store was encrypted with a key that is not among the encryption keys: "
                f"missing {', '.join(missing)}, given {', '.join(keys.ids)}. Nothing was changed."
            )
        return self.model_copy(update={"keys": sorted({*self.keys, keys.ids[0]})})


def is_sealed(stored: bytes) -> bool:
    return stored[:1] == SEALED[:1]


def _without_mark(stored: bytes, thread_id: str) -> bytes:
    if not is_sealed(stored):
        raise StateCorrupt("A stored record is not encrypted.", thread_id=thread_id)
    if stored[: len(SEALED)] != SEALED:
        raise SchemaTooNew(thread_id=thread_id)
    return stored[len(SEALED) :]


def _opened(cipher: AESGCM, bound_to: bytes, sealed: bytes, thread_id: str) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], bound_to)
    except (InvalidTag, ValueError):
        raise StateCorrupt(
            "A stored record was changed, or is not of this place.", thread_id=thread_id
        ) from None


def _bound(*names: str) -> bytes:
    """Different for different names, whatever is in them."""
    return "".join(f"{len(name)}:{name}" for name in names).encode(errors="surrogatepass")


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"teal key id\n" + key).digest()[:_ID]
