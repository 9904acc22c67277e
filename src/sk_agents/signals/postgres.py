"""Wake-ups and short messages between instances that share a PostgreSQL database.

By LISTEN and NOTIFY: ids and what is on its way, never what is stored. Hints all of them; a lost
one costs the second until its reader looks by itself. What comes together is sent together, for
each notification of a transaction makes it wait for all others in the database.

A pooler between here and the database may take LISTEN and deliver nothing. So each instance sends
itself a probe at the start and every minute, and says in the log when it does not hear it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import psycopg

from sk_agents.exceptions import StoreError
from sk_agents.postgres_access import AsyncConnection, PostgresAccess
from sk_agents.signals.local import LocalSignals, LocalSubscription

logger = logging.getLogger(__name__)

CHANNEL = "teal"
# PostgreSQL's own limit is 7,999 bytes.
PAYLOAD_BYTES = 7_900
# Two sendings are at least so far apart; what comes in between waits for the second.
SEND_SECONDS = 0.02
# More than this waits for a database that does not answer: it is dropped.
MAX_QUEUED = 1_000
PROBE_SECONDS = 60.0
# How long the way of a probe may take.
PROBE_WAIT = 5.0
RETRY_SECONDS = (1.0, 30.0)

# Not worth the wait for a disk. For this statement alone: a pooler may lend the session on.
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, payload)
FROM unnest(%s::text[], %s::text[]) AS message (channel, payload)
"""

Receiver = Callable[[str, str], None]


class PostgresMessages:
    """Messages of a few kinds to all other instances, or to one. Bound to one event loop.

    A message is lost if it cannot be sent now; `queued` are those that wait for the next sending,
    with their channels. `is_heard` says whether the last probe came back.
    """

    def __init__(
        self,
        url: str,
        *,
        password_command: str | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        """Raises ConfigurationError: the URL makes no sense."""
        self.address = secrets.token_hex(8)
        self.is_heard = False
        self._access = PostgresAccess(url, password_command=password_command)
        self._probe_seconds = probe_seconds
        self._receivers: dict[str, list[Receiver]] = {}
        self.queued: list[tuple[str, str]] = []
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def receive(self, kind: str, receiver: Receiver) -> None:
        """Call it with the sender's address and the text of each message of this kind, which is
        one letter. Messages of this instance itself are left out."""
        self._receivers.setdefault(kind, []).append(receiver)

    def send(self, kind: str, text: str, *, to: str | None = None) -> None:
        """Never blocks, never fails."""
        if len(self.queued) < MAX_QUEUED:
            channel = CHANNEL if to is None else f"{CHANNEL}_{to}"
            self.queued.append((channel, f"{kind}{self.address} {text}"))
            self._has_queued.set()

    async def _send_repeatedly(self) -> None:
        connection: AsyncConnection | None = None
        try:
            while True:
                await self._has_queued.wait()
                self._has_queued.clear()
                sent, self.queued = self.queued, []
                try:
                    if connection is None or connection.closed or connection.broken:
                        connection = await self._access.connect()
                    async with asyncio.timeout(PROBE_WAIT):
                        channels, payloads = map(list, zip(*sent, strict=True))
                        await connection.execute(NOTIFY, (channels, payloads))
                except (psycopg.Error, StoreError, TimeoutError) as error:
                    logger.info("signals lost", extra={"error": type(error).__name__})
                    if connection is not None:
                        await connection.close()
                await asyncio.sleep(SEND_SECONDS)
        finally:
            if connection is not None:
                await connection.close()

    async def _listen_repeatedly(self) -> None:
        pause = RETRY_SECONDS[0]
        while True:
            try:
                connection = await self._access.connect()
                try:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    await connection.execute(f"LISTEN {CHANNEL}_{self.address}")
                    pause = RETRY_SECONDS[0]
                    await self._hear(connection)
                    pause = self._probe_seconds
                finally:
                    await connection.close()
            except (psycopg.Error, StoreError) as error:
                self._note_heard(False, type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, max(pause, RETRY_SECONDS[1]))

    async def _hear(self, connection: AsyncConnection) -> None:
        """Take what comes; returns when a probe does not come back."""
        while True:
            self._probe = secrets.token_hex(8)
            self.send("?", self._probe, to=self.address)
            await self._take(connection, PROBE_WAIT)
            if self._probe:
                self._note_heard(False, "a probe did not come back")
                return
            await self._take(connection, self._probe_seconds)

    async def _take(self, connection: AsyncConnection, seconds: float) -> None:
        async for notification in connection.notifies(timeout=seconds):
            kind, sender = notification.payload[:1], notification.payload[1:17]
            text = notification.payload[18:]
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
                " (%s). Behind a pooler, TA_SIGNALS may name the database itself.",
                reason,
            )
        self.is_heard = heard


class PostgresSignals:
    """`Signals` for all instances: in this process at once, in the others by messages."""

    KIND = "s"

    def __init__(self, messages: PostgresMessages) -> None:
        self._messages = messages
        self._local = LocalSignals()
        self._changed: dict[str, None] = {}
        messages.receive(self.KIND, self._received)

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        self._local.notify(thread_id)
        if local:
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._send)
        self._changed[thread_id] = None

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return self._local.subscribe(thread_id)

    def listen(self, listener: Callable[[str], None]) -> None:
        self._local.listen(listener)

    def _send(self) -> None:
        """The ids of one step of the event loop, in as few messages as they fit into."""
        changed, self._changed = self._changed, {}
        together: list[str] = []
        room = PAYLOAD_BYTES
        for thread_id in changed:
            size = len(thread_id.encode()) + 1
            if size > room and together:
                self._messages.send(self.KIND, "\n".join(together))
                together, room = [], PAYLOAD_BYTES
            if size <= room:
                together.append(thread_id)
                room -= size
        if together:
            self._messages.send(self.KIND, "\n".join(together))

    def _received(self, _sender: str, text: str) -> None:
        for thread_id in text.split("\n"):
            self._local.notified_elsewhere(thread_id)


class PostgresPeers:
    """`Peers` over the same messages."""

    KIND = "p"
    most_bytes = PAYLOAD_BYTES - 32

    def __init__(self, messages: PostgresMessages) -> None:
        self._messages = messages
        self.address = messages.address

    def send(self, message: bytes, *, to: str | None = None) -> None:
        self._messages.send(self.KIND, message.decode(), to=to)

    def receive(self, receiver: Callable[[str, bytes], None]) -> None:
        self._messages.receive(self.KIND, lambda sender, text: receiver(sender, text.encode()))
