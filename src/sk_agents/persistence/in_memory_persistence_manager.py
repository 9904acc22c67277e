"""Tasks in this process's memory, gone with it. For development."""

from __future__ import annotations

from collections.abc import Mapping

from sk_agents.engine.ports import Clock
from sk_agents.persistence.memory.store import MAX_BYTES, MAX_THREADS, MemoryStore
from sk_agents.persistence.tasks.view import StoreTasks


class InMemoryPersistenceManager(StoreTasks):
    """Callable from several threads and event loops at once; takes and returns copies.

    Bounded: past `max_tasks` or `max_bytes` a write is refused with `StoreFull`, and what is
    there stays.
    """

    def __init__(
        self,
        *,
        max_tasks: int = MAX_THREADS,
        max_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        store = MemoryStore(clock=clock, max_threads=max_tasks, max_bytes=max_bytes)
        super().__init__(store)

    def metrics(self) -> Mapping[str, float]:
        """What is held, what may be held, and how many writes were refused for want of room."""
        held = self._store.metrics()
        return {
            "tasks": held["threads"],
            "tasks_max": held["threads_max"],
            "bytes": held["bytes"],
            "bytes_max": held["bytes_max"],
            "refused": held["commits_refused_full"],
        }
