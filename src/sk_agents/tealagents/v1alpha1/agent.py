"""The model and tool loop behind a request: started, followed, read back.

The loop itself is the engine's, the same for streaming and for waiting: each round's calls are
inspected one by one before any of them runs. Following it only reads: a lost reader changes
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Answered, Event
from sk_agents.engine.log.state import Run
from sk_agents.engine.log.transitions import TERMINAL
from sk_agents.engine.models import RunStatus
from sk_agents.engine.reading.live import Delta
from sk_agents.engine.reading.watch import Item
from sk_agents.engine.threads.known import KnownThread
from sk_agents.tealagents.models import StateIds
from sk_agents.tealagents.v1alpha1.progress import Progress

PAGE = 500


@dataclass(frozen=True, slots=True)
class Turn:
    """A request that was taken on or resumed; its story lies in the log after `start`."""

    ids: StateIds
    user_id: str
    start: int


Piece = str | Progress
"""Text as it appears; last, what became of it: ended, or waiting for a person."""


class Mouth(Protocol):
    """Where text may be said at once, while whoever follows a request waits for more of it."""

    @property
    def is_open(self) -> bool: ...

    def say(self, text: str) -> None: ...


class AgentLoop:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def follow(
        self, turn: Turn, mouth: Mouth | None = None
    ) -> AsyncGenerator[Sequence[Piece], None]:
        """The request as it happens, as many pieces at a time as there are.

        The text of the answer comes whole and in order, also to one who was too slow to see it
        appear; a model that had to be asked again begins anew. What `mouth` has said is not among
        the pieces.

        Raises:
            TealError: the log cannot be read.
        """
        ids, progress, voice = turn.ids, Progress(), _Voice(mouth)
        watched = self._engine.watch(
            ids.task_id, after=turn.start, run_id=ids.request_id, outlet=voice
        )
        try:
            async for items in watched:
                pieces: list[Piece] = []
                for item in items:
                    text = voice.said(item)
                    if text:
                        pieces.append(text)
                    if not isinstance(item, Delta):
                        progress.take(item)
                if progress.ended is not None or await self._waits(turn, progress):
                    pieces.append(progress)
                    yield pieces
                    return
                if pieces:
                    yield pieces
        finally:
            await watched.aclose()

    async def settled(self, turn: Turn, seconds: float) -> Progress:
        """The request once it has ended or waits for a person.

        Raises:
            TimeoutError: neither has come within `seconds`.
            TealError: the log cannot be read.
        """
        task_id, request_id = turn.ids.task_id, turn.ids.request_id
        while True:
            run = await self._engine.result(task_id, request_id, seconds=seconds)
            if run.phase in TERMINAL:
                return Progress.of(run)
            known = await self._engine.thread(task_id, turn.user_id)
            progress = await self.progress(known, known.state.run(request_id))
            if progress.status is not RunStatus.RUNNING:
                return progress
            # Somebody has decided meanwhile: it goes on.

    async def progress(self, known: KnownThread, run: Run) -> Progress:
        """The request as it stands in the log, as far as `known` reaches."""
        end = run.last_seq or known.state.next_seq - 1
        progress = Progress()
        for event in await self.events(known, after=run.first_seq - 1, end=end):
            if event.run_id == run.run_id:
                progress.take(event)
        return progress

    async def events(self, known: KnownThread, *, after: int, end: int) -> list[Event]:
        """A part of the log, `end` included."""
        events: list[Event] = []
        while after < end:
            page = await self._engine.catalog.events(known.head, after, min(PAGE, end - after))
            if not page:
                break
            events.extend(page)
            after = page[-1].seq
        return events

    async def _waits(self, turn: Turn, progress: Progress) -> bool:
        """Only a fresh look may say so: what was read may be long decided."""
        if not progress.is_waiting:
            return False
        known = await self._engine.thread(turn.ids.task_id, turn.user_id)
        return known.state.run(turn.ids.request_id).status is RunStatus.WAITING


class _Voice:
    """How much of the round that is being said a reader has heard."""

    def __init__(self, mouth: Mouth | None) -> None:
        self._mouth = mouth
        self._round, self._attempt, self._heard = 0, 0, 0

    @property
    def is_open(self) -> bool:
        return self._mouth is not None and self._mouth.is_open

    def take(self, previews: Sequence[Delta]) -> None:
        text = "".join(map(self.said, previews))
        if text and self._mouth is not None:
            self._mouth.say(text)

    def said(self, item: Item) -> str:
        match item:
            case Delta(kind="answer"):
                self._round, self._attempt = item.round, item.attempt
                self._heard = item.offset + len(item.content)
                return item.content
            case Answered():
                return item.content[self._heard if item.round == self._round else 0 :]
        return ""


def __getattr__(name: str) -> Any:
    if name != "TealAgentsV1Alpha1Handler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The handler is built on this module, so it can only be asked for later.
    from sk_agents.tealagents.v1alpha1 import handler  # noqa: PLC0415

    return handler.TealAgentsV1Alpha1Handler
