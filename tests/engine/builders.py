"""Events with sensible defaults, and logs made of them. `histories.py` makes random legal ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
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
    Noted,
    Rated,
    ReviewExtended,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    Thinking,
    ThreadChanged,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.models import ApprovalKind, Audience, Part, RunStatus, Usage, UserInput

START = datetime(2030, 1, 1, tzinfo=UTC)
FINANCE = Audience(groups=("finance",))

Outcome = Literal["approved", "rejected", "expired", "withdrawn"]
Choice = Literal["done", "retry", "give_up"]
Ending = Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]
DECIDERS: dict[Outcome, Literal["human", "timeout", "policy"]] = {
    "approved": "human",
    "rejected": "human",
    "expired": "timeout",
    "withdrawn": "policy",
}


def moment(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def log(*events: Event) -> list[Event]:
    """The events as a store would have numbered and dated them, one second apart."""
    return [
        event.model_copy(update={"seq": seq, "at": moment(seq)})
        for seq, event in enumerate(events, 1)
    ]


def said(text: str) -> UserInput:
    return UserInput(parts=(Part(content=text),))


def started(run: str = "r1", *, parent: str | None = None, text: str = "hello") -> RunStarted:
    return RunStarted(run_id=run, message=said(text), parent_run=parent)


def queued(run: str, *, text: str = "next") -> RunQueued:
    return RunQueued(run_id=run, message=said(text))


def dequeued(run: str, *, parent: str | None = None) -> RunStarted:
    """The start of a run whose message `queued` holds."""
    return RunStarted(run_id=run, parent_run=parent)


def proposed(call: str = "c1", run: str = "r1", **fields: Any) -> ToolProposed:
    defaults: dict[str, Any] = {
        "round": 1,
        "plugin_name": "files",
        "function_name": "write",
        "arguments": {"path": "notes.txt"},
    }
    return ToolProposed(run_id=run, call_id=call, **(defaults | fields))


def asked(
    approval: str = "a1", call: str = "c1", run: str = "r1", *, kind: ApprovalKind = "tool"
) -> ApprovalRequested:
    return ApprovalRequested(
        run_id=run,
        approval_id=approval,
        call_id=call,
        kind=kind,
        digest="d",
        shown={"path": "notes.txt"},
        expires_at=moment(3600),
    )


def decided(
    outcome: Outcome,
    approval: str = "a1",
    call: str = "c1",
    run: str = "r1",
    *,
    choice: Choice | None = None,
) -> ApprovalDecided:
    return ApprovalDecided(
        run_id=run,
        approval_id=approval,
        call_id=call,
        outcome=outcome,
        by=DECIDERS[outcome],
        choice=choice,
    )


def voted(voter: str = "bob", approval: str = "a1", call: str = "c1", run: str = "r1") -> VoteCast:
    return VoteCast(
        run_id=run,
        approval_id=approval,
        call_id=call,
        voter=voter,
        voter_name=voter.title(),
        right="group:finance",
        approved=True,
        digest="d",
    )


def tool_started(
    call: str = "c1", run: str = "r1", *, approval: str | None = None, attempt: int = 1
) -> ToolStarted:
    return ToolStarted(run_id=run, call_id=call, approval_id=approval, attempt=attempt)


def finished(
    call: str = "c1",
    run: str = "r1",
    *,
    result: str = "written",
    outcome: Literal["ok", "error", "refused", "sealed"] = "ok",
) -> ToolFinished:
    return ToolFinished(run_id=run, call_id=call, result=result, outcome=outcome)


def outcome_unknown(call: str = "c1", run: str = "r1") -> ToolOutcomeUnknown:
    return ToolOutcomeUnknown(run_id=run, call_id=call, reason="owner_lost")


def late(call: str = "c1", run: str = "r1", *, result: str = "it was written") -> LateResult:
    return LateResult(run_id=run, call_id=call, result=result)


def thought(run: str = "r1", *, content: str = "I look first.", spoken: bool = False) -> Thinking:
    return Thinking(run_id=run, round=1, content=content, spoken=spoken)


def answered(run: str = "r1", *, content: str = "Done.") -> Answered:
    return Answered(run_id=run, content=content)


def ended(run: str = "r1", status: Ending = RunStatus.COMPLETED) -> RunEnded:
    return RunEnded(run_id=run, status=status, usage=Usage(prompt_tokens=3, completion_tokens=4))


def cancel_requested(run: str = "r1") -> CancelRequested:
    return CancelRequested(run_id=run, requested_by="ada")


def cancelled(run: str = "r1", *, partial: str | None = None) -> list[Event]:
    return [Cancelled(run_id=run, partial=partial), ended(run, RunStatus.CANCELLED)]


def failed(run: str = "r1") -> list[Event]:
    failure = Failed(run_id=run, code="llm_unavailable", message="The model is away.")
    return [failure, ended(run, RunStatus.FAILED)]


def turn(run: str = "r1", *, parent: str | None = None, text: str = "hello") -> list[Event]:
    """A plain turn: a message and its answer."""
    return [started(run, parent=parent, text=text), answered(run), ended(run)]


def granted(grant: str = "g1", run: str = "r1", *, given: bool = True) -> GrantChanged:
    return GrantChanged(
        run_id=run, grant_id=grant, tool="files-write", scope="thread", granted=given
    )


def imported(*texts: str, **fields: Any) -> Imported:
    items = tuple(
        ImportedItem(role="user", content=text, run_id=f"i{number}", at=moment(number))
        for number, text in enumerate(texts)
    )
    return Imported(items=items, **fields)


def one_of_each() -> list[Event]:
    """One event of every type, each with as many fields set as it has."""
    return [
        queued("r2").model_copy(update={"idempotency_key": "k", "on_disconnect": "cancel"}),
        started(text="naïve 漢字 🦊").model_copy(update={"agent": "scribe", "edits": "r0"}),
        ModelRestarted(run_id="r1", round=1, attempt=2, reason="timeout"),
        thought(spoken=True),
        proposed(arguments={"none": None, "deep": [{"x": 1.5}], "big": 2**63}, usage=Usage()),
        asked().model_copy(update={"choices": ("yes", "no"), "answer_schema": {"type": "string"}}),
        voted(),
        VoteWithdrawn(run_id="r1", approval_id="a1", call_id="c1", voter="bob", voter_name="Bob"),
        ReviewExtended(
            run_id="r1",
            approval_id="a1",
            call_id="c1",
            audience=Audience(groups=("board",)),
            left=FINANCE,
            expires_at=moment(7200),
        ),
        decided("approved").model_copy(update={"answer": {"a": None}, "edited_arguments": {}}),
        tool_started(approval="a1"),
        finished().model_copy(update={"extra_data": {"k": None}, "full_size": 7, "by": "human"}),
        outcome_unknown(),
        late(),
        Steered(
            run_id="r1",
            message_id="m1",
            content="in Spain",
            said_by="ada",
            idempotency_key="k",
            request_digest="d",
            secrets={"s": "x"},
        ),
        SteeringDelivered(run_id="r1", round=2, message_ids=("m1",), usage=Usage()),
        cancel_requested().model_copy(update={"after": "step"}),
        *cancelled(partial="so f"),
        *failed()[:1],
        answered(),
        Compacted(run_id="r1", through_run="r1", summary="They said hello."),
        granted(),
        BranchChanged(head_run=None),
        imported("old", status="completed"),
        ThreadChanged(metadata={"title": "A", "gone": None}),
        Rated(run_id="r1", rating="down", note="It named the wrong year."),
        Noted(what="deleting", who="bob", subject="t", count=2, details={"next_seq": 7}),
    ]
