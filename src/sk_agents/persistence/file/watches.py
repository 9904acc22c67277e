"""Which runs are read elsewhere than where they are driven: one small file a run. Never synced."""

from __future__ import annotations

from collections.abc import Collection

import orjson

from sk_agents.engine.ports import Clock
from sk_agents.persistence.file.tree import FileTree, Place, safe_name
from sk_agents.persistence.watch_marks import age

WATCHED = ("watched",)


class FileWatches:
    def __init__(self, tree: FileTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock

    def mark(self, run_ids: Collection[str], ago: float) -> None:
        self._sweep()
        mark = orjson.dumps({"at": self._clock.monotonic() - ago})
        for run_id in run_ids:
            marked = self.age(run_id)
            if marked is None or marked > ago:
                self._tree.write(_place(run_id), mark, durable=False)

    def age(self, run_id: str) -> float | None:
        return self._age(_place(run_id))

    def _age(self, place: Place) -> float | None:
        mark = self._tree.read(place)
        return age(_at(mark), self._clock.monotonic()) if mark is not None else None

    def _sweep(self) -> None:
        for name in self._tree.names(WATCHED):
            place = (*WATCHED, name)
            if self._age(place) is None:
                self._tree.remove(place)


def _place(run_id: str) -> Place:
    return (*WATCHED, safe_name(run_id))


def _at(mark: bytes) -> float:
    try:
        return float(orjson.loads(mark)["at"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return float("-inf")
