"""Standard streams that the caller has closed lead nowhere, instead of into other files."""

from __future__ import annotations

import os
import sys

STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_missing_streams() -> None:
    """Before anything else is opened: it would get the number of a stream that is missing, and what
    a library prints would be written into it."""
    for number, name, mode in STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))
