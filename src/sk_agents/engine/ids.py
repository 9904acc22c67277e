"""Ids that nobody can guess."""

from __future__ import annotations

import os


class RandomIds:
    """UUIDs of version 4: 122 random bits, in canonical text.

    Every commit has one, and `str(uuid4())` takes twice as long.
    """

    def new(self) -> str:
        random = os.urandom(16)
        digits = random.hex()
        variant = "89ab"[random[8] >> 6]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )
