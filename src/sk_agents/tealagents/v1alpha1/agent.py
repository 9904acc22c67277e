"""The model and tool loop behind a request: started, followed, read back.

The loop itself is the engine's, the same for streaming and for waiting: each round's calls are
inspected one by one before any of them runs. Following it only reads: a client that leaves changes
nothing. `Progress` is a request as its events describe it, and is pure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

from sk_agents.engine.calls.call import Approval, Call, apply_to_calls
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Cancelled,
    CancelRequested,
    Event,
    Failed,
    LateResult,
    ReviewExtended,
    RunEnded,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, RunStatus, Usage
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.reading.watch import Item
from sk_agents.engine.threads.known import KnownThread
from sk_agents.engine.values import dataclass
from sk_agents.tealagents.models import StateIds

PAGE = 500


@dataclass(slots=True)
class Progress:
    """A request as its events describe it: what it waits for, and its outcome.

    `pause` is the place in the log of the last approval request, `pauses` counts the pauses.
    Approvals requested before any of them was decided belong to one pause: deciding some of them
    does not change the pause, and a later request always makes a new one.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    answer: Answered | None = None
    failure: Failed | None = None
    cancelled: Cancelled | None = None
    ended: RunStatus | None = None
    usage: Usage = Usage()
    pause: int = 0
    pauses: int = 0
    _is_stopping: bool = False
    _was_answered: bool = True

    @classmethod
    def of(cls, run: Run) -> Progress:
        """Of a run that has ended: no approval waits in it, so pauses do not matter."""
        return cls(
            run.calls,
            run.answer,
            run.failure,
            run.cancelled,
            run.phase,
            run.usage,
            _is_stopping=run.is_stopping,
        )

    def take(self, event: Event) -> None:
        match event:
            case ApprovalRequested():
                self.pauses += self._was_answered
                self._was_answered, self.pause = False, event.seq
                apply_to_calls(self.calls, event)
            case ApprovalDecided():
                self._was_answered = True
                apply_to_calls(self.calls, event)
            case (
                ToolProposed()
                | ToolStarted()
                | ToolFinished()
                | ToolOutcomeUnknown()
                | LateResult()
                | VoteCast()
                | VoteWithdrawn()
                | ReviewExtended()
            ):
                apply_to_calls(self.calls, event)
            case Answered():
                self.answer = event
            case Failed():
                self.failure = event
            case Cancelled():
                self.cancelled = event
            case CancelRequested():
                self._is_stopping = True
            case RunEnded():
                self.ended, self.usage = RunStatus(event.status), event.usage

    @property
    def is_waiting(self) -> bool:
        """Every call without a result waits for a person, and no cancel was requested."""
        unresolved = [call for call in self.calls.values() if call.finished is None]
        return bool(unresolved) and not self._is_stopping and all(c.waits for c in unresolved)

    @property
    def status(self) -> RunStatus:
        if self.ended is not None:
            return self.ended
        return RunStatus.WAITING if self.is_waiting else RunStatus.RUNNING

    @property
    def is_rejected(self) -> bool:
        """A person rejected one of its calls, which ended it; it was not cancelled."""
        if self.status is not RunStatus.CANCELLED or self._is_stopping:
            return False
        return any(
            call.finished is not None
            and (call.finished.outcome, call.finished.by) == ("refused", "human")
            for call in self.calls.values()
        )

    @property
    def waiting_calls(self) -> Iterator[tuple[Call, Approval]]:
        for call in self.calls.values():
            if call.approval is not None and call.waits:
                yield call, call.approval


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A request that was started or resumed; its events lie in the log after `start`."""

    ids: StateIds
    user_id: str
    start: int


Piece = str | Progress
"""Text as it appears; last, the request's outcome: ended, or waiting for a person."""


class TextOutlet(Protocol):
    """Takes text at once, while the reader that follows the request waits for more of it."""

    @property
    def is_open(self) -> bool: ...

    def write(self, text: str) -> None: ...


class Agent:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def follow(
        self, request: AcceptedRequest, outlet: TextOutlet | None = None
    ) -> AsyncGenerator[Sequence[Piece], None]:
        """The request as it happens, as many pieces at a time as there are.

        The text of the answer comes whole and in order, also to a reader that was too slow to see
        it appear; a model that had to be asked again starts again. Text that `outlet` has taken is
        not among the pieces.

        Raises:
            TealError: the log cannot be read.
        """
        ids, progress, text = request.ids, Progress(), _AnswerText(outlet)
        watched = self._engine.watch(
            ids.task_id, after=request.start, run_id=ids.request_id, outlet=text
        )
        try:
            async for items in watched:
                pieces: list[Piece] = []
                for item in items:
                    if unseen := text.unseen(item):
                        pieces.append(unseen)
                    if not isinstance(item, LiveDelta):
                        progress.take(item)
                if progress.ended is not None or await self._waits(request, progress):
                    pieces.append(progress)
                    yield pieces
                    return
                if pieces:
                    yield pieces
        finally:
            await watched.aclose()

    async def outcome(self, request: AcceptedRequest, seconds: float) -> Progress:
        """The request as soon as it has ended or waits for a person.

        Raises:
            TimeoutError: neither has come within `seconds`.
            TealError: the log cannot be read.
        """
        task_id, request_id = request.ids.task_id, request.ids.request_id
        while True:
            run = await self._engine.result(task_id, request_id, seconds=seconds)
            if run.phase in TERMINAL:
                return Progress.of(run)
            known = await self._engine.thread(task_id, request.user_id)
            progress = await self.progress(known, known.state.run(request_id))
            if progress.status is not RunStatus.RUNNING:
                return progress
            # A person has decided in between: it goes on.

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

    async def _waits(self, request: AcceptedRequest, progress: Progress) -> bool:
        """Looks at the thread as it is now: what was read may already be decided."""
        if not progress.is_waiting:
            return False
        known = await self._engine.thread(request.ids.task_id, request.user_id)
        return known.state.run(request.ids.request_id).status is RunStatus.WAITING


class _AnswerText:
    """How much of the current round's text the reader has seen. Passes previews to the outlet."""

    def __init__(self, outlet: TextOutlet | None) -> None:
        self._outlet = outlet
        self._round, self._length = 0, 0

    @property
    def is_open(self) -> bool:
        return self._outlet is not None and self._outlet.is_open

    def take(self, previews: Sequence[LiveDelta]) -> None:
        text = "".join(map(self.unseen, previews))
        if text and self._outlet is not None:
            self._outlet.write(text)

    def unseen(self, item: Item) -> str:
        match item:
            case LiveDelta(kind="answer"):
                self._round = item.round
                self._length = item.offset + len(item.content)
                return item.content
            case Answered():
                return item.content[self._length if item.round == self._round else 0 :]
        return ""


def __getattr__(name: str) -> Any:
    if name != "TealAgentsV1Alpha1Handler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The handler imports this module, so it can only be imported when it is asked for.
    from sk_agents.tealagents.v1alpha1 import handler  # noqa: PLC0415

    return handler.TealAgentsV1Alpha1Handler
