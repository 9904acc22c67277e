"""A folder that tools may work in and cannot leave."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.beneath import Opener

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


@dataclass(frozen=True, slots=True)
class Workspaces:
    """The folder an agent file names: for everyone, or with a part for each user or thread."""

    path: Path
    shared_by: SharedBy = "user"
    opener: Opener = field(default_factory=Opener)

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
    """One open folder. All paths are relative to it; every error is told to the model."""

    root: int
    opener: Opener

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
                old = _present(parent, name)
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


def _present(parent: int, name: str) -> os.stat_result | None:
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
