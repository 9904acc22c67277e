"""A thread seen as a task: the four methods of `TaskPersistenceManager` over any store.

The items of a task are what was said: the messages of started runs, their answers and imported
items, in the order of the log. Thoughts, tool calls and the cut text of a cancelled run are in the
log only. An item stays where it is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from sk_agents import exceptions as errors
from sk_agents.engine.events import (
    Answered,
    Event,
    Imported,
    ImportedItem,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    ThreadChanged,
)
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.log.commits import Absent, Commit, Guard, Unchanged
from sk_agents.engine.models import NewThread, Thread, ThreadStatus, UserInput
from sk_agents.engine.ports import Store
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.ska_types import (
    AgentTask,
    AgentTaskItem,
    ContentType,
    MultiModalItem,
    TaskStatus,
)

SURFACE = "tealagents"
# Where a task's own metadata and times lie among the thread's labels.
LABEL = "task"
MAX_ATTEMPTS = 100

# A task that has not run yet, or that another program runs, is Running in Teal Agents' words. For
# the engine it is idle, because no run of ours makes it busy.
STATUSES: dict[ThreadStatus, TaskStatus] = {
    ThreadStatus.RUNNING: "Running",
    ThreadStatus.IDLE: "Running",
    ThreadStatus.WAITING: "Paused",
    ThreadStatus.COMPLETED: "Completed",
    ThreadStatus.FAILED: "Failed",
    ThreadStatus.CANCELLED: "Canceled",
}
IMPORTED_STATUSES = {word: status for status, word in STATUSES.items()} | {
    "Running": ThreadStatus.IDLE
}
_FIXED = ("user_id", "session_id", "created_at", "expires_at")


class StoreTasks(TaskPersistenceManager):
    """Tasks over `store`, which the caller opens and closes.

    A task that was loaded or stored here remembers what it was then, so that an update writes
    just what the caller changed: what others appended since stays.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, task: AgentTask) -> None:
        """Keep a new task. Raises ThreadExists: the id is taken; InvalidInput: an item is of
        another task, or the metadata is not JSON."""
        await self._commit(task.task_id, Absent(new_thread(task)), creation_events(task))
        task.mark_stored()

    async def load(self, task_id: str) -> AgentTask | None:
        try:
            head, events = await self._read(task_id)
        except errors.ThreadNotFound:
            return None
        return task_of(head, events).mark_stored()

    async def update(self, task: AgentTask) -> None:
        """Append the task's new items; change its status and metadata if the caller did.

        Raises:
            ThreadNotFound: no such task.
            Conflict: a stored item was changed or removed.
            ThreadBusy: the status was changed while a run decides it.
            InvalidInput: something fixed was changed, or the metadata is not JSON.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            head, events = await self._read(task.task_id)
            changes = update_events(task, task_of(head, events), head)
            try:
                await self._commit(
                    task.task_id, Unchanged(head.next_seq), changes, head.incarnation
                )
                break
            except errors.SequenceConflict:
                if attempt == MAX_ATTEMPTS:
                    raise
        task.mark_stored()

    async def delete(self, task_id: str) -> None:
        """Remove the task. Raises ThreadNotFound: no such task; LeaseHeld: it is being worked
        on."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            head = await self._head(task_id)
            try:
                return await self._store.delete(
                    task_id, next_seq=head.next_seq, incarnation=head.incarnation
                )
            except errors.SequenceConflict:
                if attempt == MAX_ATTEMPTS:
                    raise

    async def _head(self, task_id: str) -> Thread:
        head = await self._store.thread(task_id)
        if head.surface != SURFACE:
            raise errors.ThreadNotFound(thread_id=task_id)
        return head

    async def _read(self, task_id: str) -> tuple[Thread, Sequence[Event]]:
        """The head and just the events it counts."""
        head = await self._head(task_id)
        events: list[Event] = []
        while missing := head.next_seq - 1 - len(events):
            page = await self._store.events_after(
                task_id, len(events), incarnation=head.incarnation
            )
            if not page:
                raise errors.StateCorrupt(
                    "The log is shorter than its head says.", thread_id=task_id
                )
            events.extend(islice(page, missing))
        return head, events

    async def _commit(
        self, task_id: str, guard: Guard, events: tuple[Event, ...], incarnation: str | None = None
    ) -> None:
        commit = Commit(task_id, uuid.uuid4().hex, guard, events, incarnation=incarnation)
        try:
            await self._store.commit(commit)
        except errors.CommitOutcomeUnknown:
            await self._store.commit(commit)


def new_thread(task: AgentTask) -> NewThread:
    return NewThread(
        user_id=task.user_id,
        session_id=task.session_id,
        wire_id=task.task_id,
        surface=SURFACE,
        expires_at=task.expires_at,
    )


def creation_events(task: AgentTask) -> tuple[Event, ...]:
    """The start of the log of a task made elsewhere. Raises InvalidInput: an item is of another
    task, or the metadata is not JSON."""
    return (
        ThreadChanged(metadata={LABEL: _label(task, task.created_at, task.last_updated_at)}),
        Imported(items=imported_items(task, task.items), status=IMPORTED_STATUSES[task.status]),
    )


def update_events(task: AgentTask, stored: AgentTask, head: Thread) -> tuple[Event, ...]:
    """What turns `stored` into `task`, as far as the caller changed `task`; see `update`."""
    for name in _FIXED:
        if getattr(task, name) != getattr(stored, name):
            raise errors.InvalidInput(f"A task's {name} cannot be changed.", thread_id=task.task_id)
    items = imported_items(task, _new_items(task, stored))
    base = task.stored or stored
    status = IMPORTED_STATUSES[task.status] if task.status != base.status else None
    if status is not None and head.active_run is not None:
        raise errors.ThreadBusy(
            "A run of this task is active; its status is the run's.", thread_id=task.task_id
        )
    changes: list[Event] = [Imported(items=items, status=status)]
    if task.metadata != base.metadata:
        changes.append(ThreadChanged(metadata={LABEL: _label(task, *_times(head))}))
    return tuple(changes)


def task_of(head: Thread, events: Iterable[Event]) -> AgentTask:
    """The task that a thread's head and its events describe."""
    created_at, last_updated_at = _times(head)
    return AgentTask(
        task_id=head.thread_id,
        session_id=head.session_id,
        user_id=head.user_id,
        items=items_of(head.thread_id, events),
        created_at=created_at,
        last_updated_at=last_updated_at,
        status=STATUSES[head.status],
        metadata=deepcopy(head.metadata.get(LABEL, {}).get("metadata", {})),
        expires_at=head.expires_at,
    )


def _new_items(task: AgentTask, stored: AgentTask) -> list[AgentTaskItem]:
    """The items after those that were stored when the task was; these must all be there still."""
    known = task.stored.item_count if task.stored else len(stored.items)
    theirs = iter(stored.items)
    # Membership in an iterator consumes it: the known items must come in the stored order.
    if len(task.items) < known or not all(item in theirs for item in task.items[:known]):
        raise errors.Conflict(
            "A stored item of this task was changed or removed, or another caller changed the "
            "task; load it again and append to it.",
            thread_id=task.task_id,
        )
    return task.items[known:]


def _label(task: AgentTask, created_at: datetime, last_updated_at: datetime) -> dict[str, Any]:
    canonical_json(task.metadata)  # refuses what Python's own encoder would bend into JSON
    return {
        "metadata": json.loads(json.dumps(task.metadata)),
        "created_at": created_at.isoformat(),
        "last_updated_at": last_updated_at.isoformat(),
    }


def _times(head: Thread) -> tuple[datetime, datetime]:
    """Creation as it was given; the last update as given until the first write after it."""
    label = head.metadata.get(LABEL, {})
    if "created_at" not in label:
        return head.created_at, head.updated_at
    created_at = datetime.fromisoformat(label["created_at"])
    given = datetime.fromisoformat(label["last_updated_at"])
    untouched = head.updated_at == head.created_at
    return created_at, given if untouched else max(given, head.updated_at)


def items_of(task_id: str, events: Iterable[Event]) -> list[AgentTaskItem]:
    """What these events, a log from its start, say to a reader of the task."""
    items: list[AgentTaskItem] = []
    queued: dict[str, UserInput] = {}
    said: dict[str, str] = {}
    for event in events:
        match event:
            case RunQueued():
                queued[event.run_id] = event.message
            case RunStarted():
                message = event.message or queued.get(event.run_id)
                for part in message.parts if message else ():
                    kind: Literal["text", "image"] = "image" if part.kind == "image" else "text"
                    items.append(_item(task_id, "user", kind, part.content, event.run_id, event.at))
            case Steered():
                said[event.message_id] = event.content
            case SteeringDelivered():
                items.extend(
                    _item(task_id, "user", "text", said[message_id], event.run_id, event.at)
                    for message_id in event.message_ids
                    if message_id in said
                )
            case Answered():
                items.append(
                    _item(task_id, "assistant", "text", event.content, event.run_id, event.at)
                )
            case Imported():
                items.extend(
                    _item(task_id, old.role, old.content_type, old.content, old.run_id, old.at)
                    for old in event.items
                )
    return items


def imported_items(task: AgentTask, items: Iterable[AgentTaskItem]) -> tuple[ImportedItem, ...]:
    """The new `items` of `task` as the log keeps them. Raises InvalidInput: an item of the task
    names another task."""
    if any(item.task_id != task.task_id for item in task.items):
        raise errors.InvalidInput("An item belongs to another task.", thread_id=task.task_id)
    return tuple(
        ImportedItem(
            role=item.role,
            content_type="image" if item.item.content_type == ContentType.IMAGE else "text",
            content=item.item.content,
            run_id=item.request_id,
            at=item.updated,
        )
        for item in items
    )


def _item(
    task_id: str,
    role: Literal["user", "assistant"],
    content_type: Literal["text", "image"],
    content: str,
    run_id: str,
    at: datetime,
) -> AgentTaskItem:
    piece = MultiModalItem(content_type=ContentType(content_type), content=content)
    return AgentTaskItem(task_id=task_id, role=role, item=piece, request_id=run_id, updated=at)
