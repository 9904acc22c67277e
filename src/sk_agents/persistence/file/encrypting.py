"""A whole store of files encrypted, or its threads' keys wrapped by another one.

Both go on where a killed one stopped. A log is replaced as a whole by its encrypted form, after its
key was written; then what people could read beside it goes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from sk_agents import exceptions as errors
from sk_agents.persistence.encryption import EncryptingCodec, StoreMarker
from sk_agents.persistence.file.disk import FileDisk
from sk_agents.persistence.file.encryption import IN_USE, MAKING, MARKER, FileEncryption
from sk_agents.persistence.file.key_file import KEY, LineCipher, ThreadKey, new_thread_key
from sk_agents.persistence.file.lines import seal
from sk_agents.persistence.file.log import LOG, FileLog, line_place, named_thread
from sk_agents.persistence.file.projection import INTERACTIONS, FileProjection
from sk_agents.persistence.file.store import has_format
from sk_agents.persistence.file.tree import (
    TEMPORARY,
    FileTree,
    Place,
    locked,
    store_error,
    thread_folders,
)
from sk_agents.persistence.store_encryption import Outcome, Told

# How often threads are looked for that a server has wrapped with an old key after all.
PASSES = 5


def encrypt(
    path: Path, codec: EncryptingCodec, told: Told, disk: FileDisk | None = None
) -> Outcome:
    """See `Encrypting.encrypt`."""
    tree = _store(path, disk)
    try:
        with ExitStack() as stack:
            in_use = stack.enter_context(tree.opened(IN_USE, os.O_RDWR | os.O_CREAT))
            try:
                stack.enter_context(locked(in_use, fcntl.LOCK_EX, 0.0))
            except errors.StoreBusy:
                raise errors.StoreBusy(
                    f"{path}: a server has the store open; stop it first"
                ) from None
            return _encrypt(tree, codec, told)
    except OSError as error:
        raise store_error(error) from error


def rekey(path: Path, codec: EncryptingCodec, told: Told, disk: FileDisk | None = None) -> Outcome:
    """See `Encrypting.rekey`."""
    tree = _store(path, disk)
    encryption = FileEncryption(tree, codec)
    try:
        encryption.check()
        encryption.open()
        try:
            return _rekey(tree, codec, told)
        finally:
            encryption.close()
    except OSError as error:
        raise store_error(error) from error


def _store(path: Path, disk: FileDisk | None) -> FileTree:
    tree = FileTree(path, disk)
    if not path.is_dir() or not has_format(tree):
        raise errors.StoreUnavailable(f"{path}: there is no store here")
    return tree


def _encrypt(tree: FileTree, codec: EncryptingCodec, told: Told) -> Outcome:
    found = tree.read(MARKER)
    marker = None if found is None else StoreMarker.read(found).opened_with(codec.keys)
    if marker is not None and marker.state == "encrypted":
        return Outcome(0)
    _mark(tree, StoreMarker(keys=codec.keys.ids[:1], state="encrypting"))
    folders = list(thread_folders(tree))
    damaged: list[str] = []
    changed = 0
    for done, folder in enumerate(folders, 1):
        try:
            changed += _encrypt_thread(tree, folder, codec)
        except (errors.StateCorrupt, errors.SchemaTooNew, FileNotFoundError):
            damaged.append("/".join(folder))
        told(done, len(folders))
    for name in tree.names((TEMPORARY,)):  # what killed writers left, in plain text
        remove = tree.remove_folder if _is_folder(tree, name) else tree.remove
        remove((TEMPORARY, name))
    _mark(tree, StoreMarker(keys=codec.keys.ids[:1]))
    return Outcome(changed, tuple(damaged))


def _is_folder(tree: FileTree, name: str) -> bool:
    return tree.root.joinpath(TEMPORARY, name).is_dir()


def _encrypt_thread(tree: FileTree, folder: Place, codec: EncryptingCodec) -> bool:
    """False if the log is encrypted already. Raises StateCorrupt: nothing of it was changed."""
    thread_id = named_thread(tree, folder)
    if thread_id is None:
        raise errors.StateCorrupt
    sealed = FileLog(tree, thread_id, folder, codec)
    try:
        sealed.refresh()
        is_new = False
    except errors.StateCorrupt:
        _encrypt_log(tree, FileLog(tree, thread_id, folder), codec)
        sealed.refresh()
        is_new = True
    FileProjection(tree, encrypted=True).show(sealed)
    tree.remove_folder((*folder, INTERACTIONS))
    tree.sync_folder(folder)
    return is_new


def _encrypt_log(tree: FileTree, log: FileLog, codec: EncryptingCodec) -> None:
    log.refresh()
    key, cipher = new_thread_key(codec, log.head)
    tree.write((*log.folder, KEY), key.encoded())
    tree.sync_folder(log.folder)
    tree.write_parts((*log.folder, LOG), _sealed_lines(log, cipher))
    tree.sync_folder(log.folder)


def _sealed_lines(log: FileLog, cipher: LineCipher) -> Iterator[bytes]:
    offset = 0
    for first_seq, payload in log.payloads():
        place = line_place(log.thread_id, first_seq, offset, log.known.incarnation)
        line = seal(place, cipher.seal(place, payload))
        yield line
        offset += len(line)


def _rekey(tree: FileTree, codec: EncryptingCodec, told: Told) -> Outcome:
    changed = 0
    for _ in range(PASSES):
        outcome = _rewrap_threads(tree, codec, told)
        changed += outcome.changed
        if _drop_unused_keys(tree, codec, outcome.damaged):
            return Outcome(changed, outcome.damaged)
    raise errors.StoreBusy(
        f"{tree.root}: a server still wraps keys with another one; restart it with the new key as "
        "the first, and run this again"
    )


def _rewrap_threads(tree: FileTree, codec: EncryptingCodec, told: Told) -> Outcome:
    folders = list(thread_folders(tree))
    damaged: list[str] = []
    changed = 0
    for done, folder in enumerate(folders, 1):
        try:
            key = ThreadKey.read(tree, folder)
            if key is None:
                raise errors.StateCorrupt
            changed += FileLog(tree, key.identity[0], folder).rewrap_key(codec)
        except errors.StateCorrupt:
            damaged.append("/".join(folder))
        except (errors.ThreadNotFound, FileNotFoundError):
            pass  # deleted since
        told(done, len(folders))
    return Outcome(changed, tuple(damaged))


def _drop_unused_keys(tree: FileTree, codec: EncryptingCodec, damaged: tuple[str, ...]) -> bool:
    """Have the store name only the key that wraps now; False if others are still in use."""
    with tree.locked(MAKING):
        for folder in thread_folders(tree):
            if "/".join(folder) in damaged:
                continue
            key = ThreadKey.read(tree, folder)
            if key is not None and not codec.keys.wraps(key.wrapped):
                return False
        _mark(tree, StoreMarker(keys=codec.keys.ids[:1]))
    return True


def _mark(tree: FileTree, marker: StoreMarker) -> None:
    tree.write(MARKER, marker.encoded())
    tree.sync_folder(())
