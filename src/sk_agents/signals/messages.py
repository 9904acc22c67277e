"""Short messages between instances by way of a server, and the wake-ups made of them.

Ids and what is on its way, never what is stored. Hints all of them; a lost one costs the second
until its reader looks by itself. What comes together is sent together.

A server may take what is sent and deliver nothing: a pooler stands before it, or it has failed
over. So each instance sends itself a probe at the start and every so often, and says in the log
when it does not hear it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Self

from sk_agents.signals.local import LocalSignals, LocalSubscription

logger = logging.getLogger(__name__)

# More than this waits for a server that does not answer: it is dropped.
MAX_QUEUED = 1_000
MAX_LINES = 20_000
# How long the way of a probe may take.
PROBE_WAIT = 5.0
RETRY_SECONDS = (1.0, 30.0)

Receiver = Callable[[str, str], None]


class Messages(ABC):
    """Messages of a few kinds to all other instances, or to one. Bound to one event loop.

    A message is lost if it cannot be sent now; `queued` are those that wait for the next sending,
    with their channels. `is_heard` says whether the last probe came back; `deaf_hint` goes with the
    log line about one that did not.
    """

    payload_bytes: int
    deaf_hint = ""

    def __init__(self, channel: str, probe_seconds: float) -> None:
        self.address = secrets.token_hex(8)
        self.is_heard = False
        self.queued: list[tuple[str, str]] = []
        self._lines: dict[str, dict[str, None]] = {}
        self._channel = channel
        self._probe_seconds = probe_seconds
        self._receivers: dict[str, list[Receiver]] = {}
        self._has_queued = asyncio.Event()
        self._probe = ""
        self._heard = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Returns once the first probe is heard, or after a few seconds without it."""
        self._tasks = [
            asyncio.create_task(self._listen_repeatedly()),
            asyncio.create_task(self._send_repeatedly()),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(PROBE_WAIT):
                await self._heard.wait()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """A client that is cancelled while its own time runs out reports the latter alone, and its
        task goes on: then it is cancelled again."""
        at_work = set(self._tasks)
        while at_work:
            for task in at_work:
                task.cancel()
            _, at_work = await asyncio.wait(at_work, timeout=0.5)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def receive(self, kind: str, receiver: Receiver) -> None:
        """Call it with the sender's address and the text of each message of this kind, which is
        one letter. Messages of this instance itself are left out."""
        self._receivers.setdefault(kind, []).append(receiver)

    def send(self, kind: str, text: str, *, to: str | None = None) -> None:
        """Never blocks, never fails."""
        if len(self.queued) < MAX_QUEUED:
            channel = self._channel if to is None else f"{self._channel}_{to}"
            self.queued.append((channel, f"{kind}{self.address} {text}"))
            self._has_queued.set()

    def send_line(self, kind: str, line: str) -> None:
        """To all others, once, with all lines of this kind until the next sending in as few
        messages as they fit into. Never blocks, never fails."""
        lines = self._lines.setdefault(kind, {})
        if len(lines) < MAX_LINES:
            lines[line] = None
            self._has_queued.set()

    @abstractmethod
    async def _send_repeatedly(self) -> None:
        """Send what is queued, until it is cancelled."""

    @abstractmethod
    async def _listen_repeatedly(self) -> None:
        """Listen at both channels of this instance, until it is cancelled."""

    async def _next_sending(self) -> list[tuple[str, str]]:
        """What is queued by now, as soon as there is something."""
        while True:
            await self._has_queued.wait()
            self._queue_lines()
            self._has_queued.clear()
            sent, self.queued = self.queued, []
            if sent:
                return sent

    def _queue_lines(self) -> None:
        lines, self._lines = self._lines, {}
        for kind, of_kind in lines.items():
            for text in _together(of_kind, self.payload_bytes):
                self.send(kind, text)

    def _send_probe(self) -> None:
        self._probe = secrets.token_hex(8)
        self.send("?", self._probe, to=self.address)

    def _received(self, payload: str) -> None:
        kind, sender, text = payload[:1], payload[1:17], payload[18:]
        if kind == "?":
            if text == self._probe:
                self._probe = ""
                self._note_heard(True, "")
        elif sender != self.address:
            for receiver in self._receivers.get(kind, ()):
                receiver(sender, text)

    def _note_heard(self, heard: bool, reason: str) -> None:
        if heard:
            self._heard.set()
        if heard and not self.is_heard:
            logger.info("signals of other instances are heard")
        elif not heard and (self.is_heard or not self._heard.is_set()):
            self._heard.set()
            logger.warning(
                "no signals of other instances are heard: their changes are seen within a second"
                " (%s). %s",
                reason,
                self.deaf_hint,
            )
        self.is_heard = heard


class MessageSignals:
    """`Signals` for all instances: in this process at once, in the others by messages."""

    KIND = "s"

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._local = LocalSignals()
        messages.receive(self.KIND, self._received)

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        self._local.notify(thread_id)
        if not local:
            self._messages.send_line(self.KIND, thread_id)

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return self._local.subscribe(thread_id)

    def listen(self, listener: Callable[[str], None]) -> None:
        self._local.listen(listener)

    def _received(self, _sender: str, text: str) -> None:
        for thread_id in text.split("\n"):
            self._local.notified_elsewhere(thread_id)


class MessagePeers:
    """`Peers` over the same messages."""

    KIND = "p"

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.address = messages.address
        self.most_bytes = messages.payload_bytes - 32

    def send(self, message: bytes, *, to: str | None = None) -> None:
        self._messages.send(self.KIND, message.decode(), to=to)

    def receive(self, receiver: Callable[[str, bytes], None]) -> None:
        self._messages.receive(self.KIND, lambda sender, text: receiver(sender, text.encode()))


def _together(lines: Iterable[str], most_bytes: int) -> Iterator[str]:
    """A line that is too long for any message is left out."""
    together: list[str] = []
    room = most_bytes
    for line in lines:
        size = len(line.encode()) + 1
        if size > room and together:
            yield "\n".join(together)
            together, room = [], most_bytes
        if size <= room:
            together.append(line)
            room -= size
    if together:
        yield "\n".join(together)
