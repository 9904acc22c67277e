"""What clients of the chats API send. Unknown fields are refused: a typo must not pass silently."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, model_validator

from sk_agents.wire.events import Choice, Place, Rating
from sk_agents.wire.files import checked_pdf
from sk_agents.wire.images import checked_image

MAX_TEXT_BYTES = 256 * 1024
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_ITEMS = 32
MAX_TITLE = 200
MAX_NAME = 255
MAX_NOTE = 4000
MAX_TAGS = 20
MAX_TAG = 40
_NO_TAG = re.compile(r"[\x00-\x1f\x7f,\ud800-\udfff]")


def _not_blank(text: str, most: int = MAX_TEXT_BYTES) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    # A code point has at most four bytes, so most texts need no encoding to be counted.
    if len(text) * 4 > most and len(text.encode()) > most:
        raise ValueError(f"must have at most {most} bytes")
    return text


def _message_text(text: str) -> str:
    return _not_blank(text)


def checked_tag(tag: str) -> str:
    """The tag as it is kept: in lower case, with single spaces, so that it is the same however it
    was typed.

    Raises:
        ValueError: it is empty, too long, or has a comma or a control character in it.
    """
    kept = " ".join(unicodedata.normalize("NFC", tag).lower().split())
    if not kept or len(kept) > MAX_TAG or _NO_TAG.search(kept):
        raise ValueError(f"a tag has 1 to {MAX_TAG} characters, no comma and no line break")
    return kept


def _without_repeats(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tags))


Tag = Annotated[str, AfterValidator(checked_tag)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS), AfterValidator(_without_repeats)]
MessageText = Annotated[str, AfterValidator(_message_text)]
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), AfterValidator(_message_text)]
ChatId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
OnBusy = Literal["reject", "enqueue", "interrupt"]
OnDisconnect = Literal["cancel", "continue"]
Remember = Literal["run", "thread"]


class RequestBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


class Item(RequestBody):
    """Something sent along with a message: an image or a PDF as a data URI, or a text file."""

    content_type: Literal["text", "image", "pdf"]
    content: str
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None

    @model_validator(mode="after")
    def _content_fits_its_type(self) -> Item:
        match self.content_type:
            case "image":
                checked_image(self.content)
            case "pdf":
                checked_pdf(self.content)
            case "text":
                _not_blank(self.content, MAX_FILE_BYTES)
        return self


Items = Annotated[tuple[Item, ...], Field(max_length=MAX_ITEMS)]


class StartInteraction(RequestBody):
    user_message: MessageText
    items: Items = ()
    agent: AgentName | None = None
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None


class EditInteraction(RequestBody):
    new_user_message: MessageText
    items: Items = ()
    agent: AgentName | None = None
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None


class Regenerate(RequestBody):
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None


class Steer(RequestBody):
    """Something for an interaction that is at work."""

    user_message: MessageText


class CancelInteraction(RequestBody):
    """Without `after` it stops at once; with `step`, once what is at work has come to its end."""

    after: Literal["step"] | None = None


class ApprovalDecision(RequestBody):
    """Yes or no to what was shown; `digest` echoes it, so that nothing else can be meant."""

    approved: StrictBool
    message: Annotated[str, Field(max_length=4000)] | None = None
    edited_arguments: dict[str, Any] | None = None
    remember: Remember | None = None
    digest: Annotated[str, Field(max_length=128)] | None = None
    choice: Choice | None = None
    answer: Any = None

    @model_validator(mode="after")
    def _only_what_runs_is_changed(self) -> Self:
        if not self.approved and (self.edited_arguments is not None or self.remember is not None):
            raise ValueError("edited_arguments and remember go with approved: true")
        return self


class NamedDecision(ApprovalDecision):
    approval_id: Annotated[str, Field(min_length=1, max_length=128)]


class NewChat(RequestBody):
    chat_id: ChatId | None = None
    agent: AgentName | None = None
    title: Title | None = None


class ChatChange(RequestBody):
    """What is not named stays as it is. `place` moves the chat: into the bin it is not gone yet,
    but what runs in it is stopped. `tags` replaces all tags; an empty list removes them."""

    title: Title | None = None
    pinned: StrictBool | None = None
    place: Place | None = None
    tags: Tags | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if all(value is None for value in (self.title, self.pinned, self.place, self.tags)):
            raise ValueError("must name title, pinned, place or tags")
        return self


class NewShare(RequestBody):
    """Without an interaction, up to the last one that is shown."""

    interaction_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class GiveFeedback(RequestBody):
    """What an answer was worth. The note is read by those who run the server."""

    rating: Rating
    note: Annotated[str, Field(max_length=MAX_NOTE), AfterValidator(_message_text)] | None = None


class BranchChoice(RequestBody):
    interaction_id: Annotated[str, Field(min_length=1, max_length=128)]


McpServerName = Annotated[str, Field(min_length=1, max_length=40)]
MAX_ARGUMENTS = 64


class FillPrompt(RequestBody):
    """A prompt of an MCP server that the agent uses, and what goes into it."""

    server: McpServerName
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    arguments: Annotated[dict[str, str], Field(max_length=MAX_ARGUMENTS)] = {}
    agent: AgentName | None = None


class BeginSignIn(RequestBody):
    """An MCP server of the agent at which users sign in."""

    server: McpServerName
    agent: AgentName | None = None


class ReadResource(RequestBody):
    """A resource of an MCP server that the agent uses."""

    server: McpServerName
    uri: Annotated[str, Field(min_length=1, max_length=2048)]
    agent: AgentName | None = None
