"""Reads an interaction until it ends or waits for the user. Ctrl-C asks it to stop.

No stream is held open while the user thinks: the interaction waits in the server's log, and what
follows a decision is read from where reading stopped.
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


class UserLeft(Exception):
    """The user pressed Ctrl-C twice: they do not want to wait for the end."""


class InteractionReader:
    """One interaction, over as many streams as its questions make of it."""

    def __init__(
        self,
        chat: Chat,
        on_event: Callable[[Event], None],
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._chat = chat
        self._on_event = on_event
        self._on_stop = on_stop
        self._so_far = ReplySoFar()
        self._decided: set[str] = set()
        self._interrupts = 0
        self._stopping: asyncio.Task[None] | None = None
        self._next_event: asyncio.Future[Event | None] | None = None

    @property
    def reply(self) -> Reply:
        return self._so_far.reply()

    @property
    def was_stopped(self) -> bool:
        return self._interrupts > 0

    @property
    def open_approvals(self) -> list[ApprovalRequired]:
        """Those that were not decided here yet."""
        return [a for a in self.reply.approvals if a.approval_id not in self._decided]

    def mark_decided(self, approval: ApprovalRequired) -> None:
        self._decided.add(approval.approval_id)

    async def read_on(self) -> None:
        """Read what follows the last event. Raises as `read`."""
        reply = self.reply
        await self.read(self._chat.watch(reply.interaction_id, after=reply.last_event_id))

    async def read(self, events: AsyncGenerator[Event, None]) -> None:
        """Read to the end, or until the interaction can only go on after an approval.

        Raises:
            ClientError: the server refused, or did not come back.
            UserLeft: two interrupts.
        """
        with self._handled_interrupts():
            async with aclosing(events):
                while (event := await self._next(events)) is not None:
                    self._so_far.add(event)
                    self._on_event(event)
                    self._stop_if_interrupted()
        if self._stopping is not None:
            await self._stopping

    async def stop(self) -> None:
        """Ask the interaction to stop. If it has ended already, nothing is left to do."""
        with suppress(ClientError):
            await self._chat.cancel(self.reply.interaction_id)

    async def _next(self, events: AsyncGenerator[Event, None]) -> Event | None:
        coming = asyncio.ensure_future(anext(events, None))
        self._next_event = coming
        waits = bool(self.open_approvals) and self._so_far.is_paused and not self.was_stopped
        try:
            await asyncio.wait({coming}, timeout=QUIET_SECONDS if waits else None)
            if not coming.done():
                return None
            if coming.cancelled():
                raise UserLeft
            return coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                with suppress(asyncio.CancelledError):
                    await coming

    def _stop_if_interrupted(self) -> None:
        if self._interrupts and self._stopping is None and self.reply.interaction_id:
            self._stopping = asyncio.ensure_future(self.stop())

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._on_stop()
            self._stop_if_interrupted()
        elif self._next_event is not None:
            self._next_event.cancel()

    @contextmanager
    def _handled_interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
