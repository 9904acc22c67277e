"""Files below one root, reached without ever following a symbolic link.

A place is the tuple of names that leads to it. Names that come from outside go through
`safe_name` first, so no place leads out of the root and no two names meet on a disk that folds
case.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sk_agents import exceptions as errors
from sk_agents.persistence.file.disk import FileDisk

Place = tuple[str, ...]

TEMPORARY = "tmp"
CHATS = "chats"
USERS = "users"
LOCK_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.0002
LONGEST_PAUSE_SECONDS = 0.02

_SAFE = re.compile(r"[a-z0-9_-]{1,64}")
# Without O_NONBLOCK a planted pipe would stop the reader for good.
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _OPEN
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_PLANTED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}


def safe_name(text: str) -> str:
    """The text itself if it can be a file's name everywhere, else a name made from its hash."""
    return text if _SAFE.fullmatch(text) else hashed_name(text)


def hashed_name(text: str) -> str:
    """A name that is no text's own."""
    return "~" + name_hash(text)


def name_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


def store_error(error: OSError) -> errors.TealError:
    """The operating system's error as ours."""
    said = f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
    if error.errno in _FULL:
        return errors.StoreFull(f"The store has no room; nothing was written: {said}")
    if error.errno in _FORBIDDEN:
        return errors.StoreReadOnly(f"The store cannot be written: {said}")
    if error.errno in _PLANTED:
        return errors.StateCorrupt(f"Something stands where the store keeps its own: {said}")
    return errors.StoreUnavailable(f"The store cannot be used: {said}")


@contextmanager
def locked(fd: int, mode: int, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the file's lock among all processes of the host. Raises StoreBusy: another process does
    not give it up."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            fcntl.flock(fd, mode | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise errors.StoreBusy(
                    "Another process holds a file of the store for too long."
                ) from None
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileTree:
    def __init__(self, root: Path, disk: FileDisk | None = None) -> None:
        self.root = root
        self._disk = disk or FileDisk()
        self._found: dict[Place, tuple[int, int]] = {}
        self._held: list[int] = []
        self._safe: set[Place] = set()

    def remember(self, places: Iterable[Place]) -> None:
        """These stay the same files and folders as long as the store is open."""
        self.forget()
        for place in places:
            # Held open: the number of a file that is gone may be given to its successor.
            fd = os.open(self.root.joinpath(*place), os.O_RDONLY | os.O_CLOEXEC)
            self._held.append(fd)
            held = os.fstat(fd)
            self._found[place] = (held.st_dev, held.st_ino)

    def forget(self) -> None:
        self._found.clear()
        while self._held:
            os.close(self._held.pop())

    def check(self) -> None:
        """Raises StoreBroken, naming what was removed or replaced under the open store."""
        for place, found in self._found.items():
            if self._identity(place) != found:
                raise gone(self.root.joinpath(*place))

    def make_durable(self, fd: int) -> None:
        """Raises CommitOutcomeUnknown: a refused sync leaves open what the disk holds, and a second
        one that succeeds says nothing about the bytes of the first."""
        try:
            self._disk.sync(fd)
        except OSError as error:
            raise errors.CommitOutcomeUnknown(
                f"The disk refused to sync: {error.strerror}. Restart to read what it kept."
            ) from error

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """One write; a short one means that the disk, or the file's limit, has no room."""
        if self._disk.write(fd, data, offset) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def cut(self, fd: int, size: int) -> None:
        self._disk.truncate(fd, size)

    @contextmanager
    def folder(self, place: Place, *, create: bool = False) -> Iterator[int]:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in place:
                if create:
                    self._make_folder(fd, name)
                inner = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def opened(self, place: Place, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Raises FileNotFoundError; StateCorrupt if it is not a plain file."""
        with self.folder(place[:-1]) as folder:
            fd = self._disk.open(place[-1], folder, flags | _OPEN)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise errors.StateCorrupt(f"Not a plain file: {'/'.join(place)}")
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def locked(
        self, place: Place, seconds: float = LOCK_SECONDS, *, shared: bool = False
    ) -> Iterator[None]:
        """Hold a lock file, made if need be; alone, or with all others that share it."""
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        with self.opened(place, os.O_RDWR | os.O_CREAT) as fd, locked(fd, mode, seconds):
            yield

    def stat(self, place: Place) -> os.stat_result | None:
        try:
            return os.lstat(self.root.joinpath(*place))
        except FileNotFoundError:
            return None

    def names(self, place: Place) -> list[str]:
        with self.folder(place) as folder:
            return os.listdir(folder)

    def read(self, place: Place) -> bytes | None:
        try:
            with self.opened(place) as fd, open(fd, "rb", closefd=False) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def write(self, place: Place, data: bytes, *, durable: bool = True) -> None:
        """Replace the file as a whole: a reader sees the old bytes or the new ones."""
        self.write_parts(place, (data,), durable=durable)

    def write_parts(self, place: Place, parts: Iterable[bytes], *, durable: bool = True) -> None:
        """`write` of a file that need not fit into memory."""
        name = new_temporary_name()
        with self.folder((TEMPORARY,)) as temporary, self.folder(place[:-1], create=True) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
                fd = self._disk.open(name, temporary, flags)
                try:
                    size = 0
                    for data in parts:
                        self.write_at(fd, data, size)
                        size += len(data)
                    if durable:
                        self.make_durable(fd)
                finally:
                    os.close(fd)
                self._disk.move(name, temporary, place[-1], folder)
            except (OSError, errors.CommitOutcomeUnknown):
                with suppress(FileNotFoundError):
                    self._disk.remove(name, temporary)
                raise

    def blank(self, place: Place) -> None:
        """Overwrite a file that is about to be removed, as far as the disk writes in place."""
        with suppress(FileNotFoundError), self.opened(place, os.O_WRONLY) as fd:
            self.write_at(fd, bytes(os.fstat(fd).st_size), 0)
            self.make_durable(fd)

    def sync_folder(self, place: Place) -> None:
        with self.folder(place) as folder:
            self.make_durable(folder)

    def remove(self, place: Place) -> None:
        with suppress(FileNotFoundError), self.folder(place[:-1]) as folder:
            self._disk.remove(place[-1], folder)

    def move_folder(self, old: Place, new: Place) -> None:
        """Atomic and durable. Raises FileExistsError if the new place is taken."""
        with self.folder(old[:-1]) as old_parent, self.folder(new[:-1], create=True) as new_parent:
            self._make_safe(new[:-1])
            try:
                self._disk.move(old[-1], old_parent, new[-1], new_parent)
            except (FileExistsError, NotADirectoryError) as error:
                raise FileExistsError(*error.args) from error
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    raise FileExistsError(*error.args) from error
                raise
            self.make_durable(new_parent)
            self.make_durable(old_parent)

    def remove_folder(self, place: Place) -> None:
        with suppress(FileNotFoundError), self.folder(place[:-1]) as parent:
            self._disk.remove_tree(place[-1], parent)

    def _make_folder(self, parent: int, name: str) -> None:
        try:
            self._disk.make_folder(name, parent)
        except FileExistsError:
            return
        self.make_durable(parent)

    def _make_safe(self, place: Place) -> None:
        """Sync the way to a folder, once: another process may have made it and not come so far."""
        if place not in self._safe:
            for depth in range(len(place)):
                self.sync_folder(place[:depth])
            self._safe.add(place)

    def _identity(self, place: Place) -> tuple[int, int] | None:
        try:
            found = os.stat(self.root.joinpath(*place))
        except OSError:
            return None
        return found.st_dev, found.st_ino


def thread_folders(tree: FileTree) -> Iterator[Place]:
    """Every folder in which a thread can lie. Raises FileNotFoundError: this is no store yet."""
    for name in tree.names((CHATS,)):
        yield (CHATS, name)
    for user in tree.names((USERS,)):
        with suppress(FileNotFoundError):
            for name in tree.names((USERS, user, CHATS)):
                yield (USERS, user, CHATS, name)


def new_temporary_name() -> str:
    return f"{secrets.token_hex(8)}.tmp"


def gone(path: Path) -> errors.StoreBroken:
    return errors.StoreBroken(
        f"{path} was removed or replaced: what is written now is lost; restart"
    )
