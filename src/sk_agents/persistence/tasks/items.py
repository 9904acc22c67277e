"""The items of a task as events of a log, and back.

What is said in a run becomes an item when it is said, and an item stays where it is: the messages
of started runs, their answers and imported items, in the order of the log. Thoughts, tool calls
and the cut text of a cancelled run are in the log only.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from sk_agents.engine.events import (
    Answered,
    Event,
    Imported,
    ImportedItem,
    RunQueued,
    RunStarted,
)
from sk_agents.engine.models import UserInput
from sk_agents.exceptions import InvalidInput
from sk_agents.ska_types import AgentTask, AgentTaskItem, MultiModalItem


def items_of(task_id: str, events: Iterable[Event]) -> list[AgentTaskItem]:
    """What these events, a log from its start, say to a reader of the task."""
    items: list[AgentTaskItem] = []
    queued: dict[str, UserInput] = {}
    for event in events:
        match event:
            case RunQueued():
                queued[event.run_id] = event.message
            case RunStarted():
                message = event.message or queued.get(event.run_id)
                items.extend(_spoken(task_id, event, message))
            case Answered():
                answer = MultiModalItem(content=event.content)
                items.append(_item(task_id, "assistant", answer, event.run_id, event.at))
            case Imported():
                items.extend(_item_of(task_id, item) for item in event.items)
    return items


def imported_items(task: AgentTask, items: Iterable[AgentTaskItem]) -> tuple[ImportedItem, ...]:
    """The new `items` of `task` as the log keeps them.

    Raises:
        InvalidInput: an item of the task names another task.
    """
    if any(item.task_id != task.task_id for item in task.items):
        raise InvalidInput("An item belongs to another task.", thread_id=task.task_id)
    return tuple(
        ImportedItem(
            role=item.role,
            content_type=item.item.content_type,
            content=item.item.content,
            run_id=item.request_id,
            at=item.updated,
        )
        for item in items
    )


def _spoken(task_id: str, event: RunStarted, message: UserInput | None) -> Iterable[AgentTaskItem]:
    for part in message.parts if message else ():
        piece = MultiModalItem(
            content_type="image" if part.kind == "image" else "text", content=part.content
        )
        yield _item(task_id, "user", piece, event.run_id, event.at)


def _item_of(task_id: str, item: ImportedItem) -> AgentTaskItem:
    piece = MultiModalItem(content_type=item.content_type, content=item.content)
    return _item(task_id, item.role, piece, item.run_id, item.at)


def _item(
    task_id: str,
    role: Literal["user", "assistant"],
    piece: MultiModalItem,
    run_id: str,
    at: datetime,
) -> AgentTaskItem:
    return AgentTaskItem(task_id=task_id, role=role, item=piece, request_id=run_id, updated=at)
