"""Live text between instances: from the one that drives a run to those that have readers of it.

A reader that has read all that is stored, of a run that is not driven here, asks all instances. The
one that drives the run answers with the text so far and sends what is new, collected for a tenth of
a second, until the reader leaves or its instance asks no more. A driver of whose run none asked
sends nothing.

What is stored stays the truth, and every message may be lost. Each piece carries its offset, so
that a reader never shows text with a hole in it: it asks again from where it is, or waits for the
stored answer. Each message says how far the log was when it was sent, so that no text is shown to a
reader that has read its stored form; and the epoch of the lease, so that an owner that was replaced
is not believed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sk_agents.engine.ports import Peers, Signals
from sk_agents.engine.reading.live import DeltaKind, LiveRun, MirroredRun, StreamKey
from sk_agents.engine.threads.known import KnownThreads

logger = logging.getLogger(__name__)

# New text is collected for so long before it is sent.
PERIOD_SECONDS = 0.1
# How often an instance with readers asks again, and how long a driver sends without being asked.
RENEW_SECONDS = 3.0
LIFETIME_SECONDS = 10.0
# So many questions in a row without an answer: the instance that drove the run is gone.
UNANSWERED = 3


class _Message(BaseModel):
    """Fields that this version does not know are left unread: a newer one may have sent them."""

    model_config = ConfigDict(frozen=True)

    thread_id: str
    incarnation: str


class TextAsked(_Message):
    """Send me the text of this thread's run; of these streams I have so many characters."""

    type: Literal["asked"] = "asked"
    have: tuple[tuple[DeltaKind, int, int, str | None, int], ...] = ()


class Left(_Message):
    """I have no reader of it any more."""

    type: Literal["left"] = "left"


class Text(_Message):
    """All open streams of the run, each with the offset of its new piece, which may be empty."""

    type: Literal["text"] = "text"
    run_id: str
    epoch: int
    next_seq: int
    streams: tuple[tuple[DeltaKind, int, int, str | None, int, str], ...]


class Ended(_Message):
    """I do not drive it."""

    type: Literal["ended"] = "ended"


_MESSAGE: TypeAdapter[TextAsked | Left | Text | Ended] = TypeAdapter(
    Annotated[TextAsked | Left | Text | Ended, Field(discriminator="type")]
)


@dataclass(slots=True)
class _Destination:
    """An instance with readers: what it was sent, and until when it wants more."""

    until: float
    seen: dict[StreamKey, tuple[int, int]]


@dataclass(slots=True)
class _Feed:
    """The text of a run that is driven here, on its way to other instances."""

    live: LiveRun
    destinations: dict[str, _Destination] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    sent_at: float = 0.0


@dataclass(slots=True)
class _Followed:
    """A thread with readers here that is not driven here, as far as is known."""

    readers: int = 0
    mirror: MirroredRun | None = None
    source: str | None = None
    incarnation: str = ""
    unanswered: int = 0
    renewal: asyncio.TimerHandle | None = None
    asked_at: float = float("-inf")
    asking: asyncio.TimerHandle | None = None


class LiveRelay:
    """`live` are the runs that are driven here, by thread. Without `peers` it does nothing."""

    def __init__(
        self,
        peers: Peers | None,
        live: Mapping[str, LiveRun],
        threads: KnownThreads,
        signals: Signals,
    ) -> None:
        self._peers = peers
        self._live = live
        self._threads = threads
        self._signals = signals
        self._feeds: dict[str, _Feed] = {}
        self._followed: dict[str, _Followed] = {}
        if peers is not None:
            peers.receive(self._receive)

    # -- for readers

    def mirror(self, thread_id: str) -> MirroredRun | None:
        followed = self._followed.get(thread_id)
        return followed.mirror if followed is not None else None

    def joined(self, thread_id: str) -> None:
        if self._peers is not None:
            self._followed.setdefault(thread_id, _Followed()).readers += 1

    def left(self, thread_id: str) -> None:
        followed = self._followed.get(thread_id)
        if followed is None:
            return
        followed.readers -= 1
        if not followed.readers:
            del self._followed[thread_id]
            if followed.source is not None:
                left = Left(thread_id=thread_id, incarnation=followed.incarnation)
                self._send(left, to=followed.source)
            _stop(followed)
            if followed.asking is not None:
                followed.asking.cancel()

    def ask(self, thread_id: str, incarnation: str) -> None:
        """A reader has read all that is stored: has any instance more?"""
        followed = self._followed.get(thread_id)
        if followed is not None and thread_id not in self._live:
            followed.incarnation = incarnation
            self._ask_soon(thread_id, followed)

    # -- for drivers

    def ended(self, thread_id: str) -> None:
        """This instance does not drive the thread any more."""
        feed = self._feeds.pop(thread_id, None)
        if feed is None:
            return
        if feed.timer is not None:
            feed.timer.cancel()
        known = self._threads.known(thread_id)
        if known is not None:
            ended = Ended(thread_id=thread_id, incarnation=known.incarnation)
            for address in feed.destinations:
                self._send(ended, to=address)

    # -- messages

    def _send(self, message: BaseModel, *, to: str | None) -> None:
        if self._peers is not None:
            self._peers.send(message.model_dump_json().encode(), to=to)

    def _receive(self, sender: str, text: bytes) -> None:
        try:
            message = _MESSAGE.validate_json(text)
        except ValidationError:
            # Of a version that says something else.
            logger.debug("a message of another instance is not understood")
            return
        match message:
            case TextAsked():
                self._on_asked(sender, message)
            case Left():
                feed = self._feeds.get(message.thread_id)
                if feed is not None:
                    feed.destinations.pop(sender, None)
            case Text():
                self._on_text(sender, message)
            case Ended():
                followed = self._followed.get(message.thread_id)
                if followed is not None and followed.source == sender:
                    _stop(followed)

    def _on_asked(self, sender: str, asked: TextAsked) -> None:
        live, known = self._live.get(asked.thread_id), self._threads.known(asked.thread_id)
        if live is None or known is None or known.incarnation != asked.incarnation:
            if asked.have:
                self._send(
                    Ended(thread_id=asked.thread_id, incarnation=asked.incarnation), to=sender
                )
            return
        feed = self._feeds.get(asked.thread_id)
        if feed is None or feed.live is not live:
            feed = self._feeds[asked.thread_id] = _Feed(live)
            live.listeners.append(lambda: self._on_live_text(asked.thread_id))
        have = {(kind, number, attempt, call): n for kind, number, attempt, call, n in asked.have}
        until = asyncio.get_running_loop().time() + LIFETIME_SECONDS
        feed.destinations[sender] = _Destination(until, live.seen_by(have))
        self._send_text(asked.thread_id, feed, sender)

    def _on_live_text(self, thread_id: str) -> None:
        """There is more of a run that is driven here. A listener of `LiveRun`."""
        feed = self._feeds.get(thread_id)
        if feed is None or feed.timer is not None or not feed.destinations:
            return
        loop = asyncio.get_running_loop()
        due = max(loop.time(), feed.sent_at + PERIOD_SECONDS)
        feed.timer = loop.call_at(due, self._send_all, thread_id, feed)

    def _send_all(self, thread_id: str, feed: _Feed) -> None:
        feed.timer = None
        feed.sent_at = asyncio.get_running_loop().time()
        for address, destination in list(feed.destinations.items()):
            if destination.until < feed.sent_at:
                del feed.destinations[address]
            elif feed.live.is_ahead_of(destination.seen):
                self._send_text(thread_id, feed, address)

    def _send_text(self, thread_id: str, feed: _Feed, address: str) -> None:
        known = self._threads.known(thread_id)
        if known is None or known.state.active_run != feed.live.run_id:
            return
        seen = feed.destinations[address].seen
        begun = {key: seen[key][1] if key in seen else 0 for key in feed.live.lengths()}
        pieces = dict.fromkeys(begun, "")
        for delta in feed.live.deltas_since(seen):
            key: StreamKey = (delta.kind, delta.round, delta.attempt, delta.call_id)
            pieces[key] = delta.content
        text = Text(
            thread_id=thread_id,
            incarnation=known.incarnation,
            run_id=feed.live.run_id,
            epoch=known.head.epoch,
            next_seq=known.state.next_seq,
            streams=tuple((*key, begun[key], _encodable(text)) for key, text in pieces.items()),
        )
        assert self._peers is not None
        for message in _within(text, self._peers.most_bytes):
            self._peers.send(message, to=address)
        if feed.live.is_ahead_of(seen):
            self._on_live_text(thread_id)

    def _on_text(self, sender: str, text: Text) -> None:
        thread_id = text.thread_id
        followed = self._followed.get(thread_id)
        if followed is None or followed.incarnation != text.incarnation:
            return
        mirror = followed.mirror
        if mirror is not None and mirror.is_newer_than(text.epoch, text.next_seq):
            return
        if mirror is None or (mirror.run_id, mirror.epoch) != (text.run_id, text.epoch):
            mirror = MirroredRun(text.run_id, text.incarnation, text.epoch)
            followed.mirror = mirror
        followed.source, followed.unanswered = sender, 0
        if followed.renewal is None:
            self._renew_later(thread_id, followed)
        was_at = mirror.next_seq
        pieces = {
            (kind, number, attempt, call): (offset, content)
            for kind, number, attempt, call, offset, content in text.streams
        }
        if not mirror.take(text.next_seq, pieces):
            self._ask_soon(thread_id, followed)
        if mirror.next_seq != was_at:
            # Its readers do not listen to it yet, or have something stored to read first.
            self._signals.notify(thread_id, local=True)
        else:
            mirror.call_listeners()

    def _ask_soon(self, thread_id: str, followed: _Followed) -> None:
        """Ask all, once for what several readers and several holes ask for within a moment."""
        if followed.asking is not None:
            return
        loop = asyncio.get_running_loop()
        due = followed.asked_at + PERIOD_SECONDS
        if due <= loop.time():
            self._ask(thread_id, followed, to=None)
        else:
            followed.asking = loop.call_at(due, self._ask, thread_id, followed)

    def _ask(self, thread_id: str, followed: _Followed, to: str | None = None) -> None:
        followed.asking, followed.asked_at = None, asyncio.get_running_loop().time()
        have = followed.mirror.lengths() if followed.mirror is not None else {}
        asked = TextAsked(
            thread_id=thread_id,
            incarnation=followed.incarnation,
            have=tuple((*key, length) for key, length in have.items()),
        )
        self._send(asked, to=to)

    def _renew_later(self, thread_id: str, followed: _Followed) -> None:
        loop = asyncio.get_running_loop()
        followed.renewal = loop.call_later(RENEW_SECONDS, self._renew, thread_id, followed)

    def _renew(self, thread_id: str, followed: _Followed) -> None:
        followed.renewal = None
        if followed.unanswered >= UNANSWERED or thread_id in self._live:
            _stop(followed)
            return
        followed.unanswered += 1
        self._ask(thread_id, followed, to=followed.source)
        self._renew_later(thread_id, followed)


def _stop(followed: _Followed) -> None:
    """Ask no more until a reader does."""
    if followed.renewal is not None:
        followed.renewal.cancel()
    followed.mirror = followed.source = followed.renewal = None
    followed.unanswered = 0


def _encodable(text: str) -> str:
    """As long as it was: half of a surrogate pair cannot be sent, and offsets must not move."""
    return text.encode(errors="replace").decode()


def _within(text: Text, most_bytes: int) -> Iterator[bytes]:
    """As few messages as it takes, each within the bound."""
    message = text.model_dump_json().encode()
    if len(message) <= most_bytes:
        yield message
        return
    longest = max(len(stream[-1]) for stream in text.streams)
    if longest < 2:
        # Its heads alone are too long: its readers wait for what is stored.
        return
    first, rest = [], []
    for *key, offset, content in text.streams:
        half = min(len(content), longest // 2)
        first.append((*key, offset, content[:half]))
        rest.append((*key, offset + half, content[half:]))
    yield from _within(text.model_copy(update={"streams": tuple(first)}), most_bytes)
    yield from _within(text.model_copy(update={"streams": tuple(rest)}), most_bytes)
