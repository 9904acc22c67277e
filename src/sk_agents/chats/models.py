"""What clients of the chats API send. Unknown fields are refused: a typo must not pass silently."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, model_validator

from sk_agents.engine.models import Part, UserInput
from sk_agents.http.images import checked_image

MAX_TEXT_BYTES = 256 * 1024
MAX_ITEMS = 32
MAX_TITLE = 200
MAX_NAME = 255


def _bounded(text: str) -> str:
    # A code point has at most four bytes, so most texts need no encoding to be counted.
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"must have at most {MAX_TEXT_BYTES} bytes")
    return text


def _spoken(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return _bounded(text)


Said = Annotated[str, AfterValidator(_spoken)]
Text = Annotated[str, AfterValidator(_bounded)]
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), AfterValidator(_spoken)]
ChatId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
OnBusy = Literal["reject", "enqueue", "interrupt"]
OnDisconnect = Literal["cancel", "continue"]


class Request(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


class Item(Request):
    """Something sent along with a message: an image as a data URI, or a text file."""

    content_type: Literal["text", "image"]
    content: str
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None

    @model_validator(mode="after")
    def _content_fits_its_type(self) -> Item:
        if self.content_type == "image":
            checked_image(self.content)
        else:
            _spoken(self.content)
        return self

    def part(self) -> Part:
        if self.content_type == "image":
            return Part(kind="image", content=self.content, name=self.name)
        return Part(kind="file", content=self.content, name=self.name)


Items = Annotated[tuple[Item, ...], Field(max_length=MAX_ITEMS)]


class StartInteraction(Request):
    user_message: Said
    items: Items = ()
    agent: AgentName | None = None
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None

    def message(self) -> UserInput:
        return _message(self.user_message, self.items)


class EditInteraction(Request):
    new_user_message: Said
    items: Items = ()
    agent: AgentName | None = None
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None

    def message(self) -> UserInput:
        return _message(self.new_user_message, self.items)


class Regenerate(Request):
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None


class Decision(Request):
    """Yes or no to what was shown; `digest` echoes it, so that nothing else can be meant."""

    approved: StrictBool
    message: Annotated[str, Field(max_length=4000)] | None = None
    edited_arguments: dict[str, Any] | None = None
    remember: Literal["run", "thread"] | None = None
    digest: Annotated[str, Field(max_length=128)] | None = None
    choice: Literal["done", "retry", "give_up"] | None = None
    answer: Any = None

    @model_validator(mode="after")
    def _only_what_runs_is_changed(self) -> Self:
        if not self.approved and (self.edited_arguments is not None or self.remember is not None):
            raise ValueError("edited_arguments and remember go with approved: true")
        return self


class NamedDecision(Decision):
    approval_id: Annotated[str, Field(min_length=1, max_length=128)]


class NewChat(Request):
    chat_id: ChatId | None = None
    agent: AgentName | None = None
    title: Title | None = None


class ChatChange(Request):
    title: Title


class BranchChoice(Request):
    interaction_id: Annotated[str, Field(min_length=1, max_length=128)]


def _message(text: str, items: tuple[Item, ...]) -> UserInput:
    return UserInput(parts=(Part(content=text), *(item.part() for item in items)))
