"""An interaction as one value: what `ask` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sk_agents.client.answering import Answering
from sk_agents.client.events import (
    ApprovalRequired,
    Approved,
    Complete,
    Event,
    Failed,
    Queued,
    Rejected,
    Started,
    Status,
    ToolCall,
    ToolResult,
    Usage,
)


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
    status: Status = "RUNNING"
    tool_calls: tuple[ToolUse, ...] = ()
    usage: Usage | None = None
    approvals: tuple[ApprovalRequired, ...] = ()
    error: Failed | None = None
    last_seq: int | None = None
    last_event_id: str | None = None


class ReplySoFar:
    """Feed it every event; it goes on from an earlier reply to the same interaction."""

    def __init__(self, earlier: Reply | None = None) -> None:
        reply = earlier or Reply()
        self._reply = reply
        self._answering = Answering()
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
        self._answering.add(event)
        if event.seq is not None:
            self._reply = replace(self._reply, last_seq=event.seq, last_event_id=event.event_id)
        match event:
            case Started() | Queued():
                self._reply = replace(self._reply, interaction_id=event.interaction_id)
            case ToolCall():
                self._uses[event.id] = ToolUse(event.id, event.tool_name, event.tool_input)
            case ToolResult():
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
            case Failed():
                self._reply = replace(self._reply, error=event)
            case Complete():
                self._reply = replace(self._reply, status=event.status, usage=event.usage)
                self._pending.clear()
            case _:
                pass

    def reply(self) -> Reply:
        status: Status = "WAITING_APPROVAL" if self._pending else self._reply.status
        return replace(
            self._reply,
            text=self._answering.text or self._reply.text,
            status=status,
            tool_calls=tuple(self._uses.values()),
            approvals=tuple(self._pending.values()),
        )
