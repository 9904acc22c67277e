"""Reading an interaction or a chat to its end, over as many connections as that takes.

Stored events come exactly once and in order. Previews are cut to what is new, so that printing
them one after the other gives the text; only a higher attempt, or a tool's next call, begins the
text again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from sk_agents.client.connection import Backoff, ServerConnection, ServerRequest, path_of
from sk_agents.client.errors import ClientError, ProtocolError, ServerUnreachable
from sk_agents.client.sse_parser import Frame, SseParser
from sk_agents.wire.events import (
    EVENTS,
    AnswerDelta,
    Event,
    InteractionComplete,
    ThinkingDelta,
    ToolCallEvent,
    ToolOutput,
    Unknown,
)

STREAM_END = "stream_end"
Key = tuple[Hashable, ...]


@dataclass(slots=True)
class StreamPosition:
    """What is read, and how far.

    `opening` starts the interaction; with its idempotency key it is repeated until an event with
    an id has come, which says where to go on. Without `opening` and `interaction_id` the whole
    chat is read, without end. `last` is the id of the last event seen.
    """

    chat_id: str
    opening: ServerRequest | None = None
    interaction_id: str | None = None
    last: str | None = None
    is_over: bool = False
    _lengths: dict[Key, int] = field(default_factory=dict)
    """How much of each text has been shown as previews."""

    def request(self) -> ServerRequest:
        if self.interaction_id is not None:
            headers = {} if self.last is None else {"Last-Event-ID": self.last}
            path = path_of("chats", self.chat_id, "interactions", self.interaction_id, "events")
            return ServerRequest("GET", path, headers=headers)
        if self.opening is not None:
            return self.opening
        query = {} if self.last is None else {"after": self.last}
        return ServerRequest("GET", path_of("chats", self.chat_id, "events"), query=query)

    def take(self, frame: Frame) -> Event | None:
        """The frame's event, or `None` if nothing in it is new."""
        event = event_of(frame, interaction_id=self.interaction_id or "")
        if event.seq is None:
            return self._unseen(event)
        if self.last is not None and event.seq <= seq_of(self.last):
            return None
        self.last = event.event_id
        if self.opening is not None:
            if not event.interaction_id:
                raise ProtocolError("the server began a stream without naming the interaction")
            self.interaction_id, self.opening = event.interaction_id, None
        match event:
            case InteractionComplete():
                self._lengths.clear()
                self.is_over = event.interaction_id == self.interaction_id
            case ToolCallEvent():
                self._lengths.pop((ToolOutput, event.id), None)
        return event

    def _unseen(self, event: Event) -> Event | None:
        """A preview without the part of its text that was shown; `None` if nothing is left."""
        match event:
            case AnswerDelta() | ThinkingDelta():
                key: Key = (type(event), event.interaction_id, event.round, event.attempt)
                name, text, offset = "content", event.content, event.offset
            case ToolOutput(offset=int(offset)):
                key = (ToolOutput, event.call_id)
                name, text = "chunk", event.chunk
            case _:
                return event
        shown = self._lengths.get(key, 0)
        known = max(0, shown - offset)
        if known >= len(text):
            return None
        self._lengths[key] = offset + len(text)
        return event.model_copy(update={"offset": shown, name: text[known:]}) if known else event


async def read_events(
    connection: ServerConnection, position: StreamPosition
) -> AsyncGenerator[list[Event], None]:
    """The events from `position` on, those of one read together. Moves `position` along.

    Raises:
        TealServerError: refused for good, or for too long.
        ServerUnreachable: no sign of life for too long.
        ProtocolError: the server sent what cannot be understood.
    """
    backoff = connection.backoff()
    while not position.is_over:
        reader = _Reader(position, backoff)
        try:
            async with connection.stream(position.request()) as stream:
                if stream is None:
                    return
                while reader.ending is None:
                    if batch := reader.events(await stream.read()):
                        yield batch
                    if position.is_over:
                        return
                failure: ClientError = ServerUnreachable(reader.ending)
        except ClientError as error:
            failure = error
        await backoff.wait(failure, at_least=(reader.parser.retry or 0) / 1000)


@dataclass(slots=True)
class _Reader:
    """Of one connection. `ending` says why there is nothing more to read, once there is not."""

    position: StreamPosition
    backoff: Backoff
    parser: SseParser = field(default_factory=SseParser)
    ending: str | None = None

    def events(self, read: bytes) -> list[Event]:
        """Those of one read, which is empty at the end."""
        if not read:
            self.ending = "The stream ended before the interaction did."
            return []
        before = self.position.last
        events = []
        for frame in self.parser.feed(read):
            if frame.event == STREAM_END:
                reason = payload_of(frame).get("reason", "no reason given")
                self.ending = f"The server ended the stream: {reason}."
                break
            if event := self.position.take(frame):
                events.append(event)
        if self.position.last != before:
            self.backoff.note_progress()
        elif self.ending is None:
            self.backoff.note_life()
        return events


def event_of(frame: Frame, *, interaction_id: str = "") -> Event:
    """The event in a frame; `interaction_id` is for payloads that do not name theirs.

    Raises:
        ProtocolError: a known event with a payload that does not fit, or an id without a number.
    """
    payload = payload_of(frame)
    about: dict[str, Any] = {
        "seq": seq_of(frame.id) if frame.id else None,
        "event_id": frame.id or None,
        "interaction_id": str(payload.get("interaction_id") or interaction_id),
    }
    kind = EVENTS.get(frame.event)
    if kind is None:
        return Unknown(name=frame.event, data=frame.data, **about)
    try:
        return kind.model_validate({**payload, **about})
    except ValidationError as error:
        raise ProtocolError(f"the server sent an unusable event {frame.event!r}") from error


def payload_of(frame: Frame) -> dict[str, Any]:
    """The frame's JSON object; empty if an event without a known name has none.

    Raises:
        ProtocolError: a known event without a JSON object.
    """
    try:
        payload = orjson.loads(frame.data)
    except orjson.JSONDecodeError:
        payload = None
    if isinstance(payload, dict):
        return payload
    if frame.event in EVENTS:
        raise ProtocolError(f"the server sent an event {frame.event!r} that is no JSON object")
    return {}


def seq_of(event_id: str) -> int:
    """The place in the log that an event's id begins with; only the server reads what follows.

    Raises:
        ProtocolError: it begins with none.
    """
    number = event_id.partition("-")[0]
    if number.isascii() and number.isdigit() and len(number) < 20:
        return int(number)
    raise ProtocolError(f"the server sent an event id without a number: {event_id[:80]!r}")
