"""Events as stores keep and give them: numbered, dated, and as small as they can be.

Most of what a process knows by heart is such events, of old turns.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from sk_agents.engine.events import Event, EventBase, KnownEvent, Unrecognised
from sk_agents.engine.models import EPOCH

# Built when a log is first read: a start has better things to do.
_KNOWN: TypeAdapter[KnownEvent] = TypeAdapter(
    Annotated[KnownEvent, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)
EVENT_TYPES = frozenset(kind.model_fields["type"].default for kind in KnownEvent.__args__)


def numbered(event: Event, seq: int, now: datetime) -> Event:
    """A copy with its number, dated unless it happened elsewhere and brings its date along.

    It is what `model_copy` does, for a quarter of its time: events have neither extra nor private
    fields, and whoever sent them may have to send them again.
    """
    at = now if event.at is EPOCH or event.at == EPOCH else event.at
    copy = object.__new__(type(event))
    object.__setattr__(copy, "__dict__", {**event.__dict__, "seq": seq, "at": at})
    object.__setattr__(copy, "__pydantic_fields_set__", _fields_of(type(event)))
    object.__setattr__(copy, "__pydantic_extra__", None)
    object.__setattr__(copy, "__pydantic_private__", None)
    return copy


def event_from(document: dict[str, Any]) -> Event:
    """The event a stored document describes.

    Raises:
        ValidationError: a known type with a field that does not fit, or a type that is no text.
    """
    kind = document.get("type")
    if isinstance(kind, str) and kind in EVENT_TYPES:
        event = _KNOWN.validate_python(document)
        object.__setattr__(event, "__pydantic_fields_set__", _fields_of(type(event)))
        return event
    return Unrecognised.model_validate(document)


@cache
def _fields_of(kind: type[EventBase]) -> set[str]:
    """Shared by all events of a kind: a set of its own is a sixth of what each takes in memory."""
    return set(kind.model_fields)
