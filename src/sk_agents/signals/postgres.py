"""Messages between instances that share a PostgreSQL database, by LISTEN and NOTIFY.

What comes together is sent together, for each notification of a transaction makes it wait for all
others in the database.
"""

from __future__ import annotations

import asyncio
import logging

import psycopg

from sk_agents.exceptions import StoreError
from sk_agents.postgres_access import AsyncConnection, PostgresAccess
from sk_agents.signals import messages
from sk_agents.signals.messages import Messages

logger = logging.getLogger(__name__)

CHANNEL = "teal"
# PostgreSQL's own limit is 7,999 bytes.
PAYLOAD_BYTES = 7_900
# Two sendings are at least so far apart; what comes in between waits for the second. Each takes
# half a millisecond of CPU where it is sent and heard: at 20 ms, 25 ms of a second and process.
SEND_SECONDS = 0.05
PROBE_SECONDS = 60.0

# Not worth the wait for a disk. For this statement alone: a pooler may lend the session on.
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, payload)
FROM unnest(%s::text[], %s::text[]) AS message (channel, payload)
"""


class PostgresMessages(Messages):
    """See `Messages`; over one database."""

    payload_bytes = PAYLOAD_BYTES
    deaf_hint = "Behind a pooler, TA_SIGNALS may name the database itself."

    def __init__(
        self,
        url: str,
        *,
        password_command: str | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        """Raises ConfigurationError: the URL makes no sense."""
        super().__init__(CHANNEL, probe_seconds)
        self._access = PostgresAccess(url, password_command=password_command)

    async def _send_repeatedly(self) -> None:
        connection: AsyncConnection | None = None
        try:
            while True:
                sent = await self._next_sending()
                try:
                    if connection is None or connection.closed or connection.broken:
                        connection = await self._access.connect()
                    async with asyncio.timeout(messages.PROBE_WAIT):
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
        pause, longest = messages.RETRY_SECONDS
        while True:
            try:
                connection = await self._access.connect()
                try:
                    await connection.execute(f"LISTEN {self._channel}")
                    await connection.execute(f"LISTEN {self._channel}_{self.address}")
                    pause = messages.RETRY_SECONDS[0]
                    await self._hear(connection)
                    pause = self._probe_seconds
                finally:
                    await connection.close()
            except (psycopg.Error, StoreError) as error:
                self._note_heard(False, type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, max(pause, longest))

    async def _hear(self, connection: AsyncConnection) -> None:
        """Take what comes; returns when a probe does not come back."""
        while True:
            self._send_probe()
            await self._take(connection, messages.PROBE_WAIT)
            if self._probe:
                self._note_heard(False, "a probe did not come back")
                return
            await self._take(connection, self._probe_seconds)

    async def _take(self, connection: AsyncConnection, seconds: float) -> None:
        async for notification in connection.notifies(timeout=seconds):
            self._received(notification.payload)
