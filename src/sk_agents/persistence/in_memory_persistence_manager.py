"""Tasks in this process's memory, gone with it. For development."""

from __future__ import annotations

from collections.abc import Mapping

from sk_agents.engine.ports import Clock
from sk_agents.exceptions import (
    PersistenceCreateError,
    PersistenceDeleteError,
    PersistenceUpdateError,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.persistence.memory.store import MAX_BYTES, MAX_THREADS, MemoryStore
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import AgentTask


class InMemoryPersistenceManager(StoreTasks):
    """Callable from several threads and event loops at once; takes and returns copies. It raises
    what the public project's class of this name raises, to stand in for it in a team's tests.

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
        self._task_of_request: dict[str, str] = {}

    async def create(self, task: AgentTask) -> None:
        """Raises PersistenceCreateError: the id is taken."""
        try:
            await super().create(task)
        except ThreadExists:
            raise PersistenceCreateError(f"Task '{task.task_id}' already exists.") from None
        self._note_requests(task)

    async def update(self, task: AgentTask) -> None:
        """Raises PersistenceUpdateError: no such task; else as `StoreTasks.update`."""
        try:
            await super().update(task)
        except ThreadNotFound:
            raise PersistenceUpdateError(f"Task '{task.task_id}' does not exist.") from None
        self._note_requests(task)

    async def delete(self, task_id: str) -> None:
        """Raises PersistenceDeleteError: no such task."""
        task = await self.load(task_id)
        try:
            await super().delete(task_id)
        except ThreadNotFound:
            raise PersistenceDeleteError(f"Task '{task_id}' does not exist.") from None
        for item in task.items if task is not None else ():
            self._task_of_request.pop(item.request_id, None)

    async def load_by_request_id(self, request_id: str) -> AgentTask | None:
        """The task with an item of this request."""
        task_id = self._task_of_request.get(request_id)
        return await self.load(task_id) if task_id is not None else None

    def _note_requests(self, task: AgentTask) -> None:
        self._task_of_request.update((item.request_id, task.task_id) for item in task.items)

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
