"""The conversation so far, as the client sends it: from its input to messages, then to a log.

Each message of the user begins a run that the assistant's next message answers, so that a history
too long for the model is compacted like any other. Messages that do not come in such pairs, and
everything before them, are imported as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from sk_agents.engine.events import (
    Answered,
    Event,
    Imported,
    ImportedItem,
    RunEnded,
    RunStarted,
)
from sk_agents.engine.models import EPOCH, Part, RunStatus, UserInput
from sk_agents.exceptions import InvalidInput
from sk_agents.ska_types import EmbeddedImage, HistoryMultiModalMessage, MultiModalItem
from sk_agents.wire.images import checked_image

# Common, but not a registered media type.
UNREGISTERED_JPEG = "data:image/jpg;"
REGISTERED_JPEG = "data:image/jpeg;"


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str | None:
        """All of it, if it is nothing but text."""
        if any(part.kind != "text" for part in self.parts):
            return None
        return "\n".join(part.content for part in self.parts)


def history_messages(history: Any) -> list[ConversationMessage]:
    """The messages of an input's `chat_history`, in order.

    Raises:
        InvalidInput: a message without content, an image that is none, or a value that is no
            message, which an operator's own input type may hold.
    """
    if history is None:
        return []
    if not isinstance(history, list | tuple):
        raise InvalidInput("chat_history must be a list of messages.")
    return [_message(number, message) for number, message in enumerate(history)]


def context_message(context: Any) -> list[ConversationMessage]:
    """What the client knows about its user, as the first message."""
    if not isinstance(context, dict) or not context:
        return []
    lines = "\n".join(f"  {name}: {value}" for name, value in context.items())
    text = f"What is known about the user:\n{lines}"
    return [ConversationMessage("user", (Part(content=text),))]


def embedded_image_part(image: Any) -> Part | None:
    """The image of an input that has one.

    Raises:
        InvalidInput: it is not an image that models read.
    """
    if not isinstance(image, EmbeddedImage):
        return None
    kind = image.format if "/" in image.format else f"image/{image.format}"
    return _image(f"data:{kind.lower()};base64,{image.data}", "embedded_image")


def past_events(thread_id: str, past: Sequence[ConversationMessage]) -> list[Event]:
    """The log of a thread in which these messages were said."""
    start = _first_paired(past)
    return [*_imported(past[:start]), *_runs(thread_id, past[start:])]


def _message(number: int, message: Any) -> ConversationMessage:
    given = message
    if not isinstance(given, HistoryMultiModalMessage):
        document = given.model_dump() if isinstance(given, BaseModel) else given
        try:
            given = HistoryMultiModalMessage.model_validate(document)
        except ValidationError:
            raise InvalidInput(f"chat_history[{number}] is not a message.") from None
    if not given.items:
        raise InvalidInput(f"chat_history[{number}] has no items.")
    return ConversationMessage(given.role, tuple(_part(number, item) for item in given.items))


def _part(number: int, item: MultiModalItem) -> Part:
    if item.content_type == "image":
        return _image(item.content, f"chat_history[{number}]")
    return Part(content=item.content)


def _image(uri: str, place: str) -> Part:
    if uri.startswith(UNREGISTERED_JPEG):
        uri = REGISTERED_JPEG + uri.removeprefix(UNREGISTERED_JPEG)
    try:
        return Part(kind="image", content=checked_image(uri))
    except ValueError as error:
        raise InvalidInput(f"The image of {place} {error}.") from None


def _first_paired(past: Sequence[ConversationMessage]) -> int:
    """The place from which every message of the assistant is a text that answers the user."""
    for place in range(len(past) - 1, -1, -1):
        if past[place].role == "user":
            continue
        if past[place].text is None or place == 0 or past[place - 1].role == "assistant":
            return place + 1
    return 0


def _imported(past: Sequence[ConversationMessage]) -> Iterator[Event]:
    items = [
        ImportedItem(role=message.role, content_type=kind, content=content, run_id="", at=EPOCH)
        for message in past
        for kind, content in _contents(message)
    ]
    if items:
        yield Imported(items=tuple(items))


def _contents(message: ConversationMessage) -> Iterator[tuple[Literal["text", "image"], str]]:
    if message.text is not None:
        yield "text", message.text
        return
    for part in message.parts:
        yield ("image" if part.kind == "image" else "text"), part.content


def _runs(thread_id: str, past: Sequence[ConversationMessage]) -> Iterator[Event]:
    parent: str | None = None
    for place, message in enumerate(past):
        if message.role == "assistant":
            continue
        # Runs are found by their ids across all threads.
        run_id = f"{thread_id}-{place}"
        yield RunStarted(run_id=run_id, message=UserInput(parts=message.parts), parent_run=parent)
        answer = past[place + 1] if place + 1 < len(past) else None
        if answer is not None and answer.role == "assistant":
            yield Answered(run_id=run_id, content=answer.text or "")
        yield RunEnded(run_id=run_id, status=RunStatus.COMPLETED)
        parent = run_id
