"""Words shared by the surfaces, the back rooms and users' own classes: tasks and plugins."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr

from sk_agents.exceptions import ToolError

MAX_EXTRA_DATA = 64 * 1024


def _in_utc(moment: datetime) -> datetime:
    """Aware, in UTC. A time without a zone is taken to be UTC already."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_in_utc)]
TaskStatus = Literal["Running", "Paused", "Completed", "Failed", "Canceled"]


class MultiModalItem(BaseModel):
    """A piece of a message: text, or an image as a data URI."""

    content_type: Literal["text", "image"] = "text"
    content: str


class AgentTaskItem(BaseModel):
    """One message of a task. `updated` is for people: the order of items is that of their list."""

    task_id: str
    role: Literal["user", "assistant"]
    item: MultiModalItem
    request_id: str
    updated: Moment


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a task was when it was last stored or loaded."""

    item_count: int
    status: TaskStatus
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Mark:
    """No part of a task's value: tasks that differ in nothing else are equal."""

    state: StoredState | None = field(default=None, compare=False)


class AgentTask(BaseModel):
    """A conversation as `TaskPersistenceManager` keeps it."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    task_id: str
    session_id: str
    user_id: str
    items: list[AgentTaskItem]
    created_at: Moment
    last_updated_at: Moment = Field(
        validation_alias=AliasChoices("last_updated_at", "last_updated")
    )
    status: TaskStatus = "Running"
    metadata: dict[str, Any] = Field(default_factory=dict)
    expires_at: Moment | None = None

    _mark: _Mark = PrivateAttr(default=_Mark())

    @property
    def stored(self) -> StoredState | None:
        """`None` for a task that was never stored or loaded, or came through JSON since."""
        return self._mark.state

    def mark_stored(self) -> Self:
        """Note that a store holds this task as it is now, so that it can tell later changes."""
        state = StoredState(len(self.items), self.status, deepcopy(self.metadata))
        self._mark = _Mark(state)
        return self


class ExtraDataElement(BaseModel):
    key: str
    value: str


class ExtraData(BaseModel):
    """What plugins hand to the client beside the answer; no model sees it."""

    items: list[ExtraDataElement]


class ExtraDataCollector:
    """Takes a plugin's extra data during one call; together at most `MAX_EXTRA_DATA` bytes."""

    def __init__(self) -> None:
        self._items: list[ExtraDataElement] = []
        self._size = 0

    def add_extra_data(self, key: str, value: str) -> None:
        """Add one pair; keys may repeat.

        Raises:
            ToolError: there would be too much of it.
        """
        self.add_extra_data_items(ExtraData(items=[ExtraDataElement(key=key, value=value)]))

    def add_extra_data_items(self, extra_data: ExtraData | None) -> None:
        items = extra_data.items if extra_data is not None else []
        size = self._size + sum(len(f"{item.key}{item.value}".encode()) for item in items)
        if size > MAX_EXTRA_DATA:
            raise ToolError(f"A call's extra data is limited to {MAX_EXTRA_DATA} bytes.")
        self._size = size
        self._items.extend(items)

    def get_extra_data(self) -> ExtraData | None:
        """Everything added so far; `None` if that is nothing."""
        return ExtraData(items=list(self._items)) if self._items else None

    @property
    def is_empty(self) -> bool:
        return not self._items


class BasePlugin:
    """The base of every plugin class. One object serves one call, so it shares no state.

    `authorization` is the caller's `Authorization` header, if there is one for this call.
    """

    requires_authorization: ClassVar[bool] = False
    """True: never call this plugin without the caller's header; ask the caller to come back."""

    def __init__(
        self,
        authorization: str | None = None,
        extra_data_collector: ExtraDataCollector | None = None,
    ) -> None:
        self.authorization = authorization
        self.extra_data_collector = extra_data_collector or ExtraDataCollector()
