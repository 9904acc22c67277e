"""Random logs that a lawful engine could have written, as Hypothesis strategies.

The simulated engine knows nothing of `fold` or `admit`: it is what they are checked against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from hypothesis import strategies as st

from sk_agents.engine.events import BranchChanged, Event, RunStarted, ThreadChanged
from sk_agents.engine.log.commits import Claim, ClaimIfFree, LeaseChange, Park, Release
from sk_agents.engine.models import RunStatus
from tests.engine.builders import (
    Outcome,
    answered,
    asked,
    cancel_requested,
    cancelled,
    decided,
    dequeued,
    ended,
    failed,
    finished,
    granted,
    imported,
    late,
    log,
    outcome_unknown,
    proposed,
    queued,
    said,
    started,
    thought,
    tool_started,
)

OWNER = "owner"
WAITING_CALLS = {"asked", "asked_unknown"}


@dataclass(frozen=True, slots=True)
class Step:
    """One commit: its events, and what it does to the lease."""

    events: tuple[Event, ...]
    lease: LeaseChange | None = None


@dataclass(slots=True)
class SimulatedEngine:
    """One thread, moved on by whichever of its `moves` is drawn."""

    steps: list[Step] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    parents: dict[str, str | None] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    active: str | None = None
    tip: str | None = None
    cancelling: bool = False
    parked: bool = False
    calls: dict[str, str] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def moves(self) -> Iterator[tuple[str, ...]]:
        yield from (("grant",), ("label",), ("enqueue",))
        for run in self.queue:
            yield "cancel_queued", run
        if self.active is None:
            yield from self._idle_moves()
        elif not self.parked:
            yield from self._owner_moves()
        if self.active is not None and not self.cancelling:
            yield ("cancel",)
        for call, state in self.calls.items():
            if state in WAITING_CALLS:
                yield from (("decide", call, o) for o in ("approved", "rejected", "expired"))
            if state == "asked_unknown":
                yield "attach_late", call

    def make(self, move: Sequence[str]) -> None:
        getattr(self, move[0])(*move[1:])

    def _idle_moves(self) -> Iterator[tuple[str, ...]]:
        yield ("import_history",)
        if self.queue:
            yield ("start_queued",)
            return
        yield ("start",)
        for run in self.runs:
            yield "switch", run
            yield "edit", run

    def _owner_moves(self) -> Iterator[tuple[str, ...]]:
        yield from (("think",), ("fail",))
        if self.cancelling:
            yield ("stop",)
        elif all(state == "finished" for state in self.calls.values()):
            yield from (("answer",), ("propose",), ("propose_gated",))
        for call, state in self.calls.items():
            if state in {"proposed", "approved"} and not self.cancelling:
                yield "run_tool", call
            if state == "proposed":
                yield "ask", call
            if state == "approved":
                yield "withdraw", call
            if state in {"started", "refused", "proposed"}:
                yield "finish", call
            if state == "started":
                yield "lose", call

    def _commit(self, *events: Event, lease: LeaseChange | None = None) -> None:
        """A run that can only wait is parked in the commit that leaves it so."""
        open_calls = [state for state in self.calls.values() if state != "finished"]
        waits = bool(open_calls) and all(state in WAITING_CALLS for state in open_calls)
        if waits and not self.cancelling and not self.parked:
            self.parked, lease = True, Park()
        self.steps.append(Step(events, lease))

    def _new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def _new_approval(self, call: str) -> str:
        self.approvals[call] = self._new("a")
        return self.approvals[call]

    def _begin(self, run: str, parent: str | None) -> None:
        self.active = self.tip = run
        self.runs.append(run)
        self.parents[run] = parent
        self.cancelling = self.parked = False
        self.calls = {}

    def _run(self) -> str:
        assert self.active is not None
        return self.active

    def start(self) -> None:
        run, parent = self._new("r"), self.tip
        self._begin(run, parent)
        self._commit(started(run, parent=parent), lease=Claim(OWNER))

    def edit(self, edited: str) -> None:
        run, parent = self._new("r"), self.parents[edited]
        self._begin(run, parent)
        first = RunStarted(run_id=run, message=said("again"), parent_run=parent, edits=edited)
        self._commit(BranchChanged(head_run=parent), first, lease=Claim(OWNER))

    def start_queued(self) -> None:
        run, parent = self.queue.pop(0), self.tip
        self._begin(run, parent)
        self._commit(dequeued(run, parent=parent), lease=Claim(OWNER))

    def switch(self, run: str) -> None:
        self.tip = run
        self._commit(BranchChanged(head_run=run))

    def enqueue(self) -> None:
        run = self._new("q")
        self.queue.append(run)
        self._commit(queued(run))

    def cancel_queued(self, run: str) -> None:
        self.queue.remove(run)
        self._commit(cancel_requested(run), ended(run, RunStatus.CANCELLED))

    def grant(self) -> None:
        self._commit(granted(self._new("g"), self.active or ""))

    def label(self) -> None:
        self._commit(ThreadChanged(metadata={"title": self._new("title ")}))

    def import_history(self) -> None:
        self._commit(imported("earlier", status="completed"))

    def think(self) -> None:
        self._commit(thought(self._run()))

    def propose(self) -> None:
        first, second = self._new("c"), self._new("c")
        self.calls |= {first: "proposed", second: "proposed"}
        self._commit(proposed(first, self._run()), proposed(second, self._run()))

    def propose_gated(self) -> None:
        free, gated = self._new("c"), self._new("c")
        self.calls |= {free: "proposed", gated: "asked"}
        run, approval = self._run(), self._new_approval(gated)
        self._commit(proposed(free, run), proposed(gated, run), asked(approval, gated, run))

    def ask(self, call: str) -> None:
        self.calls[call] = "asked"
        self._commit(asked(self._new_approval(call), call, self._run()))

    def decide(self, call: str, outcome: str) -> None:
        self.calls[call] = "approved" if outcome == "approved" else "refused"
        self.parked = False
        decision = decided(cast(Outcome, outcome), self.approvals[call], call, self._run())
        self._commit(decision, lease=ClaimIfFree(OWNER))

    def withdraw(self, call: str) -> None:
        """The digest no longer fits: the call goes through policy again."""
        self.calls[call] = "proposed"
        self._commit(decided("withdrawn", self.approvals[call], call, self._run()))

    def run_tool(self, call: str) -> None:
        approval = self.approvals[call] if self.calls[call] == "approved" else None
        self.calls[call] = "started"
        self._commit(tool_started(call, self._run(), approval=approval))

    def finish(self, call: str) -> None:
        refused = self.calls[call] != "started"
        self.calls[call] = "finished"
        self._commit(finished(call, self._run(), outcome="refused" if refused else "ok"))

    def lose(self, call: str) -> None:
        run = self._run()
        self.calls[call] = "asked_unknown"
        question = asked(self._new_approval(call), call, run, kind="outcome_unknown")
        self._commit(outcome_unknown(call, run), question)

    def attach_late(self, call: str) -> None:
        self._commit(late(call, self._run()))

    def cancel(self) -> None:
        self.cancelling, self.parked = True, False
        self._commit(cancel_requested(self._run()), lease=ClaimIfFree(OWNER))

    def answer(self) -> None:
        self._end([answered(self._run()), ended(self._run())])

    def fail(self) -> None:
        self._end([*self._seal(), *failed(self._run())])

    def stop(self) -> None:
        self._end([*self._seal(), *cancelled(self._run(), partial="so f")])

    def _seal(self) -> Iterator[Event]:
        for call, state in self.calls.items():
            if state in WAITING_CALLS:
                yield decided("withdrawn", self.approvals[call], call, self._run())
            if state != "finished":
                yield finished(call, self._run(), outcome="sealed")

    def _end(self, events: list[Event]) -> None:
        """The finishing owner starts the next queued run in the same commit."""
        self.active, self.calls = None, {}
        if not self.queue:
            self._commit(*events, lease=Release())
            return
        run, parent = self.queue.pop(0), self.tip
        self._begin(run, parent)
        self._commit(*events, dequeued(run, parent=parent))


@st.composite
def histories(draw: st.DrawFn, max_moves: int = 30) -> list[Step]:
    """What one thread's commits may be, from its first on."""
    engine = SimulatedEngine()
    engine.start()
    for _ in range(draw(st.integers(0, max_moves))):
        engine.make(draw(st.sampled_from(list(engine.moves()))))
    return engine.steps


def legal_logs(max_moves: int = 30) -> st.SearchStrategy[list[Event]]:
    return histories(max_moves).map(
        lambda steps: log(*(event for step in steps for event in step.events))
    )
