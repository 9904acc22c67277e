"""Calls into a user's own `TaskPersistenceManager`: sync or async, and whatever it raises."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from datetime import datetime
from typing import Any

from sk_agents.exceptions import (
    ConfigurationError,
    StateCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.ska_types import AgentTask

LOOKUP = "load_by_request_id"


class UserTasks:
    """Every method raises `StoreUnavailable` for what the class raises, except our own
    `StoreError` and `StoreFull`, and `StateCorrupt` for a task that is not the one asked for."""

    def __init__(self, manager: TaskPersistenceManager) -> None:
        self._manager = manager

    def __str__(self) -> str:
        return f"{type(self._manager).__module__}.{type(self._manager).__name__}"

    async def create(self, task: AgentTask) -> None:
        await self._call("create", task)

    async def load(self, task_id: str) -> AgentTask | None:
        task = self._task(await self._call("load", task_id))
        if task is not None and task.task_id != task_id:
            raise StateCorrupt(f"{self}: load returned another task.", thread_id=task_id)
        return task

    async def update(self, task: AgentTask) -> None:
        await self._call("update", task)

    async def delete(self, task_id: str) -> None:
        await self._call("delete", task_id)

    async def load_by_request_id(self, request_id: str) -> AgentTask | None:
        """The task of a request, for classes that can tell."""
        if not hasattr(self._manager, LOOKUP):
            return None
        return self._task(await self._call(LOOKUP, request_id))

    async def probe(self, key: str, now: datetime) -> None:
        """Prove that the class keeps a task's ids and metadata, and that it forgets a task.

        Raises:
            ConfigurationError: it does not.
        """
        task = _probe_task(key, now)
        changed = task.model_copy(update={"metadata": {key: {"list": [1, "\u00e9", None]}}})
        await self.create(task)
        try:
            await self.update(changed.model_copy(deep=True))
            loaded = await self.load(task.task_id)
        finally:
            await self.delete(task.task_id)
        if loaded is None or _kept(loaded) != _kept(changed):
            raise ConfigurationError(
                f"TA_PERSISTENCE_CLASS: {self} does not return a task with the ids and metadata it "
                "was given, so it cannot keep a conversation"
            )
        if await self.load(task.task_id) is not None:
            raise ConfigurationError(f"TA_PERSISTENCE_CLASS: {self} does not delete a task")

    async def _call(self, name: str, argument: AgentTask | str) -> Any:
        method = getattr(self._manager, name)
        try:
            if inspect.iscoroutinefunction(method):
                return await method(argument)
            result = await asyncio.to_thread(method, argument)
            return await result if inspect.isawaitable(result) else result
        except (StoreError, StoreFull):
            raise
        except Exception as error:
            # Only the kind of error is shown: its text may hold an address or a password.
            raise StoreUnavailable(f"{self}: {name} failed with {type(error).__name__}.") from error

    def _task(self, task: Any) -> AgentTask | None:
        if task is not None and not isinstance(task, AgentTask):
            raise StateCorrupt(f"{self}: returned {type(task).__name__} for a task.")
        return task


def _probe_task(key: str, now: datetime) -> AgentTask:
    return AgentTask(
        task_id=str(uuid.uuid4()),
        session_id=str(uuid.uuid4()),
        user_id="start-up probe",
        items=[],
        created_at=now,
        last_updated_at=now,
        metadata={key: "first"},
    )


def _kept(task: AgentTask) -> tuple[object, ...]:
    return task.task_id, task.session_id, task.user_id, task.metadata
