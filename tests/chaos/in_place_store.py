"""A deliberately broken build: the whole state of a store, written over in place, unsynced.

The kill experiment must find it out; an experiment that never fails proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import orjson

from sk_agents.engine.events import Event, event_from
from sk_agents.engine.log.commits import Absent, Commit, Committed
from sk_agents.engine.models import NewThread
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.memory.store import MemoryStore


class InPlaceStore(MemoryStore):
    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._root = root

    async def __aenter__(self) -> Self:
        self._root.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._root.glob("*.json")):
            try:
                document = orjson.loads(path.read_bytes())
            except orjson.JSONDecodeError as error:
                raise StateCorrupt(f"{path.name} is torn") from error
            events: list[Event] = [event_from(event) for event in document]
            guard = Absent(NewThread("dummyuser"))
            await super().commit(Commit(path.stem, "loaded", guard, tuple(events)))
        return self

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        log = await self.events_after(commit.thread_id, 0, 1_000_000)
        path = self._root / f"{commit.thread_id}.json"
        path.write_bytes(orjson.dumps([event.model_dump(mode="json") for event in log]))
        return done
