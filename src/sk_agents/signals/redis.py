"""Messages between instances over a Redis or Valkey server, by PUBLISH and SUBSCRIBE."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import count
from typing import Any

from redis.exceptions import RedisError

from sk_agents.redis_access import LOST, RedisAccess, RedisLink, close
from sk_agents.signals import messages
from sk_agents.signals.messages import Messages

logger = logging.getLogger(__name__)

PAYLOAD_BYTES = 32 * 1024
# Two sendings are at least so far apart; what comes in between waits for the second.
SEND_SECONDS = 0.005
PROBE_SECONDS = 15.0


class RedisMessages(Messages):
    """See `Messages`; over one server, the one that sentinels name, or a cluster."""

    payload_bytes = PAYLOAD_BYTES

    def __init__(self, url: str, *, probe_seconds: float = PROBE_SECONDS) -> None:
        """Raises ConfigurationError: the URL makes no sense."""
        self._access = RedisAccess(url)
        options = self._access.options
        # Channels know no databases.
        super().__init__(f"{options.prefix}:{options.database}:signals", probe_seconds)

    async def _send_repeatedly(self) -> None:
        for attempt in count():
            link = RedisLink(self._access, 1, self._access.listening_client(attempt))
            try:
                while True:
                    sent = await self._next_sending()
                    await link.run([("PUBLISH", channel, payload) for channel, payload in sent])
                    await asyncio.sleep(SEND_SECONDS)
            except (RedisError, *LOST) as error:
                logger.info("signals lost", extra={"error": type(error).__name__})
            finally:
                with suppress(RedisError, *LOST):
                    await link.close()
            await asyncio.sleep(SEND_SECONDS)

    async def _listen_repeatedly(self) -> None:
        pause, longest = messages.RETRY_SECONDS
        for attempt in count():
            client = self._access.listening_client(attempt)
            listening: Any = client.pubsub(ignore_subscribe_messages=True)
            try:
                own = f"{self._channel}_{self.address}"
                await listening.subscribe(self._channel, own)
                await self._hear(listening)
                pause = messages.RETRY_SECONDS[0]
            except (RedisError, *LOST) as error:
                if self.is_heard:
                    pause = messages.RETRY_SECONDS[0]
                self._note_heard(False, type(error).__name__)
            finally:
                with suppress(RedisError, *LOST):
                    await listening.aclose()
                    await close(client)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _hear(self, listening: Any) -> None:
        """Take what comes; returns when a probe does not come back."""
        while True:
            self._send_probe()
            await self._take(listening, messages.PROBE_WAIT)
            if self._probe:
                self._note_heard(False, "a probe did not come back")
                return
            await self._take(listening, self._probe_seconds)

    async def _take(self, listening: Any, seconds: float) -> None:
        """For so long; no longer than until an awaited probe is there."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        is_probing = bool(self._probe)
        while (left := end - loop.time()) > 0 and bool(self._probe) == is_probing:
            message = await listening.get_message(timeout=left)
            if message is not None:
                self._received(message["data"].decode("utf-8", "surrogatepass"))
