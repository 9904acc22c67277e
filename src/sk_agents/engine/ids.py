"""Ids that nobody can guess."""

from __future__ import annotations

from uuid import uuid4


class RandomIds:
    """UUIDs of version 4: 122 random bits, in canonical text."""

    def new(self) -> str:
        return str(uuid4())
