"""People's decisions about calls: checked, bound to what was shown, made once and together.

Where others than the requester decide, a person's yes is a vote, and the vote that completes their
number is the decision: both are in one commit, which also starts the run again.

A decision counts until its approval expires. A wall clock can be wrong on one machine, or be moved
by a day while everything runs; then it would end every approval there is. So an approval expires
only when its lifetime has also passed on the host's own clock, which starts with the machine and is
the same for all of its processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from sk_agents.engine.agent import Agent
from sk_agents.engine.calls import reviews, steps
from sk_agents.engine.calls.call import SIGN_IN, Approval, Call
from sk_agents.engine.commands import DecideApproval, WithdrawVote
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    GrantChanged,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.log.commits import Pending
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import ApprovalState, Entry, demands_of
from sk_agents.engine.ports import Clock, Ids, Store
from sk_agents.engine.run.redacting import edited_as_meant, redacted_decision
from sk_agents.engine.run.vault import checked
from sk_agents.engine.services import Services
from sk_agents.engine.threads.catalog import RACES, ThreadCatalog
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNotFound,
    ApprovalWithdrawn,
    Conflict,
    Forbidden,
    InvalidInput,
    SequenceConflict,
    ToolError,
)

Asked = tuple[DecideApproval, Entry]
AgentOf = Callable[[KnownThread], Agent]
Lend = Callable[[KnownThread, str | None], AbstractContextManager[None]]


async def decide(
    services: Services,
    catalog: ThreadCatalog,
    commands: Sequence[DecideApproval],
    agent_of: AgentOf,
    lend: Lend,
) -> KnownThread | None:
    """Decide approvals of one run in one commit; `None` if this same request did so before.

    Raises:
        ApprovalNotFound: no such approval that this user may see, or not of the run it is said to
            be of.
        NotApprover: others decide about it.
        ApprovalAlreadyDecided, ApprovalExpired, ApprovalWithdrawn, Conflict: one of them, and
            nothing was changed.
        ApprovalMismatch, InvalidInput, Forbidden: as `decision_events`, or one is named twice, or
            the idempotency key was used for another decision; nothing was changed.
    """
    asked = [
        (one, await catalog.approval(one.approval_id, one.user_id, one.memberships))
        for one in commands
    ]
    _check_places(asked)
    for _ in range(RACES):
        try:
            return await _decide(services, asked, agent_of, lend)
        except SequenceConflict:
            continue
        except ApprovalAlreadyDecided:
            # Another decision was faster, or it was asked again since: the log has the outcome.
            past = [await past_approval(services.store, entry) for _, entry in asked]
            asked = [one for one, was in zip(asked, past, strict=True) if check_open(was, one[0])]
            if not asked:
                return None
    raise Conflict(thread_id=asked[0][1].thread_id)


def _check_places(asked: Sequence[Asked]) -> None:
    """All in one run, each once, and in the run that is named, if one is."""
    first = asked[0][1]
    if len({entry.key for _, entry in asked}) < len(asked):
        raise InvalidInput("An approval can only be decided once.")
    for command, entry in asked:
        named = command.thread_id or first.thread_id, command.run_id or first.run_id
        if named != (entry.thread_id, entry.run_id):
            raise ApprovalNotFound(approval_id=command.approval_id)


async def _decide(
    services: Services, asked: Sequence[Asked], agent_of: AgentOf, lend: Lend
) -> KnownThread | None:
    known = await services.threads.load(asked[0][1].thread_id)
    found = [(command, *asked_call(known, entry)) for command, entry in asked]
    for (command, entry), (*_, approval) in zip(asked, found, strict=True):
        # A yes counts until the moment that was shown: the log and the index must agree on it.
        if command.approved and entry.open and entry.due_at != approval.expires_at:
            raise ApprovalMismatch(approval_id=entry.key)
    still_open = []
    for one in found:
        if check_open(one[3], one[0]):
            still_open.append(one)
        else:
            _check_repeated(services, known, one, agent_of)
    if not still_open:
        return None
    if still_open[0][1].cancel_requested is not None:
        # Its owner is about to withdraw them: nothing may be promised that never runs.
        raise ApprovalWithdrawn(approval_id=still_open[0][0].approval_id)
    agent = agent_of(known)
    secrets = known.state.secrets.values()
    events = [
        event
        for command, run, call, _ in still_open
        for said in [redacted_decision(agent.redaction, secrets, command)]
        for event in decision_events(known, run, call, said, agent, services.ids)
    ]
    if not events:
        return None
    guard = _pending(services, known, [approval for *_, approval in still_open])
    if not any(isinstance(event, ApprovalDecided) for event in events):
        await services.commit(known, guard, *events)
        return known
    with lend(known, own_header(known, asked[0][0])):
        await services.commit(known, guard, *events, lease=services.claim_if_free())
    return known


def own_header(known: KnownThread, command: DecideApproval) -> str | None:
    """The header of a requester who decides. One of others must not reach the requester's tools."""
    return command.authorization if command.user_id == known.head.user_id else None


async def withdraw(services: Services, catalog: ThreadCatalog, command: WithdrawVote) -> None:
    """Take a vote back while nothing is decided.

    Raises:
        ApprovalNotFound, VoteNotFound, NotApprover: see `reviews.withdrawn_vote`.
        ApprovalAlreadyDecided, ApprovalExpired: too late.
    """
    entry = await catalog.approval(command.approval_id, command.user_id, command.memberships)
    for _ in range(RACES):
        known = await services.threads.load(entry.thread_id)
        *_, approval = asked_call(known, entry)
        check_open(approval, DecideApproval(entry.key, command.user_id, approved=False))
        vote = reviews.withdrawn_vote(approval, known.head.user_id, command)
        try:
            await services.commit(known, _pending(services, known, [approval]), vote)
            return
        except SequenceConflict:
            continue
    raise Conflict(thread_id=entry.thread_id)


def _pending(services: Services, known: KnownThread, approvals: Sequence[Approval]) -> Pending:
    """Exactly as read, and none of them late. One that is held at the end of its time never is."""
    first_due = min(approvals, key=_due)
    return Pending(
        first_due.request.approval_id,
        in_time=not any(
            has_passed(one, services.clock)
            for one in approvals
            if one.request.review is None or one.request.review.on_expiry != "hold"
        ),
        next_seq=known.state.next_seq,
        exact=True,
    )


def _due(approval: Approval) -> float:
    return approval.expires_at.timestamp() if approval.expires_at is not None else float("inf")


def asked_call(known: KnownThread, entry: Entry) -> tuple[Run, Call, Approval]:
    """The call this approval is about.

    Raises:
        ApprovalAlreadyDecided: it is about another approval by now.
        ApprovalNotFound: the entry dangles, or its user is not the thread's.
    """
    if entry.user_id != known.head.user_id:
        raise ApprovalNotFound(approval_id=entry.key)
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
            if isinstance(event, VoteCast | VoteWithdrawn) and event.approval_id == entry.key:
                if approval is not None:
                    approval.take(event)
            if isinstance(event, ApprovalDecided) and event.approval_id == entry.key and approval:
                approval.decision = approval.decision or event
                approval.state = ApprovalState(event.outcome)
    if approval is None:
        raise ApprovalNotFound(approval_id=entry.key)
    return approval


def _check_repeated(
    services: Services,
    known: KnownThread,
    repeated: tuple[DecideApproval, Run, Call, Approval],
    agent_of: AgentOf,
) -> None:
    """Raises InvalidInput: the key was this person's for another decision."""
    command, run, call, approval = repeated
    redaction = services.redaction(run.agent or known.head.agent)
    said = redacted_decision(redaction, known.state.secrets.values(), command)
    vote, decision = approval.votes.get(command.user_id), approval.decision
    if vote is not None and vote.idempotency_key == command.idempotency_key:
        is_same = (vote.approved, vote.message) == (said.approved, said.message)
    else:
        assert decision is not None
        is_same = _is_same(decision, said) and _is_same_edit(decision, said, call, known, agent_of)
    if not is_same:
        raise InvalidInput("This Idempotency-Key was used for another decision.")


def _is_same(first: ApprovalDecided, said: DecideApproval) -> bool:
    asked = (
        "approved" if said.approved else "rejected",
        said.message,
        said.choice if said.approved else None,
        said.answer,
        said.approved and said.edited_arguments is not None,
    )
    made = (first.outcome, first.message, first.choice, first.answer)
    return asked == (*made, first.edited_arguments is not None)


def _is_same_edit(
    first: ApprovalDecided, said: DecideApproval, call: Call, known: KnownThread, agent_of: AgentOf
) -> bool:
    """What was kept is what the tool's check had made of it."""
    edited = said.edited_arguments
    if first.edited_arguments is None or edited is None or first.edited_arguments == edited:
        return True
    try:
        agent = agent_of(known)
        edited = edited_as_meant(agent.redaction, call.proposed.arguments, edited)
        wanted = call.wanted.model_copy(update={"arguments": edited})
        kept, _ = checked(agent.redaction, agent.toolbox, wanted, known.state.secrets)
    except (InvalidInput, ToolError):
        # The agent or the tool is another one by now.
        return True
    return kept.arguments == first.edited_arguments


def check_open(approval: Approval, command: DecideApproval) -> bool:
    """True if it is still to be decided, False if this same request has decided it before.

    Raises:
        ApprovalAlreadyDecided, ApprovalExpired: it was decided otherwise.
    """
    decision, vote = approval.decision, approval.votes.get(command.user_id)
    # A key is its user's own: another one may have chosen the same.
    own = decision if decision is None or decision.decided_by == command.user_id else None
    said = [one.idempotency_key for one in (own, vote) if one is not None]
    if command.idempotency_key is not None and command.idempotency_key in said:
        return False
    if approval.state is ApprovalState.PENDING:
        return True
    if approval.state is ApprovalState.EXPIRED:
        raise ApprovalExpired(approval_id=command.approval_id)
    outcome = decision.outcome if decision is not None else "decided"
    if approval.state is ApprovalState.WITHDRAWN:
        outcome = "withdrawn"
    raise ApprovalAlreadyDecided(approval_id=command.approval_id, outcome=outcome)


def decision_events(
    known: KnownThread, run: Run, call: Call, command: DecideApproval, agent: Agent, ids: Ids
) -> Iterator[Event]:
    """The deciding commit's events; none if this person has voted so before.

    Raises:
        ApprovalMismatch: the caller echoes another digest than the one that was shown.
        InvalidInput: the verb does not fit the kind, or edited arguments or an answer break
            their schema.
        Forbidden: policy denies the edited call, or wants others to decide about it.
        NotApprover, ApprovalNotFound: see `reviews.right_to_vote`.
    """
    approval = call.approval
    assert approval is not None
    request = approval.request
    if command.digest is not None and command.digest != request.digest:
        raise ApprovalMismatch(approval_id=request.approval_id)
    if approval.audience.keys:
        # Before anything of what was sent: it is not for everyone to learn what would fit.
        reviews.right_to_vote(approval, known.head.user_id, command.user_id, command.memberships)
    elif command.user_id != known.head.user_id:
        raise ApprovalNotFound(approval_id=request.approval_id)
    _check_reason(command, request)
    _check_vote(command, request)
    _check_verb(command, request)
    if request.kind == "question" and command.approved:
        _check_answer(request, command.answer, agent)
    edited = command.edited_arguments if command.approved else None
    digest = None
    if edited is not None:
        edited, digest = _checked_edit(known, run, call, edited, agent)
    if approval.audience.keys:
        votes = list(reviews.votes(approval, known.head.user_id, command, digest or request.digest))
        yield from votes
        if not votes or (command.approved and approval.missing > 1):
            return
    yield ApprovalDecided(
        run_id=run.run_id,
        approval_id=request.approval_id,
        call_id=request.call_id,
        outcome="approved" if command.approved else "rejected",
        by="human",
        decided_by=command.user_id,
        decided_by_name=command.user_name,
        audience=approval.listed_for,
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
            tool=call.wanted.name,
            scope=command.remember,
            granted=True,
            changed_by=command.user_id,
            definition_digest=call.proposal.definition_digest,
        )


def _check_reason(command: DecideApproval, request: ApprovalRequested) -> None:
    """A rule may want to know why, of a yes and of a no."""
    review = request.review
    if request.kind != "tool" or review is None or not review.reason_required:
        return
    if not (command.message or "").strip():
        text = "message: a rule wants a reason for this decision."
        error = {"loc": ["body", "message"], "msg": "a reason is required", "type": "missing"}
        raise InvalidInput(text, members={"errors": [error]})


def _check_vote(command: DecideApproval, request: ApprovalRequested) -> None:
    review = request.review
    if command.remember is not None and review is not None and review.asks_others:
        raise InvalidInput("A call that others decide about is asked about each time.")
    if command.remember is not None and demands_of(review) is not None:
        raise InvalidInput("A call that needs a reason is asked about each time.")
    if command.edited_arguments is not None and review is not None and review.quorum > 1:
        raise InvalidInput(
            "Several people decide about this call as it is shown: reject it and say what to "
            "change, so that it is asked about again."
        )


def _check_verb(command: DecideApproval, request: ApprovalRequested) -> None:
    kind = request.kind
    if kind == "tool" or not command.approved:
        return
    if kind == "outcome_unknown" and command.choice not in (request.choices or ()):
        choices = ", ".join(request.choices or ())
        raise InvalidInput(f"Say what happened: choice is one of {choices}.")
    if kind == "question" and command.answer is None:
        raise InvalidInput("A question needs an answer.")
    if kind == "auth" and command.authorization is None and SIGN_IN not in request.shown:
        raise InvalidInput(
            "This tool acts in your name: send the decision with your Authorization header."
        )
    if command.edited_arguments is not None or command.remember is not None:
        raise InvalidInput("Only a tool call can be edited or remembered.")


def _check_answer(request: ApprovalRequested, answer: object, agent: Agent) -> None:
    """Where there are choices, one of them is all it takes."""
    if request.choices is not None:
        if answer not in request.choices:
            raise InvalidInput(f"answer: must be one of: {', '.join(request.choices)}.")
    elif request.answer_schema is not None:
        try:
            agent.toolbox.check_answer(request.answer_schema, answer)
        except ToolError as error:
            raise InvalidInput(str(error)) from error


def _checked_edit(
    known: KnownThread, run: Run, call: Call, edited: dict[str, object], agent: Agent
) -> tuple[dict[str, object], str]:
    edited = edited_as_meant(agent.redaction, call.wanted.arguments, edited)
    wanted = call.wanted.model_copy(update={"arguments": edited})
    spec = next((spec for spec in agent.toolbox.specs() if spec.name == wanted.name), None)
    if spec is None:
        raise InvalidInput(f"There is no tool named {wanted.name} any more.")
    try:
        wanted, true_call = checked(agent.redaction, agent.toolbox, wanted, known.state.secrets)
    except ToolError as error:
        raise InvalidInput(str(error)) from error
    if agent.policy.verdict(true_call, spec) == "deny":
        raise Forbidden("Policy denies the call as edited.")
    asked, review = call.approval.request.review if call.approval else None, None
    if agent.policy.verdict(true_call, spec) == "ask":
        review = agent.policy.review(true_call, spec)
    if demands_of(review) != demands_of(asked):
        if not any(one is not None and one.asks_others for one in (review, asked)):
            raise Forbidden("Another rule is about the call as edited: reject it instead.")
        raise Forbidden("Other people decide about the call as edited: reject it instead.")
    return wanted.arguments, steps.digest_of(known.head.thread_id, run.run_id, wanted, spec, review)


def has_passed(approval: Approval, clock: Clock) -> bool:
    """Whether at least its lifetime has passed since it was asked, whatever the wall clock says.

    An older one, that does not say when it was asked by the host's clock, is judged by the wall
    clock alone.
    """
    term = approval.term
    if term.expires_at is None or term.asked_uptime is None:
        return True
    lifetime = (term.expires_at - term.at).total_seconds()
    now = clock.monotonic()
    # After a restart of the machine only the time since then has passed for sure.
    passed = now - term.asked_uptime if now >= term.asked_uptime else now
    return passed >= lifetime
