"""What the commands that talk to a server answer to the shell."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """69 and 78 are words of sysexits.h, 130 a shell's for Ctrl-C."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    UNREACHABLE = 69
    BAD_CONFIGURATION = 78
    INTERRUPTED = 130
