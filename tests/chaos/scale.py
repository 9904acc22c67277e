"""How often an experiment is repeated: a few times in `make test`, in full in `make chaos`."""

from __future__ import annotations

import os

FULL = os.environ.get("TEAL_CHAOS") == "full"


def trials(full: int, small: int) -> int:
    return full if FULL else small
