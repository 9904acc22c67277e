"""A thread in the words of a task. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from sk_agents.engine.events import Answered, Event, Imported, RunQueued, RunStarted
from sk_agents.engine.models import Thread, ThreadStatus, UserInput
from sk_agents.ska_types import AgentTask, AgentTaskItem, MultiModalItem, TaskStatus
from sk_agents.tealagents.models import TaskSummary

SURFACE = "tealagents"
# Where tasks that were made through the four-method interface keep what a head has no field for.
LABEL = "task"
STATUSES: dict[ThreadStatus, TaskStatus] = {
    ThreadStatus.IDLE: "Running",
    ThreadStatus.RUNNING: "Running",
    ThreadStatus.WAITING: "Paused",
    ThreadStatus.COMPLETED: "Completed",
    ThreadStatus.FAILED: "Failed",
    ThreadStatus.CANCELLED: "Canceled",
}


def summary_of(head: Thread) -> TaskSummary:
    return TaskSummary(
        task_id=head.thread_id,
        status=STATUSES[head.status],
        created_at=_created_at(head),
        last_updated_at=head.updated_at,
    )


def task_of(head: Thread, status: ThreadStatus, events: Iterable[Event]) -> AgentTask:
    """The task; `status` is the fold's: a head learns of a pause a moment later."""
    return AgentTask(
        task_id=head.thread_id,
        session_id=head.session_id,
        user_id=head.user_id,
        items=list(_items(head.thread_id, events)),
        created_at=_created_at(head),
        last_updated_at=head.updated_at,
        status=STATUSES[status],
        metadata=_label(head).get("metadata", {}),
        expires_at=head.expires_at,
    )


def _items(task_id: str, events: Iterable[Event]) -> Iterator[AgentTaskItem]:
    def item(
        role: Literal["user", "assistant"], piece: MultiModalItem, request_id: str, at: datetime
    ) -> AgentTaskItem:
        return AgentTaskItem(
            task_id=task_id, role=role, item=piece, request_id=request_id, updated=at
        )

    queued: dict[str, UserInput] = {}
    for event in events:
        match event:
            case RunQueued():
                queued[event.run_id] = event.message
            case RunStarted():
                message = event.message or queued.get(event.run_id)
                for part in message.parts if message is not None else ():
                    kind: Literal["text", "image"] = "image" if part.kind == "image" else "text"
                    piece = MultiModalItem(content_type=kind, content=part.content)
                    yield item("user", piece, event.run_id, event.at)
            case Answered():
                yield item(
                    "assistant", MultiModalItem(content=event.content), event.run_id, event.at
                )
            case Imported():
                for old in event.items:
                    piece = MultiModalItem(content_type=old.content_type, content=old.content)
                    yield item(old.role, piece, old.run_id, old.at)


def _created_at(head: Thread) -> datetime:
    given = _label(head).get("created_at")
    return head.created_at if given is None else datetime.fromisoformat(given)


def _label(head: Thread) -> dict[str, Any]:
    label: dict[str, Any] = head.metadata.get(LABEL, {})
    return label
