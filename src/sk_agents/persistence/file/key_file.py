"""The key of one encrypted thread, wrapped, in a small file beside its log.

Apart from the log, so that it can be wrapped again without writing the log again. Who holds the
log's lock may replace it; a reader sees the old one or the new one, and both hold the same key.
"""

from __future__ import annotations

import base64
from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

import orjson

from sk_agents.engine.models import Thread
from sk_agents.exceptions import SchemaTooNew, StateCorrupt
from sk_agents.persistence.file.tree import FileTree, Place

if TYPE_CHECKING:
    from sk_agents.persistence.encryption import EncryptedThread, EncryptingCodec

KEY = "key.json"
FORMAT = 1


class ThreadKey:
    """`identity` is the thread, its incarnation and its user: all in plain text, and all sealed
    with every line of the log."""

    def __init__(self, identity: tuple[str, str, str], wrapped: bytes) -> None:
        self.identity = identity
        self.wrapped = wrapped

    @classmethod
    def read(cls, tree: FileTree, folder: Place) -> ThreadKey | None:
        """Raises StateCorrupt: it is no key; SchemaTooNew."""
        data = tree.read((*folder, KEY))
        if data is None:
            return None
        try:
            fields = orjson.loads(data)
            if fields["format"] > FORMAT:
                raise SchemaTooNew
            names = (fields["thread_id"], fields["incarnation"], fields["user_id"])
            return cls(names, base64.b64decode(fields["key"], validate=True))
        except (ValueError, KeyError, TypeError):
            raise StateCorrupt(f"A thread's key cannot be read: {'/'.join(folder)}") from None

    def encoded(self) -> bytes:
        thread_id, incarnation, user_id = self.identity
        fields = {
            "format": FORMAT,
            "thread_id": thread_id,
            "incarnation": incarnation,
            "user_id": user_id,
            "key": base64.b64encode(self.wrapped).decode(),
        }
        return orjson.dumps(fields) + b"\n"


class LineCipher:
    """Lines of one log, sealed and written as a JSON string: a log stays lines of JSON."""

    def __init__(self, thread: EncryptedThread) -> None:
        self._thread = thread

    @classmethod
    def of(cls, codec: EncryptingCodec, key: ThreadKey) -> LineCipher:
        """Raises StateCorrupt: the key was not wrapped for this thread, or by none of ours."""
        return cls(codec.known_thread(*key.identity, key.wrapped))

    def seal(self, place: str, payload: bytes) -> bytes:
        return b'"%b"' % b2a_base64(self._thread.seal(place, payload), newline=False)

    def opened(self, place: str, line: bytes) -> bytes:
        """Raises StateCorrupt: it was not sealed for this place, or is not sealed at all."""
        try:
            if line[:1] != b'"':
                raise StateCorrupt("A stored line is not encrypted.")
            return self._thread.opened(place, a2b_base64(line[1:-1], strict_mode=True))
        except ValueError:
            raise StateCorrupt("A stored line cannot be read.") from None


def new_thread_key(codec: EncryptingCodec, thread: Thread) -> tuple[ThreadKey, LineCipher]:
    """For a thread that is about to be made."""
    sealing = codec.for_new(thread)
    identity = (thread.thread_id, thread.incarnation, thread.user_id)
    return ThreadKey(identity, sealing.wrapped), LineCipher(sealing)
