"""What a client says was said before: from its input to messages, and from those to a log.

Each message of the user begins a run that the assistant's next message answers, so that a history
too long for the model is compacted as any other. What does not come in such pairs, and everything
before it, is imported as it is.
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

# Often said, never registered.
MISNAMED = "data:image/jpg;"
PROPER = "data:image/jpeg;"


@dataclass(frozen=True, slots=True)
class Utterance:
    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str | None:
        """All of it, if it is nothing but text."""
        if any(part.kind != "text" for part in self.parts):
            return None
        return "\n".join(part.content for part in self.parts)


def utterances(history: Any) -> list[Utterance]:
    """The messages of an input's `chat_history`, in order.

    Raises:
        InvalidInput: a message that says nothing, an image that is none, or something else
            altogether, as the operator's own input type may hold.
    """
    if history is None:
        return []
    if not isinstance(history, list | tuple):
        raise InvalidInput("chat_history must be a list of messages.")
    return [_utterance(number, message) for number, message in enumerate(history)]


def context_utterance(context: Any) -> list[Utterance]:
    """What the client knows about its user, as the first thing said."""
    if not isinstance(context, dict) or not context:
        return []
    lines = "\n".join(f"  {name}: {value}" for name, value in context.items())
    text = f"What is known about the user:\n{lines}"
    return [Utterance("user", (Part(content=text),))]


def embedded_part(image: Any) -> Part | None:
    """The image of an input that has one.

    Raises:
        InvalidInput: it is not an image that models read.
    """
    if not isinstance(image, EmbeddedImage):
        return None
    kind = image.format if "/" in image.format else f"image/{image.format}"
    return _image(f"data:{kind.lower()};base64,{image.data}", "embedded_image")


def past_events(thread_id: str, past: Sequence[Utterance]) -> list[Event]:
    """A log in which this was said."""
    start = _first_paired(past)
    return [*_imported(past[:start]), *_runs(thread_id, past[start:])]


def _utterance(number: int, message: Any) -> Utterance:
    given = message
    if not isinstance(given, HistoryMultiModalMessage):
        document = given.model_dump() if isinstance(given, BaseModel) else given
        try:
            given = HistoryMultiModalMessage.model_validate(document)
        except ValidationError:
            raise InvalidInput(f"chat_history[{number}] is not a message.") from None
    if not given.items:
        raise InvalidInput(f"chat_history[{number}] has no items.")
    return Utterance(given.role, tuple(_part(number, item) for item in given.items))


def _part(number: int, item: MultiModalItem) -> Part:
    if item.content_type == "image":
        return _image(item.content, f"chat_history[{number}]")
    return Part(content=item.content)


def _image(uri: str, place: str) -> Part:
    if uri.startswith(MISNAMED):
        uri = PROPER + uri.removeprefix(MISNAMED)
    try:
        return Part(kind="image", content=checked_image(uri))
    except ValueError as error:
        raise InvalidInput(f"The image of {place} {error}.") from None


def _first_paired(past: Sequence[Utterance]) -> int:
    """From where on every message of the assistant is a text that answers one of the user's."""
    for place in range(len(past) - 1, -1, -1):
        if past[place].role == "user":
            continue
        if past[place].text is None or place == 0 or past[place - 1].role == "assistant":
            return place + 1
    return 0


def _imported(past: Sequence[Utterance]) -> Iterator[Event]:
    items = [
        ImportedItem(role=said.role, content_type=kind, content=content, run_id="", at=EPOCH)
        for said in past
        for kind, content in _contents(said)
    ]
    if items:
        yield Imported(items=tuple(items))


def _contents(said: Utterance) -> Iterator[tuple[Literal["text", "image"], str]]:
    if said.text is not None:
        yield "text", said.text
        return
    for part in said.parts:
        yield ("image" if part.kind == "image" else "text"), part.content


def _runs(thread_id: str, past: Sequence[Utterance]) -> Iterator[Event]:
    parent: str | None = None
    for place, said in enumerate(past):
        if said.role == "assistant":
            continue
        # Runs are found by their ids across all threads.
        run_id = f"{thread_id}-{place}"
        message = UserInput(parts=said.parts)
        yield RunStarted(run_id=run_id, message=message, parent_run=parent)
        answer = past[place + 1] if place + 1 < len(past) else None
        if answer is not None and answer.role == "assistant":
            yield Answered(run_id=run_id, content=answer.text or "")
        yield RunEnded(run_id=run_id, status=RunStatus.COMPLETED)
        parent = run_id
