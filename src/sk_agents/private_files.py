"""Files and folders that only the server's own user may read: they hold what people said.

Used wherever this package writes a file of its own.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def data_folder(environ: Mapping[str, str]) -> Path:
    """The user's data folder by the XDG rules, which ignore a relative path.

    Raises:
        ConfigurationError: the user has no home.
    """
    named = Path(environ.get("XDG_DATA_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path(environ["HOME"] if environ.get("HOME") else Path.home()) / ".local" / "share"
    except RuntimeError:
        raise ConfigurationError("there is no home folder to keep files in") from None


def make_private_folder(path: Path) -> None:
    """The folder and those above it that are missing, durable and for this user alone.

    Raises:
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    make_private_folder(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)
    sync_folder(path.parent)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def make_private_file(path: Path) -> None:
    """An empty file for this user alone, unless there is one; that one stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def open_private(name: str, flags: int) -> int:
    """An `opener` for `open`: a file that it makes is for this user alone."""
    return os.open(name, flags | os.O_CLOEXEC, FILE_MODE)


def replace_private(path: Path, content: bytes) -> None:
    """The file with this content, durable and for this user alone; readers see the old or the new.

    Two at the same time must be kept apart by a lock of their own.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    with open(new, "wb", opener=open_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def close_to_others(path: Path) -> None:
    """Take a file away from all other users of the host.

    A file that others may not read stays as it is: an operator may have given it to a group.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IRWXO:
            path.chmod(FILE_MODE)
            logger.info("a file was readable by other users", extra={"file": str(path)})
    except FileNotFoundError:
        pass
    except PermissionError:
        logger.warning("a file is readable by other users", extra={"file": str(path)})


def file_stamp(path: Path) -> tuple[int, ...]:
    """Is another one once the file was replaced, written or given other modes.

    Raises:
        OSError: the file is not there, or cannot be looked at.
    """
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def changeable_by_others(path: Path) -> Path | None:
    """What of a file and the folders above it every user of the host can change.

    In a folder like `/tmp` others can add files, and cannot replace this one.

    Raises:
        OSError: the file is not there, or cannot be looked at.
    """
    for part in (path, *path.parents):
        mode = part.stat().st_mode
        is_shared_folder = part != path and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not is_shared_folder:
            return part
    return None


def sync_folder(path: Path) -> None:
    """What was made, replaced or removed in it stays so after a power loss."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # one that may be passed through and not read
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
