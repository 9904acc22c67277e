"""Persistence classes as a user would write them."""

from collections.abc import Callable

from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.ska_types import AgentTask


class JsonTasks(TaskPersistenceManager):
    """Plain methods; keeps tasks as text, as a class over a database would."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def create(self, task: AgentTask) -> None:
        if task.task_id in self.texts:
            raise KeyError(task.task_id)
        self.texts[task.task_id] = task.model_dump_json()

    def load(self, task_id: str) -> AgentTask | None:
        text = self.texts.get(task_id)
        return None if text is None else AgentTask.model_validate_json(text)

    def update(self, task: AgentTask) -> None:
        if task.task_id not in self.texts:
            raise KeyError(task.task_id)
        self.texts[task.task_id] = task.model_dump_json()

    def delete(self, task_id: str) -> None:
        del self.texts[task_id]


class AsyncTasks(TaskPersistenceManager):
    """Coroutines; keeps the very objects it is given."""

    def __init__(self) -> None:
        self.tasks: dict[str, AgentTask] = {}

    async def create(self, task: AgentTask) -> None:
        if task.task_id in self.tasks:
            raise KeyError(task.task_id)
        self.tasks[task.task_id] = task

    async def load(self, task_id: str) -> AgentTask | None:
        return self.tasks.get(task_id)

    async def update(self, task: AgentTask) -> None:
        if task.task_id not in self.tasks:
            raise KeyError(task.task_id)
        self.tasks[task.task_id] = task

    async def delete(self, task_id: str) -> None:
        del self.tasks[task_id]


class SearchableTasks(JsonTasks):
    """With the fifth method."""

    def load_by_request_id(self, request_id: str) -> AgentTask | None:
        for task_id in self.texts:
            task = self.load(task_id)
            if task and any(item.request_id == request_id for item in task.items):
                return task
        return None


class ConditionalTasks(SearchableTasks):
    """With both further methods."""

    def update_if(self, task: AgentTask, version: str | None) -> bool:
        stored = self.load(task.task_id)
        if stored is None or stored.version != version:
            return False
        self.update(task)
        return True


class Moody(JsonTasks):
    """Does something else before, or instead of, the named method."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: dict[str, Callable[[], None]] = {}

    def create(self, task: AgentTask) -> None:
        self.moods.get("create", lambda: None)()
        super().create(task)
        self.moods.get("created", lambda: None)()

    def load(self, task_id: str) -> AgentTask | None:
        self.moods.get("load", lambda: None)()
        return super().load(task_id)

    def update(self, task: AgentTask) -> None:
        self.moods.get("update", lambda: None)()
        super().update(task)
        self.moods.get("updated", lambda: None)()

    def delete(self, task_id: str) -> None:
        self.moods.get("delete", lambda: None)()
        super().delete(task_id)


def fail() -> None:
    raise OSError("the address of the database and its password")
