"""A tool call's life inside a run, folded from its events: proposed, asked about, run, resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    LateResult,
    ReviewExtended,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.models import (
    APPROVAL_CHANGES,
    CALL_CHANGES,
    ApprovalState,
    Attachment,
    Audience,
    CallState,
    DecidedBy,
    ToolCall,
    checked_change,
)
from sk_agents.exceptions import StateCorrupt

# Where the user must sign in, among what an approval of kind `auth` shows.
SIGN_IN = "sign_in"
_REQUESTER = Audience()
_HELD_BACK = frozenset({ApprovalState.PENDING, ApprovalState.REJECTED, ApprovalState.EXPIRED})


@dataclass(slots=True)
class Approval:
    request: ApprovalRequested
    state: ApprovalState = ApprovalState.PENDING
    decision: ApprovalDecided | None = None
    votes: dict[str, VoteCast] = field(default_factory=dict)
    """What each voter said last."""
    extension: ReviewExtended | None = None

    @property
    def audience(self) -> Audience:
        """Those who decide; an empty one: the requester alone."""
        if self.extension is not None:
            return self.extension.audience
        review = self.request.review
        return review.audience if review is not None else _REQUESTER

    @property
    def term(self) -> ApprovalRequested | ReviewExtended:
        """What set the time in which it is to be decided."""
        return self.extension or self.request

    @property
    def expires_at(self) -> datetime | None:
        return self.term.expires_at

    @property
    def missing(self) -> int:
        """How many more people have to say yes; none of those who decide without a vote."""
        review = self.request.review
        if review is None or not self.audience.keys:
            return 0
        return max(0, review.quorum - sum(vote.approved for vote in self.votes.values()))

    def closed(self, outcome: Literal["expired", "withdrawn"], by: DecidedBy) -> ApprovalDecided:
        """The event that ends it without a person's decision."""
        asked = self.request
        return ApprovalDecided(
            run_id=asked.run_id,
            approval_id=asked.approval_id,
            call_id=asked.call_id,
            outcome=outcome,
            by=by,
            audience=self.listed_for,
        )

    @property
    def listed_for(self) -> Audience | None:
        """Those in whose inbox it is, beside the requester's."""
        return self.audience if self.audience.keys else None

    def take(self, event: VoteCast | VoteWithdrawn | ReviewExtended) -> None:
        """Take what happens to it while it waits.

        Raises:
            StateCorrupt: it does not wait, or not for a vote.
        """
        if self.state is not ApprovalState.PENDING:
            raise StateCorrupt(f"{event.type} is about an approval that is {self.state}")
        match event:
            case VoteCast():
                if not self.audience.keys:
                    raise StateCorrupt("a vote is cast on what the requester decides alone")
                self.votes[event.voter] = event
            case VoteWithdrawn():
                if self.votes.pop(event.voter, None) is None:
                    raise StateCorrupt("a vote is withdrawn that was never cast")
            case ReviewExtended():
                listed = {*event.left.keys, *event.audience.keys}
                if self.extension is not None or not listed.issuperset(self.audience.keys):
                    raise StateCorrupt("a review is extended twice, or leaves an inbox unnamed")
                self.extension = event

    def decide(self, event: ApprovalDecided) -> None:
        """Take its decision.

        Raises:
            StateCorrupt: not legal in its state, or a yes without as many votes as it needs.
        """
        if event.audience != self.listed_for:
            raise StateCorrupt(f"approval {event.approval_id} is closed for another audience")
        if event.outcome == "approved" and event.audience is not None:
            digest = event.digest or self.request.digest
            if self.missing or any(vote.digest != digest for vote in self.votes.values()):
                raise StateCorrupt(f"approval {event.approval_id} has not enough votes")
        self.move(ApprovalState(event.outcome))
        self.decision = event

    def move(self, new: ApprovalState) -> None:
        self.state = checked_change(APPROVAL_CHANGES, self.state, new, "an approval")


@dataclass(slots=True)
class Call:
    proposal: ToolProposed
    state: CallState = CallState.PROPOSED
    started: ToolStarted | None = None
    finished: ToolFinished | None = None
    late_result: str | None = None
    late_attachments: tuple[Attachment, ...] | None = None
    approval: Approval | None = None
    edited: dict[str, Any] | None = None
    """The reviewer's version of the arguments."""
    _proposed: ToolCall | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def proposed(self) -> ToolCall:
        """What the model itself asked for, whatever a reviewer made of it. Made once."""
        if self._proposed is None:
            proposal = self.proposal
            self._proposed = ToolCall(
                id=proposal.call_id,
                plugin_name=proposal.plugin_name,
                function_name=proposal.function_name,
                arguments=proposal.arguments,
            )
        return self._proposed

    @property
    def wanted(self) -> ToolCall:
        """What will run: with the reviewer's version of the arguments, where there is one."""
        if self.edited is None:
            return self.proposed
        return self.proposed.model_copy(update={"arguments": self.edited})

    @property
    def waits(self) -> bool:
        return self.approval is not None and self.approval.state is ApprovalState.PENDING

    @property
    def is_held_back(self) -> bool:
        """True while this call is not allowed: not decided yet, or decided against it.

        A declined question is no refusal: the tool that asked it goes on.
        """
        if self.approval is None or self.approval.request.kind == "question":
            return self.waits
        return self.approval.state in _HELD_BACK

    @property
    def has_lent_header(self) -> bool:
        """Whether the user has lent this call a header that it has not been started with."""
        return self._is_authorized and not self.has_signed_in

    @property
    def has_signed_in(self) -> bool:
        """Whether the user has signed in for this call, and it has not been started since."""
        return (
            self._is_authorized
            and self.approval is not None
            and SIGN_IN in self.approval.request.shown
        )

    @property
    def _is_authorized(self) -> bool:
        return (
            self.approval is not None
            and self.approval.request.kind == "auth"
            and self.approval.state is ApprovalState.APPROVED
        )

    def move(self, new: CallState) -> None:
        self.state = checked_change(CALL_CHANGES, self.state, new, "a call")

    def asked(self, approval_id: str) -> Approval:
        """The approval this call waits on, which must be the one named."""
        if self.approval is None or self.approval.request.approval_id != approval_id:
            raise StateCorrupt(f"approval {approval_id} was never asked for")
        return self.approval


def apply_to_calls(calls: dict[str, Call], event: Event) -> None:
    """Take one event about a call.

    Raises:
        StateCorrupt: no such call, or the event is not legal in its state.
    """
    match event:
        case ToolProposed():
            if event.call_id in calls:
                raise StateCorrupt(f"call {event.call_id} is proposed twice")
            calls[event.call_id] = Call(proposal=event)
        case ApprovalRequested():
            call = _known(calls, event.call_id)
            if call.waits or call.finished is not None:
                raise StateCorrupt(f"call {event.call_id} cannot be asked about now")
            call.approval = Approval(request=event)
        case ApprovalDecided():
            approval = _known(calls, event.call_id).asked(event.approval_id)
            approval.decide(event)
            if approval.request.kind == "tool":
                calls[event.call_id].edited = event.edited_arguments
        case VoteCast() | VoteWithdrawn() | ReviewExtended():
            _known(calls, event.call_id).asked(event.approval_id).take(event)
        case ToolStarted():
            call = _known(calls, event.call_id)
            if event.approval_id is not None:
                call.asked(event.approval_id).move(ApprovalState.CONSUMED)
            elif call.is_held_back:
                raise StateCorrupt(f"call {event.call_id} starts without its approval")
            call.move(CallState.STARTED)
            call.started = event
        case ToolFinished():
            call = _known(calls, event.call_id)
            if call.waits:
                raise StateCorrupt(f"call {event.call_id} ends while its approval is open")
            call.move(CallState.FINISHED)
            call.finished = event
        case ToolOutcomeUnknown():
            _known(calls, event.call_id).move(CallState.UNKNOWN)
        case LateResult():
            call = _known(calls, event.call_id)
            call.late_result, call.late_attachments = event.result, event.attachments
        case _:
            raise StateCorrupt(f"{event.type} has no place in a run")


def _known(calls: dict[str, Call], call_id: str) -> Call:
    try:
        return calls[call_id]
    except KeyError:
        raise StateCorrupt(f"the log speaks of an unknown call {call_id}") from None
