"""What the events of an interaction add up to: the text so far, and the reply that `ask` returns.

A preview of text is void once its round is asked again (a higher attempt) and once the round's
stored event is there: what looked like an answer may have been said beside a tool call, as a
thought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sk_agents.wire.events import (
    AnswerDelta,
    AnswerEvent,
    ApprovalRequired,
    Approved,
    CostView,
    CutReason,
    Event,
    InteractionComplete,
    InteractionError,
    InteractionQueued,
    InteractionStarted,
    InteractionStatus,
    Rejected,
    TextPreview,
    ThinkingDelta,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageView,
)


class _Draft:
    """One text that grows by pieces of one attempt at one round."""

    def __init__(self) -> None:
        self.text = ""
        self._at = (0, 0)

    def add(self, piece: TextPreview) -> None:
        """Ignores what is void, and what would leave a hole: the stored event will have it all."""
        at = (piece.round, piece.attempt)
        if at < self._at:
            return
        if at > self._at:
            self._at, self.text = at, ""
        if piece.offset <= len(self.text):
            end = piece.offset + len(piece.content)
            self.text = self.text[: piece.offset] + piece.content + self.text[end:]

    def clear(self) -> None:
        self.text = ""


class AnswerText:
    """Feed it every event of a stream; `text` is what to show now.

    It follows one interaction and forgets it when another starts.
    """

    def __init__(self) -> None:
        self.interaction_id = ""
        self._answer: str | None = None
        self.is_over = False
        self._said = _Draft()
        self._thought = _Draft()

    @property
    def text(self) -> str:
        return self._answer if self._answer is not None else self._said.text

    @property
    def thinking(self) -> str:
        """What the agent thinks right now, in the round that is open."""
        return self._thought.text

    @property
    def is_final(self) -> bool:
        """Whether `text` is the stored answer, no longer a preview."""
        return self._answer is not None

    def add(self, event: Event) -> str:
        """Take the next event; returns `text`."""
        match event:
            case InteractionStarted() if event.interaction_id != self.interaction_id:
                self.interaction_id = event.interaction_id
                self._answer, self.is_over = None, False
                self._said, self._thought = _Draft(), _Draft()
            case ThinkingDelta():
                self._thought.add(event)
            case AnswerDelta():
                self._said.add(event)
            case ThinkingEvent() | ToolCallEvent() | ApprovalRequired():
                self._said.clear()
                self._thought.clear()
            case AnswerEvent():
                self._answer = event.content
                self._thought.clear()
            case InteractionComplete() if self.interaction_id in ("", event.interaction_id):
                self.is_over = True
            case _:
                pass
        return self.text


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`tool_output` is `None` while the tool runs."""

    id: str
    tool_name: str
    tool_input: str
    tool_output: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """`text` is the answer, or what had been said when the interaction stopped short of one.

    With status `WAITING_APPROVAL`, `approvals` are the calls a person must decide about.
    """

    interaction_id: str = ""
    text: str = ""
    status: InteractionStatus = InteractionStatus.RUNNING
    tool_calls: tuple[ToolUse, ...] = ()
    usage: UsageView | None = None
    cost: CostView | None = None
    approvals: tuple[ApprovalRequired, ...] = ()
    error: InteractionError | None = None
    finish_reason: CutReason | None = None
    """Why the answer is not complete, if it is not."""
    last_seq: int | None = None
    last_event_id: str | None = None


class ReplySoFar:
    """Feed it every event; it goes on from an earlier reply to the same interaction."""

    def __init__(self, earlier: Reply | None = None) -> None:
        reply = earlier or Reply()
        self._reply = reply
        self._answer = AnswerText()
        self._uses = {use.id: use for use in reply.tool_calls}
        self._pending = {approval.approval_id: approval for approval in reply.approvals}
        self._approved: set[str] = set()

    @property
    def is_paused(self) -> bool:
        """Nothing but a decision can move it on: calls wait, and none runs or is about to."""
        waiting = {approval.call_id for approval in self._pending.values()}
        running = {use.id for use in self._uses.values() if use.tool_output is None}
        return bool(waiting) and not self._approved and running <= waiting

    def add(self, event: Event) -> None:
        self._answer.add(event)
        if event.seq is not None:
            self._reply = replace(self._reply, last_seq=event.seq, last_event_id=event.event_id)
        match event:
            case InteractionStarted() | InteractionQueued():
                self._reply = replace(self._reply, interaction_id=event.interaction_id)
            case AnswerEvent():
                self._reply = replace(self._reply, finish_reason=event.finish_reason)
            case ToolCallEvent():
                self._uses[event.id] = ToolUse(event.id, event.tool_name, event.tool_input)
            case ToolResultEvent():
                use = self._uses.get(event.id) or ToolUse(event.id, event.tool_name, "")
                self._uses[event.id] = replace(use, tool_output=event.tool_output)
                self._approved.discard(event.id)
            case ApprovalRequired():
                # Not every approved call shows a result; a new question ends the doubt.
                self._approved.clear()
                self._pending[event.approval_id] = event
            case Approved():
                self._pending.pop(event.approval_id or "", None)
                self._approved.add(event.call_id)
            case Rejected():
                self._pending.pop(event.approval_id or "", None)
                self._approved.discard(event.call_id)
            case InteractionError():
                self._reply = replace(self._reply, error=event)
            case InteractionComplete():
                self._reply = replace(self._reply, status=event.status, usage=event.usage)
                self._reply = replace(self._reply, cost=event.cost)
                self._pending.clear()
            case _:
                pass

    def reply(self) -> Reply:
        waiting = InteractionStatus.WAITING_APPROVAL
        return replace(
            self._reply,
            text=self._answer.text or self._reply.text,
            status=waiting if self._pending else self._reply.status,
            tool_calls=tuple(self._uses.values()),
            approvals=tuple(self._pending.values()),
        )
