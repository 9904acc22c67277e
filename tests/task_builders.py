"""Tasks and items with as little said as a test needs."""

from datetime import UTC, datetime
from typing import Any

from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import AgentTask, AgentTaskItem, MultiModalItem

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def item(
    content: str, *, role: Any = "user", request_id: str = "r", task_id: str = "t"
) -> AgentTaskItem:
    return AgentTaskItem(
        task_id=task_id,
        role=role,
        item=MultiModalItem(content=content),
        request_id=request_id,
        updated=NOW,
    )


def task(task_id: str = "t", **changes: Any) -> AgentTask:
    fields: dict[str, Any] = {
        "task_id": task_id,
        "session_id": "s",
        "user_id": "ann",
        "items": [item("hello", task_id=task_id)],
        "created_at": NOW,
        "last_updated_at": NOW,
    }
    return AgentTask(**fields | changes)


async def stored(manager: StoreTasks, task_id: str = "t") -> AgentTask:
    found = await manager.load(task_id)
    assert found is not None
    return found


def contents(found: AgentTask) -> list[str]:
    return [entry.item.content for entry in found.items]
