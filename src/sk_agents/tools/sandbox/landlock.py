"""Landlock: which files a program may open, by the path they lie under.

It says nothing about looking at names, sizes and times of other files, nor about their modes and
owners: the latter is what the filter and read-only mounts are for.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache

_CREATE_RULESET = 444
_ASK_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
# What can be said of a single file.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many kinds of access each version knows.
_KINDS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11
_SCOPES = 0b11

READ = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE = _READ_FILE | _WRITE_FILE
# Since this version signals stay inside, so that nobody else's process can be ended.
VERSION_WITH_SIGNALS = 6


@cache
def version() -> int:
    """What the kernel offers; 0 if nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def everything(found: int) -> int:
    """All kinds of access to files that this version knows."""
    return (1 << _KINDS[min(found, 5)]) - 1


def attributes(found: int) -> bytes:
    """A rule set that refuses all it can: files, and from their versions on TCP and signals."""
    fields = [everything(found)]
    if found >= 4:
        fields.append(_TCP)
    if found >= VERSION_WITH_SIGNALS:
        fields.append(_SCOPES)
    return struct.pack(f"{len(fields)}Q", *fields)


def rule(path: str, access: int, found: int) -> tuple[str, int]:
    """The rule for what lies under a path, or for the one file it is."""
    wanted = access & everything(found)
    return path, wanted if os.path.isdir(path) else wanted & _OF_FILES
