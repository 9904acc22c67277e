"""How long a model may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to connect, between two reads (the wait for the first included), in all."""

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0
