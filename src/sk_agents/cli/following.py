"""Reading an interaction along until it ends or waits for a person; Ctrl-C asks it to stop.

No stream is held open while a person thinks: the interaction waits in the server's log, and what
was decided is read from where reading stopped.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress

from sk_agents.client import ApprovalRequired, Chat, ClientError, Event, Reply
from sk_agents.client.reply import ReplySoFar

# Calls that run beside one that waits are shown first, if they are quick.
QUIET_SECONDS = 0.25


class Left(Exception):
    """The person pressed Ctrl-C twice: they do not want to wait for the end."""


class Follower:
    """One interaction, over as many streams as its questions make of it."""

    def __init__(
        self,
        chat: Chat,
        tell: Callable[[Event], None],
        tell_stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._chat = chat
        self._tell = tell
        self._tell_stopping = tell_stopping
        self._so_far = ReplySoFar()
        self._decided: set[str] = set()
        self._stops = 0
        self._stopping: asyncio.Task[None] | None = None
        self._coming: asyncio.Future[Event | None] | None = None

    @property
    def reply(self) -> Reply:
        return self._so_far.reply()

    @property
    def was_stopped(self) -> bool:
        return self._stops > 0

    @property
    def open_approvals(self) -> list[ApprovalRequired]:
        """Those that nobody here has decided yet."""
        return [a for a in self.reply.approvals if a.approval_id not in self._decided]

    def note_decided(self, approval: ApprovalRequired) -> None:
        self._decided.add(approval.approval_id)

    def further_events(self) -> AsyncGenerator[Event, None]:
        """What follows the last event that was told."""
        reply = self.reply
        return self._chat.watch(reply.interaction_id, after=reply.last_event_id)

    async def follow(self, events: AsyncGenerator[Event, None]) -> None:
        """To the end, or until nothing but an open approval can move it on.

        Raises:
            ClientError: the server refused, or is gone for good.
            Left: two interrupts.
        """
        with self._interrupts():
            async with aclosing(events):
                while (event := await self._next(events)) is not None:
                    self._so_far.add(event)
                    self._tell(event)
                    self._stop_if_wanted()
        if self._stopping is not None:
            await self._stopping

    async def stop(self) -> None:
        """Ask the interaction to stop; if it has ended, that is as good."""
        with suppress(ClientError):
            await self._chat.cancel(self.reply.interaction_id)

    async def _next(self, events: AsyncGenerator[Event, None]) -> Event | None:
        coming = asyncio.ensure_future(anext(events, None))
        self._coming = coming
        waits = bool(self.open_approvals) and self._so_far.is_paused and not self.was_stopped
        try:
            await asyncio.wait({coming}, timeout=QUIET_SECONDS if waits else None)
            if not coming.done():
                return None
            if coming.cancelled():
                raise Left
            return coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                with suppress(asyncio.CancelledError):
                    await coming

    def _stop_if_wanted(self) -> None:
        if self._stops and self._stopping is None and self.reply.interaction_id:
            self._stopping = asyncio.ensure_future(self.stop())

    def _interrupted(self) -> None:
        self._stops += 1
        if self._stops == 1:
            self._tell_stopping()
            self._stop_if_wanted()
        elif self._coming is not None:
            self._coming.cancel()

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
