"""Reading an interaction or a chat to its end, over as many connections as that takes.

Stored events come exactly once and in order. Previews are cut to what is new, so that printing
them one after the other gives the text; only a higher attempt, or a tool's next call, begins it
anew.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass, field

from sk_agents.client.errors import ClientError, ProtocolError, ServerUnreachable
from sk_agents.client.events import (
    AnswerDelta,
    Complete,
    Event,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    event_of,
    payload_of,
    seq_of,
)
from sk_agents.client.link import ByteStream, Link, Request, path_of
from sk_agents.client.patience import Patience
from sk_agents.client.sse_parser import Frame, SseParser

STREAM_END = "stream_end"
Key = tuple[Hashable, ...]


@dataclass(slots=True)
class Place:
    """What is read, and how far.

    `opening` starts the interaction; with its idempotency key it is repeated until an event with
    an id has come, which says where to go on. Without `opening` and `interaction_id` the whole
    chat is read, without end. `last` is the id of the last event seen.
    """

    chat_id: str
    opening: Request | None = None
    interaction_id: str | None = None
    last: str | None = None
    is_over: bool = False
    _heard: dict[Key, int] = field(default_factory=dict)

    def request(self) -> Request:
        if self.interaction_id is not None:
            headers = {} if self.last is None else {"Last-Event-ID": self.last}
            path = path_of("chats", self.chat_id, "interactions", self.interaction_id, "events")
            return Request("GET", path, headers=headers)
        if self.opening is not None:
            return self.opening
        query = {} if self.last is None else {"after": self.last}
        return Request("GET", path_of("chats", self.chat_id, "events"), query=query)

    def take(self, frame: Frame) -> Event | None:
        """The frame's event, or `None` if nothing in it is new."""
        event = event_of(frame, interaction_id=self.interaction_id or "")
        if event.seq is None:
            return self._unheard(event)
        if self.last is not None and event.seq <= seq_of(self.last):
            return None
        self.last = event.event_id
        if self.opening is not None:
            if not event.interaction_id:
                raise ProtocolError("the server began a stream without naming the interaction")
            self.interaction_id, self.opening = event.interaction_id, None
        match event:
            case Complete():
                self._heard.clear()
                self.is_over = event.interaction_id == self.interaction_id
            case ToolCall():
                self._heard.pop((ToolOutput, event.id), None)
        return event

    def _unheard(self, event: Event) -> Event | None:
        """A preview without what has been heard of its text; `None` if nothing is left."""
        match event:
            case AnswerDelta() | ThinkingDelta():
                key: Key = (type(event), event.interaction_id, event.round, event.attempt)
                name, text, offset = "content", event.content, event.offset
            case ToolOutput(offset=int(offset)):
                key = (ToolOutput, event.call_id)
                name, text = "chunk", event.chunk
            case _:
                return event
        heard = self._heard.get(key, 0)
        known = max(0, heard - offset)
        if known >= len(text):
            return None
        self._heard[key] = offset + len(text)
        return event.model_copy(update={"offset": heard, name: text[known:]}) if known else event


async def follow(link: Link, place: Place) -> AsyncGenerator[list[Event], None]:
    """The events from `place` on, those of one read together. Moves `place` along.

    Raises:
        TealServerError: refused for good, or for too long.
        ServerUnreachable: no sign of life for too long.
        ProtocolError: the server sent what cannot be understood.
    """
    patience = link.patience()
    while not place.is_over:
        parser = SseParser()
        try:
            async with link.stream(place.request()) as stream:
                if stream is None:
                    return
                connection = _Connection(stream, parser, place, patience)
                while connection.ending is None:
                    if batch := await connection.read():
                        yield batch
                    if place.is_over:
                        return
                failure: ClientError = ServerUnreachable(connection.ending)
        except ClientError as error:
            failure = error
        await patience.wait(failure, at_least=(parser.retry or 0) / 1000)


@dataclass(slots=True)
class _Connection:
    """`ending` says why there is nothing more to read from it, once there is not."""

    stream: ByteStream
    parser: SseParser
    place: Place
    patience: Patience
    ending: str | None = None

    async def read(self) -> list[Event]:
        read = await self.stream.read()
        if not read:
            self.ending = "The stream ended before the interaction did."
            return []
        before = self.place.last
        events = self._events(read)
        if self.place.last != before:
            self.patience.note_progress()
        elif self.ending is None:
            self.patience.note_life()
        return events

    def _events(self, read: bytes) -> list[Event]:
        events = []
        for frame in self.parser.feed(read):
            if frame.event == STREAM_END:
                reason = payload_of(frame).get("reason", "no reason given")
                self.ending = f"The server ended the stream: {reason}."
                break
            if event := self.place.take(frame):
                events.append(event)
        return events
