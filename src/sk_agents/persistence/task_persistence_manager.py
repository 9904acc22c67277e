"""The public interface for keeping tasks: four methods over `AgentTask`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from sk_agents.ska_types import AgentTask


class TaskPersistenceManager(ABC):
    """Keeps tasks. Our own classes are async; plain methods are as good: they run in threads.

    A class named by `TA_PERSISTENCE_MODULE` and `TA_PERSISTENCE_CLASS` serves as the store of
    the Teal Agents API. It must keep a task whole, its `metadata` included, and return it equal
    to what was stored. It may have two more methods. With `load_by_request_id(request_id)` a
    request is found again after a restart. With `update_if(task, version) -> bool` servers that
    share it need not take turns: it keeps the task and returns True if the stored task's
    `version` is the given one, in one step that no other server's write can come between; else it
    changes nothing and returns False. Whatever a method raises counts as a failure of the store.
    """

    @abstractmethod
    def create(self, task: AgentTask) -> Awaitable[None] | None:
        """Keep a new task."""

    @abstractmethod
    def load(self, task_id: str) -> Awaitable[AgentTask | None] | AgentTask | None:
        """The task as it was last stored; `None` if there is none of this id."""

    @abstractmethod
    def update(self, task: AgentTask) -> Awaitable[None] | None:
        """Keep this task in place of the one with its id."""

    @abstractmethod
    def delete(self, task_id: str) -> Awaitable[None] | None:
        """Remove the task."""
