"""A folder that tools may work in and cannot leave.

A path that was checked and then opened can lead elsewhere in between. So nothing is checked by
name: the kernel resolves the path under the folder's own descriptor and refuses to leave it.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError

_OPENAT2 = 437
_NO_OTHER_MOUNT, _NO_MAGIC_LINKS, _BENEATH = 0x01, 0x02, 0x08
_RESOLVE = _NO_OTHER_MOUNT | _NO_MAGIC_LINKS | _BENEATH
# Something was renamed at the same time, and the kernel does not know whether it mattered.
_ATTEMPTS = 64
_PAUSE_SECONDS = 0.0001

_libc = ctypes.CDLL(None, use_errno=True)

SharedBy = Literal["user", "thread", "everyone"]

MOST_PATH = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_REASONS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "leads through something that is not a folder",
    errno.EXDEV: "leads out of the workspace, which is not allowed",
    errno.ELOOP: "leads over a symbolic link that may not be followed",
    errno.EACCES: "may not be opened",
    errno.EPERM: "may not be changed",
    errno.EISDIR: "is a folder",
    errno.ENXIO: "is not a regular file",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENOSPC: "cannot be written: the disk is full",
    errno.EDQUOT: "cannot be written: the quota is used up",
    errno.EROFS: "cannot be written: the file system is read-only",
    errno.EAGAIN: "changes too fast; try again",
}


class FolderOpener:
    """`has_kernel_check` is found out at the first use; without it, no link is followed at all."""

    def __init__(self, *, has_kernel_check: bool | None = None) -> None:
        self._has_kernel_check = has_kernel_check

    def open(self, root: int, parts: Sequence[str], flags: int, mode: int = 0) -> int:
        """A new descriptor of what lies at `parts` beneath the open folder `root`.

        Raises:
            OSError: as `open`; EXDEV for what leads out, ELOOP for a link that is not followed.
        """
        if self._has_kernel_check is None:
            self._has_kernel_check = _works(root)
        flags |= os.O_CLOEXEC | os.O_NOCTTY
        if self._has_kernel_check:
            return _resolved(root, "/".join(parts) or ".", flags, mode)
        return _walked(root, parts, flags, mode)


def _works(root: int) -> bool:
    try:
        os.close(_resolved(root, ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0))
    except OSError as error:
        # Old kernels do not have it, some containers forbid it.
        if error.errno in {errno.ENOSYS, errno.EPERM}:
            return False
        raise
    return True


def _resolved(root: int, path: str, flags: int, mode: int) -> int:
    how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    for attempt in range(_ATTEMPTS):
        found = int(_libc.syscall(_OPENAT2, root, os.fsencode(path), how, len(how)))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            raise OSError(number, os.strerror(number))
        time.sleep(attempt * _PAUSE_SECONDS)
    raise OSError(errno.EAGAIN, "The folder changes too fast.")


def _walked(root: int, parts: Sequence[str], flags: int, mode: int) -> int:
    """One name after the other, each under the descriptor of the one before."""
    device = os.fstat(root).st_dev
    at = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    try:
        for part in parts[:-1]:
            step = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            following = os.open(part, step, dir_fd=at)
            os.close(at)
            at = following
            _same_device(at, device)
        found = os.open(parts[-1] if parts else ".", flags | os.O_NOFOLLOW, mode, dir_fd=at)
    finally:
        os.close(at)
    try:
        _same_device(found, device)
    except OSError:
        os.close(found)
        raise
    return found


def _same_device(descriptor: int, device: int) -> None:
    if os.fstat(descriptor).st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@dataclass(frozen=True, slots=True)
class Workspaces:
    """The folder an agent file names: for everyone, or with a part for each user or thread."""

    path: Path
    shared_by: SharedBy = "user"
    opener: FolderOpener = field(default_factory=FolderOpener)

    def folder(self, context: ToolContext) -> Path:
        """Where this call works; made if it is not there. Others cannot guess or spell its name."""
        match self.shared_by:
            case "everyone":
                folder = self.path
            case "user":
                folder = self.path / _name(context.user_id)
            case "thread":
                folder = self.path / _name(context.user_id, context.thread_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder.resolve()

    @contextmanager
    def opened(self, context: ToolContext) -> Iterator[Workspace]:
        root = os.open(self.folder(context), _FOLDER | os.O_CLOEXEC)
        try:
            yield Workspace(root, self.opener)
        finally:
            os.close(root)


@dataclass(frozen=True, slots=True)
class Workspace:
    """One open folder. All paths are relative to it; errors are for the model."""

    root: int
    opener: FolderOpener

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """The descriptor of a folder in it.

        Raises:
            ToolError: there is none, or it may not be opened.
        """
        with _told(path):
            found = self._folder(parts_of(path))
        try:
            yield found
        finally:
            os.close(found)

    @contextmanager
    def file(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file for reading, with what is known about it.

        Raises:
            ToolError: there is none, or it is something else.
        """
        with _told(path):
            # Without waiting for a writer, should it be a pipe.
            found = self.opener.open(self.root, _named(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            known = os.fstat(found)
            if not stat.S_ISREG(known.st_mode):
                raise ToolError(f"{ascii(path)} is {kind_of(known.st_mode)}, not a regular file.")
            yield found, known
        finally:
            os.close(found)

    def replace(self, path: str, content: bytes) -> bool:
        """Write a whole file, so that readers see the old one or the new one; True if it is new.

        It is never written in place: other names of the same file keep the old content.

        Raises:
            ToolError: it cannot be written.
        """
        *above, name = _named(path)
        with _told(path):
            parent = self._folder(above, create=True)
            try:
                old = stat_of(parent, name)
                if old is not None and not stat.S_ISREG(old.st_mode):
                    raise ToolError(f"{ascii(path)} is {kind_of(old.st_mode)}; not written.")
                mode = stat.S_IMODE(old.st_mode) & 0o777 if old is not None else None
                _write_beside(parent, name, content, mode)
                os.fsync(parent)
            finally:
                os.close(parent)
        return old is None

    def delete(self, path: str) -> str:
        """Remove one name, and say what it was: a file or a link, not what a link leads to.

        Raises:
            ToolError: there is none, or it is a folder or a device.
        """
        *above, name = _named(path)
        with _told(path):
            parent = self._folder(above)
            try:
                old = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if not (stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)):
                    raise ToolError(f"{ascii(path)} is {kind_of(old.st_mode)}; not deleted.")
                os.unlink(name, dir_fd=parent)
                os.fsync(parent)
            finally:
                os.close(parent)
        return kind_of(old.st_mode)

    def _folder(self, parts: Sequence[str], *, create: bool = False) -> int:
        try:
            return self.opener.open(self.root, parts, _FOLDER)
        except FileNotFoundError:
            if not create:
                raise
        at = self.opener.open(self.root, (), _FOLDER)
        for part in parts:
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
                following = self.opener.open(at, (part,), _FOLDER | os.O_NOFOLLOW)
            finally:
                os.close(at)
            at = following
        return at


def parts_of(path: str) -> tuple[str, ...]:
    """The names a path is made of.

    Raises:
        ToolError: it is absolute, leads upwards, or no file can be called that.
    """
    if len(path) > MOST_PATH:
        raise ToolError(f"The path is longer than {MOST_PATH} characters.")
    if _CONTROL.search(path):
        raise ToolError("The path holds control characters.")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:|\\\\", path):
        raise ToolError(
            f"{ascii(path)} is not allowed: give a path relative to the workspace, "
            "such as notes/today.txt."
        )
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in parts:
        raise ToolError(f"{ascii(path)} is not allowed: '..' cannot be used in a path.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolError("The path is not valid Unicode.") from None
    return parts


def kind_of(mode: int) -> str:
    match stat.S_IFMT(mode):
        case stat.S_IFREG:
            return "a file"
        case stat.S_IFDIR:
            return "a folder"
        case stat.S_IFLNK:
            return "a symbolic link"
        case stat.S_IFIFO:
            return "a pipe"
        case stat.S_IFSOCK:
            return "a socket"
        case _:
            return "a device"


def _named(path: str) -> tuple[str, ...]:
    parts = parts_of(path)
    if not parts:
        raise ToolError("The path names the workspace itself: give the path of a file in it.")
    return parts


def _name(*owner: str) -> str:
    return hashlib.sha256("\0".join(owner).encode()).hexdigest()[:32]


def stat_of(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write_beside(parent: int, name: str, content: bytes, mode: int | None) -> None:
    """Into a file of another name, which then takes the name."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644, dir_fd=parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What went wrong with this path, in words that a model can act on."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "cannot be used")
        raise ToolError(f"{ascii(path)} {reason}.") from None
