"""Words shared by the surfaces, the back rooms and users' own classes: inputs, tasks, plugins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from sk_agents.exceptions import ToolError

MAX_EXTRA_DATA = 64 * 1024
# Where a task's version lies in its metadata.
VERSION_KEY = "_version"


def _in_utc(moment: datetime) -> datetime:
    """Aware, in UTC. A time without a zone is taken to be UTC already."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_in_utc)]
TaskStatus = Literal["Running", "Paused", "Completed", "Failed", "Canceled"]


T = TypeVar("T")


class ContentType(StrEnum):
    """The kinds of `MultiModalItem`; each is equal to its text."""

    TEXT = "text"
    IMAGE = "image"


class MultiModalItem(BaseModel):
    """A piece of a message: text, or an image as a data URI."""

    content_type: ContentType = ContentType.TEXT
    content: str


class HistoryMessage(BaseModel):
    """An earlier message, as plain text."""

    role: Literal["user", "assistant"]
    content: str


class HistoryMultiModalMessage(BaseModel):
    """An earlier message, as items; a plain `content` is one text item."""

    role: Literal["user", "assistant"]
    items: list[MultiModalItem]

    @model_validator(mode="before")
    @classmethod
    def _content_is_an_item(cls, data: Any) -> Any:
        if isinstance(data, dict) and "content" in data and data.get("items") is None:
            rest = {key: value for key, value in data.items() if key != "content"}
            return {**rest, "items": [{"content": data["content"]}]}
        return data


class BaseInput(BaseModel):
    """A conversation so far; its last message is the one to answer."""

    chat_history: list[HistoryMessage] | None = None


class BaseInputWithUserContext(BaseInput):
    """A conversation so far, and what the client knows about its user."""

    user_context: dict[str, str] | None = None


class BaseMultiModalInput(BaseModel):
    """A conversation of texts and images; `session_id` comes back with the answer."""

    session_id: str | None = None
    chat_history: list[HistoryMultiModalMessage] | None = None


class BaseMultiModalInputWithUserContext(BaseMultiModalInput):
    """The same, and what the client knows about its user."""

    user_context: dict[str, str] | None = None


class EmbeddedImage(BaseModel):
    """An image in base64; `format` is its media type, such as `image/png`."""

    format: str
    data: str


class BaseEmbeddedImage(BaseModel):
    """An image for the first task to look at."""

    embedded_image: EmbeddedImage


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
    def last_updated(self) -> datetime:
        """`last_updated_at` as the public project calls it."""
        return self.last_updated_at

    @last_updated.setter
    def last_updated(self, moment: datetime) -> None:
        self.last_updated_at = moment

    @property
    def version(self) -> str | None:
        """Another one for each write of this server; `None` for a task of another program."""
        version = self.metadata.get(VERSION_KEY)
        return version if isinstance(version, str) else None

    @property
    def stored(self) -> StoredState | None:
        """`None` for a task that was never stored or loaded, or came through JSON since."""
        return self._mark.state

    def mark_stored(self) -> Self:
        """Note that a store holds this task as it is now, to recognise later changes."""
        state = StoredState(len(self.items), self.status, deepcopy(self.metadata))
        self._mark = _Mark(state)
        return self


class TokenUsage(BaseModel):
    """Of all model calls of a request together."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int


class ExtraDataElement(BaseModel):
    key: str
    value: str


class ExtraData(BaseModel):
    """What plugins hand to the client beside the answer; no model sees it."""

    items: list[ExtraDataElement]


class ExtraDataPartial(BaseModel):
    """The last frame of a websocket, if plugins have handed something over."""

    extra_data: ExtraData | None = None

    @staticmethod
    def new_from_json(json_str: str) -> ExtraDataPartial:
        return ExtraDataPartial.model_validate_json(json_str)


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


class InvokeResponse(BaseModel, Generic[T]):
    """An answer: its text, and the same as the configured type if there is one."""

    session_id: str | None = None
    source: str | None = None
    request_id: str | None = None
    token_usage: TokenUsage
    extra_data: ExtraData | None = None
    output_raw: str | None = None
    output_pydantic: T | None = None


class IntermediateTaskResponse(BaseModel):
    """The answer of a task that others follow; `task_no` counts from 1."""

    task_no: int
    task_name: str
    response: InvokeResponse[None]


class PartialResponse(BaseModel):
    """A piece of the answer as it appears."""

    session_id: str | None = None
    source: str | None = None
    request_id: str | None = None
    output_partial: str


class BaseConfig(BaseModel):
    """What every agent file has in common; the rest is kept as it is."""

    model_config = ConfigDict(extra="allow")

    apiVersion: str
    name: str | None = None
    service_name: str | None = None
    version: str | float | int
    description: str | None = None
    metadata: dict[str, Any] | None = None
    input_type: str | None = None
    output_type: str | None = None
    spec: Any | None = None


class BaseHandler(ABC):
    """What answers the requests for one agent."""

    @abstractmethod
    async def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """The whole answer."""

    @abstractmethod
    def invoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterable[Any]:
        """The answer as it appears."""


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


class ModelType(Enum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


class ChatCompletionFactory(ABC):
    """What such a class looks like. Deriving from it is not required."""

    def __init__(self, app_config: Any) -> None:
        self.app_config = app_config

    @staticmethod
    def get_configs() -> Iterable[Any]:
        """The variables it reads, each with `env_name`, `is_required` and `default_value`."""
        return []

    @abstractmethod
    def get_chat_completion_for_model_name(self, model_name: str, service_id: str) -> Any:
        """The client.

        Raises:
            ValueError: the name is not one of its own.
        """

    def get_model_type_for_name(self, model_name: str) -> ModelType:
        return ModelType.OPENAI

    def model_supports_structured_output(self, model_name: str) -> bool:
        return False
