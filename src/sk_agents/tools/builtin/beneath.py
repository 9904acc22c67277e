"""Opening files beneath a folder, whatever happens to names and links at the same time.

A path that was checked and then opened can lead elsewhere in between. So nothing is checked by
name: the kernel resolves the path under the folder's own descriptor and refuses to leave it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Sequence

_OPENAT2 = 437
_NO_OTHER_MOUNT, _NO_MAGIC_LINKS, _BENEATH = 0x01, 0x02, 0x08
_RESOLVE = _NO_OTHER_MOUNT | _NO_MAGIC_LINKS | _BENEATH
# Somebody renamed something meanwhile, and the kernel cannot tell whether it mattered.
_ATTEMPTS = 64
_PAUSE_SECONDS = 0.0001

_libc = ctypes.CDLL(None, use_errno=True)


class Opener:
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
