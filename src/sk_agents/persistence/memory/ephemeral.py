"""The log of one stateless invocation: numbered, readable while it runs, dropped at its end."""

from __future__ import annotations

from collections.abc import Sequence

from sk_agents.engine.models import Thread
from sk_agents.persistence.memory.store import MemoryStore


class EphemeralStore(MemoryStore):
    """Nobody else can reach it, so no lease runs out and nothing is ever recovered."""

    def __str__(self) -> str:
        return "ephemeral:"

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        return []

    def _is_leased(self, head: Thread | None) -> bool:
        return head is not None and head.owner is not None
