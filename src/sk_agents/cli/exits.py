"""What the commands that talk to a server answer to the shell."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """69 is sysexits.h's word for a service that is not there, 130 a shell's for Ctrl-C."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    UNREACHABLE = 69
    INTERRUPTED = 130
