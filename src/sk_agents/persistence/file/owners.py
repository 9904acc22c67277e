"""Who is alive: one small file an owner, rewritten at each heartbeat. Never synced."""

from __future__ import annotations

import orjson

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Clock
from sk_agents.persistence.file.tree import FileTree, Place, safe_name
from sk_agents.persistence.owner import process_is_gone

OWNERS = ("owners",)


class FileOwners:
    def __init__(self, tree: FileTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock

    def renew(self, owner: str, ttl: float) -> None:
        alive_until = self._clock.monotonic() + ttl
        document = orjson.dumps({"owner": owner, "alive_until": alive_until})
        self._tree.write(_place(owner), document, durable=False)

    def retire(self, owner: str) -> None:
        self._tree.remove(_place(owner))

    def holds(self, head: Thread | None) -> bool:
        """Whether a live owner has the lease of this thread."""
        if head is None or head.owner is None:
            return False
        heartbeat = self._tree.read(_place(head.owner))
        if heartbeat is None or _alive_until(heartbeat) <= self._clock.monotonic():
            return False
        return not process_is_gone(head.owner)

    def sweep(self) -> None:
        """Remove the files of processes that have ended: they can never renew again."""
        for name in self._tree.names(OWNERS):
            heartbeat = self._tree.read((*OWNERS, name))
            if heartbeat is not None and process_is_gone(_owner(heartbeat)):
                self._tree.remove((*OWNERS, name))


def _place(owner: str) -> Place:
    return (*OWNERS, safe_name(owner))


def _alive_until(heartbeat: bytes) -> float:
    try:
        return float(orjson.loads(heartbeat)["alive_until"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0.0


def _owner(heartbeat: bytes) -> str:
    try:
        return str(orjson.loads(heartbeat)["owner"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
