"""The user's own class, called: a method may be plain or a coroutine, and raise anything."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from sk_agents import exceptions as errors
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.ska_types import VERSION_KEY, AgentTask, AgentTaskItem, MultiModalItem

logger = logging.getLogger(__name__)

LOOKUP = "load_by_request_id"
CONDITIONAL = "update_if"
# How long a look-up of a single task may take at start.
LOOKUP_SECONDS = 5.0


class UserTasks:
    """Every method raises `StoreUnavailable` for what the class raises, except our own
    `StoreError` and `StoreFull`, and `StateCorrupt` for a task that is not the one asked for.

    `build_another` makes one more object of the class, to try out what may never return.
    """

    def __init__(
        self,
        manager: TaskPersistenceManager,
        build_another: Callable[[], TaskPersistenceManager] | None = None,
    ) -> None:
        self._manager = manager
        self._build_another = build_another
        self._looks_up = hasattr(manager, LOOKUP)

    def __str__(self) -> str:
        return f"{type(self._manager).__module__}.{type(self._manager).__name__}"

    @property
    def is_conditional(self) -> bool:
        """Whether the class can update a task on condition that no other server has."""
        return hasattr(self._manager, CONDITIONAL)

    async def load(self, task_id: str) -> AgentTask | None:
        task = self._task(await self.call("load", task_id))
        if task is not None and task.task_id != task_id:
            raise errors.StateCorrupt(f"{self}: load returned another task.", thread_id=task_id)
        return task

    async def load_by_request_id(self, request_id: str) -> AgentTask | None:
        """The task of a request, if the class can look it up."""
        if not self._looks_up:
            return None
        return self._task(await self.call(LOOKUP, request_id))

    async def probe(self, key: str, now: datetime) -> None:
        """Prove that the class keeps a task's ids and metadata, updates it under a condition if it
        says so, and forgets a task. Raises ConfigurationError: it does not."""
        task = _probe_task(key, now)
        metadata = {key: {"list": [1, "\u00e9", None]}, VERSION_KEY: "2"}
        changed = task.model_copy(update={"metadata": metadata})
        await self.call("create", task)
        try:
            await self.call("update", changed.model_copy(deep=True))
            loaded = await self.load(task.task_id)
            if self.is_conditional and loaded is not None:
                await self._probe_condition(loaded)
        finally:
            await self.call("delete", task.task_id)
        if loaded is None or _kept(loaded) != _kept(changed):
            raise errors.ConfigurationError(
                f"TA_PERSISTENCE_CLASS: {self} does not return a task with the ids and metadata it "
                "was given, so it cannot keep a conversation"
            )
        if await self.load(task.task_id) is not None:
            raise errors.ConfigurationError(f"TA_PERSISTENCE_CLASS: {self} does not delete a task")
        if self._looks_up and self._build_another is not None:
            await self._probe_lookup(self._build_another, now)

    async def update_if(self, task: AgentTask, version: str | None) -> bool:
        """Whether the class has kept the task: the one it had was of this version."""
        return await self.call(CONDITIONAL, task, version) is True

    async def call(self, name: str, *arguments: AgentTask | str | None) -> Any:
        method = getattr(self._manager, name)
        try:
            if inspect.iscoroutinefunction(method):
                return await method(*arguments)
            result = await asyncio.to_thread(method, *arguments)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            is_ours = isinstance(error, errors.StoreError | errors.StoreFull)
            if is_ours and not isinstance(error, errors.AgentsException):
                raise
            # Only the kind of error is shown: its text may hold an address or a password.
            raise errors.StoreUnavailable(
                f"{self}: {name} failed with {type(error).__name__}."
            ) from error

    async def _probe_condition(self, task: AgentTask) -> None:
        later = task.model_copy(update={"metadata": {VERSION_KEY: "3"}})
        refused = not await self.update_if(later.model_copy(deep=True), "1")
        untouched = await self.load(task.task_id)
        kept = await self.update_if(later.model_copy(deep=True), "2")
        replaced = await self.load(task.task_id)
        versions = [one and one.version for one in (untouched, replaced)]
        if not (refused and kept and versions == ["2", "3"]):
            raise errors.ConfigurationError(
                f"TA_PERSISTENCE_CLASS: {self}: update_if must keep the task and return True if "
                "the version it is given is that of the stored task, else change nothing and "
                "return False"
            )

    async def _probe_lookup(
        self, build_another: Callable[[], TaskPersistenceManager], now: datetime
    ) -> None:
        """Use the look-up only if it returns. One that takes a lock which it holds already never
        does, and every later call of that object would wait for the lock, too: so it is tried on
        another object, in a thread that can be left behind."""
        task = _probe_task(LOOKUP, now)
        item = MultiModalItem(content="start-up probe")
        task.items = [
            AgentTaskItem(
                task_id=task.task_id,
                role="user",
                item=item,
                request_id=str(uuid.uuid4()),
                updated=now,
            )
        ]
        failure = await asyncio.to_thread(_failure_of_lookup, build_another, task)
        if failure is None:
            return
        self._looks_up = False
        logger.warning(
            "%s of the persistence class %s, so it is not used: a request that this server has "
            "not seen is found only by an address that names its task",
            LOOKUP,
            failure,
            extra={"store": str(self)},
        )
        with suppress(errors.StoreError, errors.StoreFull):
            if await self.load(task.task_id) is not None:
                await self.call("delete", task.task_id)

    def _task(self, task: Any) -> AgentTask | None:
        if task is not None and not isinstance(task, AgentTask):
            raise errors.StateCorrupt(f"{self}: returned {type(task).__name__} for a task.")
        return task


def _failure_of_lookup(
    build_another: Callable[[], TaskPersistenceManager], task: AgentTask
) -> str | None:
    """Why a task is not looked up by its request; `None` if it is."""
    failures = ["does not return"]
    done = threading.Event()

    def work() -> None:
        try:
            asyncio.run(_look_up(build_another(), task))
            failures.clear()
        except Exception as error:
            failures[:] = [f"fails with {type(error).__name__}"]
        done.set()

    threading.Thread(target=work, name="look-up probe", daemon=True).start()
    done.wait(LOOKUP_SECONDS)
    return failures[0] if failures else None


async def _look_up(manager: TaskPersistenceManager, task: AgentTask) -> None:
    async def called(name: str, argument: AgentTask | str) -> None:
        result = getattr(manager, name)(argument)
        if inspect.isawaitable(result):
            await result

    await called("create", task)
    await called(LOOKUP, task.items[0].request_id)
    await called("delete", task.task_id)


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
