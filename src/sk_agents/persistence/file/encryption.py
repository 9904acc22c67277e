"""Whether a store of files is encrypted, and with which keys: one small file says so.

It names every key that wraps a thread's key in this store. So a thread is made, and the keys that
are not in use any more are taken off the file, under one lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sk_agents.exceptions import ConfigurationError, StoreBroken, StoreEncrypted
from sk_agents.persistence.codec import PlainCodec
from sk_agents.persistence.file.index import INDEX
from sk_agents.persistence.file.tree import FileTree, Place, locked, thread_folders

if TYPE_CHECKING:
    from sk_agents.persistence.encryption import EncryptingCodec

MARKER: Place = ("encryption.json",)
# Shared by every process that has the store open; `teal encrypt` holds it alone.
IN_USE: Place = (INDEX, "in-use")
# Shared while a thread is made.
MAKING: Place = (INDEX, "making")


class FileEncryption:
    """`codec` is `None` for a store in plain text."""

    def __init__(self, tree: FileTree, codec: PlainCodec | EncryptingCodec) -> None:
        self._tree = tree
        self._either = codec
        self.codec = None if isinstance(codec, PlainCodec) else codec
        self._seen: bytes | None = None
        self._open = ExitStack()

    def check(self) -> None:
        """Raises what `RecordCodec.marker` does."""
        self._either.marker(self._tree.read(MARKER), is_empty=is_empty(self._tree))

    def open(self) -> None:
        """Keep others from encrypting the store until `close`, and have it say what it must.

        Raises:
            StoreBusy: it is being encrypted now.
            ConfigurationError: as `check`.
        """
        fd = self._open.enter_context(self._tree.opened(IN_USE, os.O_RDWR | os.O_CREAT))
        try:
            self._open.enter_context(locked(fd, fcntl.LOCK_SH))
            with self._tree.locked(MAKING):
                self.check()
                if self.codec is not None:
                    self._mark(self.codec)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._open.close()

    @contextmanager
    def making_threads(self) -> Iterator[None]:
        """While a thread is made: the key that wraps its key is one that the store names.

        Raises:
            StoreBroken: the store was encrypted with a key that this process does not have.
        """
        with self._tree.locked(MAKING, shared=True):
            if self._tree.read(MARKER) == self._seen:
                yield
                return
        try:
            if self.codec is None:
                raise StoreEncrypted
            with self._tree.locked(MAKING):
                self._mark(self.codec)
                yield
        except ConfigurationError as error:
            raise StoreBroken(str(error)) from error

    def _mark(self, codec: EncryptingCodec) -> None:
        found = self._tree.read(MARKER)
        empty = found is None and is_empty(self._tree)
        wanted = codec.marker(found, is_empty=empty)
        if wanted is not None and wanted != found:
            self._tree.write(MARKER, wanted)
            self._tree.sync_folder(())
        self._seen = wanted


def is_empty(tree: FileTree) -> bool:
    try:
        return next(thread_folders(tree), None) is None
    except FileNotFoundError:
        return True
