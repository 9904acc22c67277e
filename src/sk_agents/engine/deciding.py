"""A person's decision about a call: checked, bound to what was shown, made once."""

from __future__ import annotations

from collections.abc import Iterator

from sk_agents.engine import tool_steps as steps
from sk_agents.engine.agent import Agent
from sk_agents.engine.calls import Approval, Call
from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.events import ApprovalDecided, ApprovalRequested, Event, GrantChanged
from sk_agents.engine.models import ApprovalState, Entry
from sk_agents.engine.ports import Ids, Store
from sk_agents.engine.state import Run
from sk_agents.engine.threads import KnownThread
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNotFound,
    Forbidden,
    InvalidInput,
    ToolError,
)


def asked_call(known: KnownThread, entry: Entry) -> tuple[Run, Call, Approval]:
    """The call this approval is about.

    Raises:
        ApprovalAlreadyDecided: it is about another approval by now.
        ApprovalNotFound: the entry dangles.
    """
    run = known.state.runs.get(entry.run_id)
    for call in run.calls.values() if run is not None else ():
        if call.approval is not None and call.approval.request.approval_id == entry.key:
            assert run is not None
            return run, call, call.approval
    if entry.open:
        raise ApprovalNotFound(approval_id=entry.key)
    raise ApprovalAlreadyDecided(approval_id=entry.key)


async def past_approval(store: Store, entry: Entry) -> Approval:
    """The approval as it was left, from the log: a call knows only its last one.

    Raises:
        ApprovalNotFound: the log does not know it.
    """
    approval, seq = None, 0
    while events := await store.events_after(entry.thread_id, seq):
        seq = events[-1].seq
        for event in events:
            if isinstance(event, ApprovalRequested) and event.approval_id == entry.key:
                approval = Approval(event)
            if isinstance(event, ApprovalDecided) and event.approval_id == entry.key and approval:
                approval.decision = approval.decision or event
                approval.state = ApprovalState(event.outcome)
    if approval is None:
        raise ApprovalNotFound(approval_id=entry.key)
    return approval


def check_open(approval: Approval, command: DecideApproval) -> bool:
    """True if it is still to be decided, False if this very request has decided it before.

    Raises:
        ApprovalAlreadyDecided, ApprovalExpired: somebody or something else did.
    """
    if approval.state is ApprovalState.PENDING:
        return True
    decision = approval.decision
    if decision is not None and command.idempotency_key is not None:
        if decision.idempotency_key == command.idempotency_key:
            return False
    if approval.state is ApprovalState.EXPIRED:
        raise ApprovalExpired(approval_id=command.approval_id)
    outcome = decision.outcome if decision is not None else "decided"
    if approval.state is ApprovalState.WITHDRAWN:
        outcome = "withdrawn"
    raise ApprovalAlreadyDecided(approval_id=command.approval_id, outcome=outcome)


def decision_events(
    known: KnownThread, run: Run, call: Call, command: DecideApproval, agent: Agent, ids: Ids
) -> Iterator[Event]:
    """The deciding commit's events.

    Raises:
        ApprovalMismatch: the caller echoes another digest than the one that was shown.
        InvalidInput: the verb does not fit the kind, or edited arguments break the schema.
        Forbidden: policy denies the edited call.
    """
    approval = call.approval
    assert approval is not None
    request = approval.request
    if command.digest is not None and command.digest != request.digest:
        raise ApprovalMismatch(approval_id=request.approval_id)
    _check_verb(command, request.kind)
    if request.kind == "question" and command.approved and request.choices is not None:
        if command.answer not in request.choices:
            raise InvalidInput(f"The answer must be one of: {', '.join(request.choices)}.")
    edited = command.edited_arguments if command.approved else None
    digest = None
    if edited is not None:
        edited, digest = _checked_edit(known, run, call, edited, agent)
    yield ApprovalDecided(
        run_id=run.run_id,
        approval_id=request.approval_id,
        call_id=request.call_id,
        outcome="approved" if command.approved else "rejected",
        by="human",
        decided_by=command.user_id,
        message=command.message,
        edited_arguments=edited,
        digest=digest,
        choice=command.choice if command.approved else None,
        answer=command.answer,
        idempotency_key=command.idempotency_key,
    )
    if command.approved and command.remember is not None:
        yield GrantChanged(
            run_id=run.run_id,
            grant_id=f"grant_{ids.new()}",
            tool=steps.effective_call(call).name,
            scope=command.remember,
            granted=True,
            changed_by=command.user_id,
        )


def _check_verb(command: DecideApproval, kind: str) -> None:
    if kind == "tool" or not command.approved:
        return
    if kind == "outcome_unknown" and command.choice is None:
        raise InvalidInput("Say what happened: choice is one of done, retry, give_up.")
    if kind == "question" and command.answer is None:
        raise InvalidInput("A question needs an answer.")
    if command.edited_arguments is not None or command.remember is not None:
        raise InvalidInput("Only a tool call can be edited or remembered.")


def _checked_edit(
    known: KnownThread, run: Run, call: Call, edited: dict[str, object], agent: Agent
) -> tuple[dict[str, object], str]:
    wanted = steps.effective_call(call).model_copy(update={"arguments": edited})
    spec = next((spec for spec in agent.toolbox.specs() if spec.name == wanted.name), None)
    try:
        checked = dict(agent.toolbox.check(wanted))
    except ToolError as error:
        raise InvalidInput(str(error)) from error
    if spec is None:
        raise InvalidInput(f"There is no tool named {wanted.name} any more.")
    wanted = wanted.model_copy(update={"arguments": checked})
    if agent.policy.verdict(wanted, spec) == "deny":
        raise Forbidden("Policy denies the call as edited.")
    return checked, steps.digest_of(known.head.thread_id, run.run_id, wanted, spec)
