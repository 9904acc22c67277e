"""Ids that nobody can guess."""

from __future__ import annotations

import os

# Drawn for so many at a time: asking the system lets other threads run first.
DRAWN = 256

# Of all instances together, each taken once: taking one from a list cannot be interrupted.
_unused: list[bytes] = []


class RandomIds:
    """UUIDs of version 4: 122 random bits, in canonical text.

    Every run has one, and `str(uuid4())` takes longer.
    """

    def new(self) -> str:
        try:
            random = _unused.pop()
        except IndexError:
            random = _draw()
        digits = random.hex()
        variant = "89ab"[random[8] >> 6]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )


def _draw() -> bytes:
    """One, and others for later."""
    drawn = os.urandom(16 * DRAWN)
    _unused.extend(drawn[at : at + 16] for at in range(16, len(drawn), 16))
    return drawn[:16]


# A child of this process would make the same ids.
os.register_at_fork(after_in_child=_unused.clear)
