"""What an auditor reads: one entry for each thing that was asked, decided, begun or ended.

Entries are derived from logs and stored nowhere. They hold no content: not what was said, not the
arguments of a call, not its result, but digests of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from sk_agents.engine.events import (
    KEPT_CALL,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Event,
    GrantChanged,
    LateResult,
    Noted,
    Rated,
    RunQueued,
    RunStarted,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Thread
from sk_agents.wire.views import AuditEntry

SERVER = "server"
# Notes of the server's log: a signed checkpoint, and the chains of threads before one.
CHECKPOINT = "checkpoint"
COVERED = "covered"
# The label of the server's log that holds the last checkpoint.
LAST = "last_checkpoint"


class ThreadTrail:
    """Reads one thread's events in their order, from the first one on."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._agents: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self._started: dict[str, datetime] = {}
        self._asked: dict[str, str] = {}
        self._rights: dict[tuple[str, str], str] = {}

    def entries(
        self, events: Iterable[Event], *, is_imported: bool = False
    ) -> Iterator[AuditEntry]:
        """`is_imported` are events that happened elsewhere and came with a document."""
        for event in events:
            for fields in self._read(event):
                details = fields.pop("details", {}) | ({"imported": True} if is_imported else {})
                yield AuditEntry(
                    at=event.at.isoformat(),
                    log=self._thread.thread_id,
                    seq=event.seq,
                    user_id=self._thread.user_id,
                    agent=self._agents.get(event.run_id, self._thread.agent) or None,
                    run_id=event.run_id or None,
                    tool=fields.pop("tool", None) or self._tools.get(fields.get("call_id", "")),
                    details={key: value for key, value in details.items() if value is not None},
                    **fields,
                )

    def _read(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case RunStarted() | RunQueued():
                if event.agent:
                    self._agents[event.run_id] = event.agent
            case ToolProposed():
                tool = f"{event.plugin_name}-{event.function_name}".lstrip("-")
                self._tools[event.call_id] = tool
                yield {
                    "what": "intent",
                    "call_id": event.call_id,
                    "digest": digest(event.arguments),
                    "details": {"effect": event.effect.value, "problem": event.problem},
                }
            case ApprovalRequested():
                self._asked[event.approval_id] = event.digest
                yield {
                    "what": "asked",
                    "call_id": event.call_id,
                    "digest": event.digest,
                    "details": {"approval_id": event.approval_id, "kind": event.kind},
                }
            case VoteCast():
                self._rights[event.approval_id, event.voter] = event.right
                yield {
                    "what": "vote",
                    "call_id": event.call_id,
                    "who": event.voter,
                    "who_name": event.voter_name,
                    "role": event.right,
                    "outcome": "yes" if event.approved else "no",
                    "digest": event.digest,
                    "details": {"approval_id": event.approval_id},
                }
            case VoteWithdrawn():
                yield {
                    "what": "vote",
                    "call_id": event.call_id,
                    "who": event.voter,
                    "who_name": event.voter_name,
                    "outcome": "withdrawn",
                    "details": {"approval_id": event.approval_id},
                }
            case ApprovalDecided():
                yield {
                    "what": "decision",
                    "call_id": event.call_id,
                    "by": event.by,
                    "who": event.decided_by,
                    "who_name": event.decided_by_name,
                    "role": self._role(event),
                    "outcome": event.outcome,
                    "digest": event.digest or self._asked.get(event.approval_id),
                    "details": {
                        "approval_id": event.approval_id,
                        "edited": event.edited_arguments is not None or None,
                        "choice": event.choice,
                        "reason_digest": _text_digest(event.message) if event.message else None,
                    },
                }
            case ToolStarted():
                self._started[event.call_id] = event.at
                if event.approval_id is None:
                    # No person was asked: what allowed it is the policy, or a standing grant.
                    yield {
                        "what": "decision",
                        "call_id": event.call_id,
                        "by": "grant" if event.grant_id else "policy",
                        "outcome": "approved",
                        "digest": event.digest,
                        "details": {"grant_id": event.grant_id},
                    }
                yield {
                    "what": "start",
                    "call_id": event.call_id,
                    "digest": event.digest,
                    "details": {
                        "attempt": event.attempt,
                        "idempotency_key": event.idempotency_key,
                        "approval_id": event.approval_id,
                        "grant_id": event.grant_id,
                    },
                }
            case ToolFinished():
                started = self._started.get(event.call_id)
                yield {
                    "what": "end",
                    "call_id": event.call_id,
                    "by": event.by,
                    "outcome": event.outcome,
                    "digest": event.digest or _text_digest(event.result),
                    "details": {
                        "ran": started is not None,
                        "seconds": (event.at - started).total_seconds() if started else None,
                    },
                }
            case ToolOutcomeUnknown():
                yield {"what": "unknown", "call_id": event.call_id}
            case LateResult():
                yield {
                    "what": "late_result",
                    "call_id": event.call_id,
                    "digest": event.digest or _text_digest(event.result),
                }
            case GrantChanged():
                yield {
                    "what": "grant",
                    "tool": event.tool,
                    "who": event.changed_by,
                    "outcome": "given" if event.granted else "taken back",
                    "details": {"grant_id": event.grant_id, "scope": event.scope},
                }
            case Rated():
                yield {
                    "what": "rating",
                    "who": self._thread.user_id,
                    "outcome": event.rating or "taken back",
                    "digest": _text_digest(event.note) if event.note else None,
                }
            case CancelRequested():
                yield {
                    "what": "cancel",
                    "who": event.requested_by,
                    "by": event.reason,
                    "details": {"after": event.after},
                }
            case _:
                pass

    def _role(self, event: ApprovalDecided) -> str | None:
        """By which right the person decided: of an audience, or as the one who asked."""
        if event.decided_by is None:
            return None
        right = self._rights.get((event.approval_id, event.decided_by))
        return right or ("requester" if event.decided_by == self._thread.user_id else None)


class ServerTrail:
    """Reads the server's own log in its order."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], str] = {}

    def entries(self, events: Iterable[Event]) -> Iterator[AuditEntry]:
        for event in events:
            if not isinstance(event, Noted):
                continue
            entry = self._kept_call(event) if event.what == KEPT_CALL else _noted(event)
            if entry is not None:
                yield entry

    def _kept_call(self, event: Noted) -> AuditEntry | None:
        """What happened in a thread that is kept no more, as its own log would say it."""
        try:
            entry = AuditEntry.model_validate(event.details)
        except ValidationError:
            return None
        place = (entry.log, entry.call_id or "")
        if entry.tool is not None:
            self._tools[place] = entry.tool
        details = entry.details | {"kept_at": event.seq}
        return entry.model_copy(update={"tool": self._tools.get(place), "details": details})


def kept_call(entry: AuditEntry) -> Noted:
    """A note of what happened in a thread that its store does not keep, or that is deleted."""
    return Noted(what=KEPT_CALL, subject=entry.log, details=entry.model_dump(exclude_none=True))


def _noted(event: Noted) -> AuditEntry:
    counted: Mapping[str, Any] = {"count": event.count} if event.count > 1 else {}
    return AuditEntry(
        at=event.at.isoformat(),
        log=SERVER,
        seq=event.seq,
        what=event.what,
        who=event.who,
        who_name=event.who_name,
        role=event.role,
        user_id=event.user_id,
        agent=event.agent,
        subject=event.subject,
        digest=event.digest,
        outcome=event.outcome,
        details={**event.details, **counted},
    )


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
