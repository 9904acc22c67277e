"""How a store turns heads and records into the bytes it keeps: as they are, or encrypted.

A store is given a `RecordCodec` and has all it writes of a thread go through the `ThreadCodec` that
comes with the thread's head. A new store needs

- `codec.for_new(thread)` when a commit makes a thread, `codec.decode_head(...)` when it reads one;
- `written.encode_head(thread)` for the bytes of a head;
- `written.seal_record(...)` for those of a record, and `decode_record(..., written=written)`;
- one small document beside the threads, `codec.marker`, checked before the store is used.

Checksums are over the bytes that are kept, so that damage is found without a key.
"""

from __future__ import annotations

from typing import Protocol

from sk_agents.engine.models import Thread
from sk_agents.exceptions import StoreEncrypted
from sk_agents.persistence.encoding import ThreadCodec, decode_head, encode_head

# What is encrypted begins so, and no JSON document does. The second byte counts formats; the id of
# the key that wraps the thread's key follows in a head.
SEALED = b"\xe7\x01"


class RecordCodec(Protocol):
    """How one store's threads are written."""

    def marker(self, found: bytes | None, *, is_empty: bool) -> bytes | None:
        """What the store must say of its encryption while this codec is in use.

        `found` is what it says now, `is_empty` that it has no thread. The store writes the answer,
        if it is another one, before it does anything else. No other process may write in between.

        Raises:
            StoreNotEncrypted, StoreEncrypted, WrongEncryptionKey: they do not fit; the store must
                not be touched.
        """

    def for_new(self, thread: Thread) -> ThreadCodec:
        """For a thread that is about to be made."""

    def decode_head(self, thread_id: str, stored: bytes, check: int) -> tuple[Thread, ThreadCodec]:
        """The head these bytes hold, and how the rest of its thread is written.

        Raises:
            StateCorrupt: they are not what was written for this thread.
            SchemaTooNew: a newer version wrote them.
        """


class PlainCodec:
    """Both: JSON as it is."""

    def marker(self, found: bytes | None, *, is_empty: bool) -> bytes | None:
        if found is not None:
            raise StoreEncrypted
        return None

    def for_new(self, thread: Thread) -> ThreadCodec:
        return self

    def decode_head(self, thread_id: str, stored: bytes, check: int) -> tuple[Thread, ThreadCodec]:
        return decode_head(thread_id, stored, check), self

    def encode_head(self, thread: Thread) -> bytes:
        return encode_head(thread)

    def seal_record(self, first_seq: int, commit_id: str, body: bytes) -> bytes:
        return body

    def open_record(self, first_seq: int, commit_id: str, stored: bytes) -> bytes:
        return stored


PLAIN = PlainCodec()
