"""What a log means: a fold of its events into the state of a thread and its runs.

`fold` is pure. An owner keeps one `ThreadState` and feeds it what it commits, so a turn costs the
same at the start of a conversation and after its thousandth run. Nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sk_agents.engine.calls.call import Approval, Call, apply_to_calls
from sk_agents.engine.events import (
    Answered,
    Beginning,
    BranchChanged,
    Cancelled,
    CancelRequested,
    Compacted,
    Event,
    Failed,
    GrantChanged,
    Imported,
    ImportedItem,
    LateResult,
    ModelRestarted,
    Rated,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    Thinking,
    ThreadChanged,
    ThreadEvent,
    ToolFinished,
    ToolProposed,
)
from sk_agents.engine.log.blobs import CARRIERS, with_contents
from sk_agents.engine.models import (
    RUN_CHANGES,
    STATUS_AFTER,
    TERMINAL,
    Message,
    RunStatus,
    ThreadStatus,
    Usage,
    UserInput,
    checked_change,
)
from sk_agents.exceptions import StateCorrupt

# The events that may bring contents or secrets that later ones refer to.
_BRINGERS = CARRIERS | {Steered}

# The key of a thread's metadata that holds its title.
TITLE = "title"
# The one that says where it lies, and what it says of one that was thrown away.
PLACE = "place"
BIN = "bin"


@dataclass(frozen=True, slots=True)
class Steering:
    """What the user said while the run worked, and the round of the model that was given it."""

    said: Steered
    delivery: SteeringDelivered | None = None


@dataclass(slots=True)
class Run:
    run_id: str
    message: UserInput | None
    phase: RunStatus
    parent_run: str | None
    created_at: datetime
    edits: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    agent: str | None = None
    on_disconnect: str | None = None
    response_schema: dict[str, Any] | None = None
    trace: str | None = None
    user_name: str | None = None
    correlation_id: str | None = None
    thoughts: list[Thinking] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    # Those of them without a result.
    open_calls: dict[str, Call] = field(default_factory=dict)
    is_refused: bool = False
    """Whether a person has refused one of its calls."""
    answer: Answered | None = None
    failure: Failed | None = None
    cancelled: Cancelled | None = None
    cancel_requested: CancelRequested | None = None
    stop_requested: CancelRequested | None = None
    """To stop after the step that is at work; the other one is to stop at once."""
    steering: tuple[Steering, ...] = ()
    """In the order in which it was said; what was delivered comes first."""
    usage: Usage = Usage()
    # By round, where it was asked for more than once.
    attempts: dict[int, int] | None = None
    completed_at: datetime | None = None
    rated: Rated | None = None
    first_seq: int = 0
    last_seq: int = 0
    """Its first and last event in the log; the latter once it has ended."""
    # The user's message as a part of prompts: one object, so that it is encoded once.
    user_message: Message | None = field(default=None, compare=False, repr=False)
    # The messages of rounds whose calls have results, the number of these calls and that of the
    # user's messages among them. Each further round sends them again, and each later run.
    round_messages: list[Message] = field(default_factory=list, compare=False, repr=False)
    round_calls: int = field(default=0, compare=False, repr=False)
    round_steering: int = field(default=0, compare=False, repr=False)

    @property
    def status(self) -> RunStatus:
        """Waiting is derived: every call without a result waits for a person.

        A run that was asked to stop does not wait: its owner has to end it.
        """
        if self.calls and self.phase is RunStatus.RUNNING and not self.is_stopping:
            if self.open_calls and all(call.waits for call in self.open_calls.values()):
                return RunStatus.WAITING
        return self.phase

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop, at once or after its step."""
        return self.cancel_requested is not None or self.stop_requested is not None

    @property
    def next_round(self) -> int:
        """The number of the model's next call, or of the one at work."""
        number = 1 + next(reversed(self.calls.values())).proposal.round if self.calls else 1
        if not self.steering:
            return number
        return max((number, *(one.delivery.round for one in self.steering if one.delivery)))

    @property
    def last_words(self) -> str | None:
        """Its answer, or what it had said when it was stopped."""
        if self.answer is not None:
            return self.answer.content
        return self.cancelled.partial if self.cancelled is not None else None

    @property
    def delivered(self) -> tuple[Steering, ...]:
        return tuple(one for one in self.steering if one.delivery is not None)

    @property
    def undelivered(self) -> tuple[Steering, ...]:
        """What the next call of the model is to get."""
        if not self.steering:
            return ()
        return tuple(one for one in self.steering if one.delivery is None)

    def attempt(self, number: int) -> int:
        """The number of the last attempt at this round."""
        return self.attempts.get(number, 1) if self.attempts else 1

    @property
    def unresolved_calls(self) -> list[Call]:
        return list(self.open_calls.values())

    @property
    def pending_approvals(self) -> list[Approval]:
        return [call.approval for call in self.open_calls.values() if call.approval and call.waits]


@dataclass(slots=True)
class ThreadState:
    """A thread as its log describes it."""

    next_seq: int = 1
    runs: dict[str, Run] = field(default_factory=dict)
    head_run: str | None = None
    active_run: str | None = None
    queue: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    # By its idempotency key, what was said while a run worked.
    steering_keys: dict[str, Steered] = field(default_factory=dict)
    grants: dict[str, GrantChanged] = field(default_factory=dict)
    compactions: list[Compacted] = field(default_factory=list)
    imported: list[ImportedItem] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    is_named: bool = False
    """Whether a person has given it its title: no run did."""
    # What placeholders stand for: for tools alone.
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    # What later events may refer to, by digest.
    contents: dict[str, str] = field(default_factory=dict, repr=False)
    last_status: ThreadStatus = ThreadStatus.IDLE
    last_event: Event | None = None

    @property
    def status(self) -> ThreadStatus:
        if self.active_run is not None:
            return STATUS_AFTER[self.runs[self.active_run].status]
        return self.last_status

    def branch(self) -> list[Run]:
        """The visible runs, oldest first."""
        return self.path(self.head_run)

    def path(self, run_id: str | None) -> list[Run]:
        """The runs from the root to this one."""
        path: list[Run] = []
        while run_id is not None:
            run = self.run(run_id)
            path.append(run)
            run_id = run.parent_run
        path.reverse()
        return path

    def run(self, run_id: str) -> Run:
        try:
            return self.runs[run_id]
        except KeyError:
            raise StateCorrupt(f"the log speaks of an unknown run {run_id}") from None

    def apply(self, event: Event) -> None:
        """Take one more event.

        Raises:
            StateCorrupt: it does not follow the last one, or is not legal in this state.
        """
        if event.seq != self.next_seq:
            raise StateCorrupt(f"event {event.seq} stands where {self.next_seq} is due")
        self.next_seq += 1
        self.last_event = event
        if type(event) in _BRINGERS:
            event = self._opened(event)
        if not isinstance(event, ThreadEvent):
            _apply_step(self.run(event.run_id), event)
            if isinstance(event, Steered) and event.idempotency_key is not None:
                self.steering_keys[event.idempotency_key] = event
            return
        match event:
            case RunStarted():
                self._start(event)
            case RunEnded():
                self._end(event)
            case RunQueued():
                self._add(event, RunStatus.QUEUED, parent=None)
                self.queue.append(event.run_id)
            case GrantChanged(granted=True):
                self.grants[event.grant_id] = event
            case GrantChanged():
                self.grants.pop(event.grant_id, None)
            case BranchChanged():
                if event.head_run is not None:
                    self.run(event.head_run)
                self.head_run = event.head_run
            case Compacted():
                self.compactions.append(event)
            case ThreadChanged():
                self.metadata = merge_metadata(self.metadata, event.metadata)
                self.is_named |= not event.run_id and TITLE in event.metadata
            case Rated():
                self.run(event.run_id).rated = event if event.rating is not None else None
            case Imported():
                self.imported.extend(event.items)
                self.last_status = event.status or self.last_status

    def _opened(self, event: Event) -> Event:
        """The event as it was meant; what it brings for later ones is kept."""
        if isinstance(event, (Beginning, ToolFinished, LateResult, Steered)) and event.secrets:
            self.secrets.update(event.secrets)
        return with_contents(event, self.contents)

    def _start(self, event: RunStarted) -> None:
        known = self.runs.get(event.run_id)
        if self.active_run is not None:
            raise StateCorrupt(f"run {event.run_id} starts while another is active")
        # So that no chain of parents is endless.
        if event.parent_run is not None and self.run(event.parent_run).phase not in TERMINAL:
            raise StateCorrupt(f"run {event.run_id} follows a run that has not ended")
        if (known is None) is (event.message is None):
            raise StateCorrupt(f"run {event.run_id} starts with no message, or with two")
        if known is None:
            self._add(event, RunStatus.RUNNING, parent=event.parent_run, edits=event.edits)
        else:
            known.phase = checked_change(RUN_CHANGES, known.phase, RunStatus.RUNNING, "a run")
            known.parent_run = event.parent_run
            self.queue.remove(event.run_id)
        self.active_run = self.head_run = event.run_id

    def _add(
        self,
        event: RunQueued | RunStarted,
        phase: RunStatus,
        *,
        parent: str | None,
        edits: str | None = None,
    ) -> None:
        before = self.runs[event.run_id].phase if event.run_id in self.runs else None
        checked_change(RUN_CHANGES, before, phase, "a run")
        self.runs[event.run_id] = Run(
            run_id=event.run_id,
            message=event.message,
            phase=phase,
            parent_run=parent,
            created_at=event.at,
            edits=edits,
            idempotency_key=event.idempotency_key,
            request_digest=event.request_digest,
            agent=event.agent,
            on_disconnect=event.on_disconnect,
            response_schema=event.response_schema,
            trace=event.trace,
            user_name=event.user_name,
            correlation_id=event.correlation_id,
            first_seq=event.seq,
        )
        if event.idempotency_key is not None:
            self.keys[event.idempotency_key] = event.run_id

    def _end(self, event: RunEnded) -> None:
        run = self.run(event.run_id)
        if run.open_calls:
            raise StateCorrupt(f"run {run.run_id} ends with a call that has no result")
        if run.phase is RunStatus.QUEUED:
            self.queue.remove(run.run_id)
        else:
            self.active_run = None
            self.last_status = STATUS_AFTER[event.status]
        run.phase = checked_change(RUN_CHANGES, run.phase, event.status, "a run")
        run.usage = event.usage
        run.completed_at = event.at
        if any(message.reasoning_state is not None for message in run.round_messages):
            # Only the prompts of the run itself have its thoughts.
            run.round_messages, run.round_calls, run.round_steering = [], 0, 0
        run.last_seq = event.seq


def fold(events: Iterable[Event]) -> ThreadState:
    """The state after these events, which must start at seq 1 and have no gaps.

    Raises:
        StateCorrupt: the events cannot have happened in this order.
    """
    state = ThreadState()
    for event in events:
        state.apply(event)
    return state


def merge_metadata(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """New values win; `None` removes the key."""
    return {key: value for key, value in {**old, **new}.items() if value is not None}


def _apply_step(run: Run, event: Event) -> None:
    if run.phase is not RunStatus.RUNNING and not _is_possible_at_rest(run, event):
        raise StateCorrupt(f"{event.type} belongs to run {run.run_id}, which is {run.phase}")
    match event:
        case Thinking():
            run.thoughts.append(event)
        case Answered():
            run.answer = event
        case Failed():
            run.failure = event
        case Cancelled():
            run.cancelled = event
        case CancelRequested(after="step"):
            run.stop_requested = run.stop_requested or event
        case CancelRequested():
            run.cancel_requested = run.cancel_requested or event
        case Steered():
            if any(one.said.message_id == event.message_id for one in run.steering):
                raise StateCorrupt(f"message {event.message_id} is said twice")
            run.steering = (*run.steering, Steering(event))
        case SteeringDelivered():
            _deliver(run, event)
        case ModelRestarted():
            run.attempts = run.attempts if run.attempts is not None else {}
            run.attempts[event.round] = event.attempt
        case _:
            apply_to_calls(run.calls, event)
            if isinstance(event, ToolProposed):
                run.open_calls[event.call_id] = run.calls[event.call_id]
                run.usage = run.usage if event.usage is None else run.usage + event.usage
            elif isinstance(event, ToolFinished):
                del run.open_calls[event.call_id]
                run.usage = run.usage if event.usage is None else run.usage + event.usage
                run.is_refused |= (event.outcome, event.by) == ("refused", "human")


def _deliver(run: Run, event: SteeringDelivered) -> None:
    """In the order in which it was said, and never between a call and its result: the prompts that
    follow are the same wherever they are made."""
    due = run.undelivered[: len(event.message_ids)]
    if not due or tuple(one.said.message_id for one in due) != event.message_ids:
        raise StateCorrupt(f"run {run.run_id} delivers what was not said, or not in its order")
    is_after_answer = event.usage is not None
    if run.open_calls or event.round != run.next_round + is_after_answer:
        raise StateCorrupt(f"run {run.run_id} delivers a message in the middle of a round")
    before = run.delivered
    given = tuple(Steering(one.said, event) for one in due)
    run.steering = (*before, *given, *run.steering[len(before) + len(given) :])
    run.usage = run.usage if event.usage is None else run.usage + event.usage


def _is_possible_at_rest(run: Run, event: Event) -> bool:
    if isinstance(event, Cancelled):
        return run.phase is RunStatus.QUEUED
    return isinstance(event, LateResult | CancelRequested)
