"""Which owner is alive and which run is read elsewhere: a small file for each. Never synced."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Clock
from sk_agents.persistence.file.tree import FileTree, Place, safe_name
from sk_agents.persistence.liveness import is_alive, mark_age, process_is_gone

OWNERS = ("owners",)
WATCHED = ("watched",)


class FileHeartbeats:
    def __init__(self, tree: FileTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock

    def renew(self, owner: str, ttl: float) -> None:
        alive_until = self._clock.monotonic() + ttl
        self._write((*OWNERS, safe_name(owner)), {"owner": owner, "alive_until": alive_until})

    def retire(self, owner: str) -> None:
        self._tree.remove((*OWNERS, safe_name(owner)))

    def is_leased(self, head: Thread | None) -> bool:
        """Whether a live owner has the lease of this thread."""
        if head is None or head.owner is None:
            return False
        alive_until = self._number((*OWNERS, safe_name(head.owner)), "alive_until")
        return is_alive(head.owner, alive_until, self._clock.monotonic())

    def remove_ended(self) -> None:
        """Remove the files of processes that have ended: they can never renew again."""
        for name in self._tree.names(OWNERS):
            owner = self._read((*OWNERS, name)).get("owner")
            if process_is_gone(str(owner)):
                self._tree.remove((*OWNERS, name))

    def mark_watched(self, run_ids: Collection[str], ago: float) -> None:
        """Mark these runs as read so many seconds ago, unless they were read later."""
        for name in self._tree.names(WATCHED):
            if self._mark_age((*WATCHED, name)) is None:
                self._tree.remove((*WATCHED, name))
        for run_id in run_ids:
            marked = self.unwatched_for(run_id)
            if marked is None or marked > ago:
                self._write((*WATCHED, safe_name(run_id)), {"at": self._clock.monotonic() - ago})

    def unwatched_for(self, run_id: str) -> float | None:
        return self._mark_age((*WATCHED, safe_name(run_id)))

    def _mark_age(self, place: Place) -> float | None:
        return mark_age(self._number(place, "at"), self._clock.monotonic())

    def _number(self, place: Place, field: str) -> float | None:
        try:
            return float(self._read(place)[field])
        except (KeyError, TypeError, ValueError):
            return None

    def _write(self, place: Place, fields: dict[str, Any]) -> None:
        self._tree.write(place, orjson.dumps(fields), durable=False)

    def _read(self, place: Place) -> dict[str, Any]:
        """What is damaged says nothing: these files are never synced."""
        try:
            fields = orjson.loads(self._tree.read(place) or b"")
        except orjson.JSONDecodeError:
            return {}
        return fields if isinstance(fields, dict) else {}
