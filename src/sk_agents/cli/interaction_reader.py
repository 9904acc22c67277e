"""Reads an interaction until it ends or waits for the user.

Ctrl-C asks it to stop; what is typed at a terminal in the meantime is handed on.

No stream is held open while the user thinks: the interaction waits in the server's log, and what
follows a decision is read from where reading stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress

from sk_agents.client import ApprovalRequired, Chat, ClientError, Event, Reply
from sk_agents.client.reply import ReplySoFar

# Calls that run beside one that waits are shown first, if they are quick.
QUIET_SECONDS = 0.25


# The terminal gives a line at a time, and none is longer.
LONGEST_LINE = 65_536

OnLine = Callable[[str, str], Awaitable[None]]
"""What to do with a line that was typed, and for which interaction."""


class UserLeft(Exception):
    """The user pressed Ctrl-C twice: they do not want to wait for the end."""


class InteractionReader:
    """One interaction, over as many streams as its questions make of it."""

    def __init__(
        self,
        chat: Chat,
        on_event: Callable[[Event], None],
        on_stop: Callable[[], None] = lambda: None,
        on_line: OnLine | None = None,
    ) -> None:
        self._chat = chat
        self._on_event = on_event
        self._on_stop = on_stop
        self._on_line = on_line
        self._lines: list[str] = []
        self._handling: set[asyncio.Future[None]] = set()
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
        with self._handled_interrupts(), self._handled_lines():
            async with aclosing(events):
                while (event := await self._next(events)) is not None:
                    self._so_far.add(event)
                    self._on_event(event)
                    self._stop_if_interrupted()
                    self._hand_on_lines()
        await asyncio.gather(*self._handling)
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

    def _line_typed(self) -> None:
        typed = os.read(sys.stdin.fileno(), LONGEST_LINE)
        if not typed:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self._lines += [line for line in typed.decode(errors="replace").splitlines() if line]
        self._hand_on_lines()

    def _hand_on_lines(self) -> None:
        """Once it is known which interaction they are for, one after the other."""
        if self._on_line is None or self._handling or not self.reply.interaction_id:
            return
        if self._lines:
            line = self._lines.pop(0).strip()
            handling = asyncio.ensure_future(self._on_line(self.reply.interaction_id, line))
            self._handling.add(handling)
            handling.add_done_callback(self._line_handled)

    def _line_handled(self, handling: asyncio.Future[None]) -> None:
        self._handling.discard(handling)
        self._hand_on_lines()

    @contextmanager
    def _handled_lines(self) -> Iterator[None]:
        """While the user is not asked for anything. What comes from a pipe is for later prompts."""
        if self._on_line is None or not sys.stdin.isatty():
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._line_typed)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())

    @contextmanager
    def _handled_interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
