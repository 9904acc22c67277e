"""From frames to typed events."""

import json
import subprocess
import sys
from typing import Any, get_args

import pytest

from sk_agents.client import (
    Answer,
    AnswerDelta,
    ApprovalRequired,
    Approved,
    BranchChanged,
    Cancelled,
    ChatChanged,
    Complete,
    Event,
    Failed,
    FeedbackGiven,
    ProtocolError,
    Queued,
    Rejected,
    ReviewExtended,
    Started,
    Status,
    Steered,
    SteeringDelivered,
    Stopping,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    ToolResult,
    Unknown,
    Usage,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.client.event_stream import event_of
from sk_agents.client.sse_parser import Frame
from sk_agents.wire.events import EVENTS
from tests.patience import seconds

DELTA = {"interaction_id": "int_1", "round": 2, "attempt": 3, "offset": 4, "content": "hi"}
CALL: dict[str, Any] = {"id": "call_1", "tool_name": "Mail-send", "tool_input": '{"to": "ada"}'}
VOTING: dict[str, Any] = {
    "approval_id": "approval_1",
    "interaction_id": "int_1",
    "call_id": "call_1",
    "tool_name": "Mail-send",
    "missing": 1,
}
VOTE: dict[str, Any] = {**VOTING, "voter": "bob", "voter_name": "Bob"}
EXTENDED: dict[str, Any] = {
    **VOTING,
    "audience": {"roles": [], "groups": ["board"], "users": []},
    "expires_at": None,
}
SAID: dict[str, Any] = {"interaction_id": "int_1", "message_id": "msg_1", "content": "in Spain"}
GIVEN: dict[str, Any] = {"interaction_id": "int_1", "message_ids": ("msg_1",)}
DECISION: dict[str, Any] = {
    "approval_id": "approval_1",
    "interaction_id": "int_1",
    "call_id": "call_1",
    "tool_name": "Mail-send",
    "by": "human",
    "decided_by": "ada",
}

WIRE: list[tuple[str, dict[str, Any], Event]] = [
    (
        "interaction_started",
        {"interaction_id": "int_1", "chat_id": "c", "status": "RUNNING", "created_at": "now"},
        Started(seq=5, interaction_id="int_1", chat_id="c", created_at="now"),
    ),
    (
        "interaction_queued",
        {"interaction_id": "int_1", "position": 2},
        Queued(seq=5, interaction_id="int_1", position=2),
    ),
    (
        "answer_delta",
        DELTA,
        AnswerDelta(seq=5, interaction_id="int_1", round=2, attempt=3, offset=4, content="hi"),
    ),
    (
        "thinking_delta",
        DELTA,
        ThinkingDelta(seq=5, interaction_id="int_1", round=2, attempt=3, offset=4, content="hi"),
    ),
    (
        "tool_output",
        {"interaction_id": "int_1", "call_id": "call_1", "chunk": "1\n"},
        ToolOutput(seq=5, interaction_id="int_1", call_id="call_1", chunk="1\n"),
    ),
    (
        "thinking",
        {"type": "THINKING", "content": "hm"},
        Thinking(seq=5, interaction_id="int_0", content="hm"),
    ),
    (
        "answer",
        {"type": "ANSWER", "content": "ok"},
        Answer(seq=5, interaction_id="int_0", content="ok"),
    ),
    (
        "tool_call",
        {"type": "TOOL_CALL", **CALL},
        ToolCall(seq=5, interaction_id="int_0", **CALL),
    ),
    (
        "tool_result",
        {"type": "TOOL_RESULT", "id": "call_1", "tool_name": "Mail-send", "tool_output": "sent"},
        ToolResult(
            seq=5, interaction_id="int_0", id="call_1", tool_name="Mail-send", tool_output="sent"
        ),
    ),
    (
        "approval_required",
        {
            "approval_id": "approval_1",
            "interaction_id": "int_1",
            "kind": "question",
            "call_id": "call_1",
            "tool_name": "ask_user",
            "tool_input": "{}",
            "digest": "d1",
            "expires_at": None,
            "schema": {"type": "string"},
        },
        ApprovalRequired(
            seq=5,
            interaction_id="int_1",
            approval_id="approval_1",
            kind="question",
            call_id="call_1",
            tool_name="ask_user",
            tool_input="{}",
            digest="d1",
            schema={"type": "string"},
        ),
    ),
    ("vote_cast", {**VOTE, "approved": True}, VoteCast(seq=5, **VOTE, approved=True)),
    ("vote_withdrawn", VOTE, VoteWithdrawn(seq=5, **VOTE)),
    ("review_extended", EXTENDED, ReviewExtended(seq=5, **EXTENDED)),
    ("approved", DECISION, Approved(seq=5, **DECISION)),
    ("steered", SAID, Steered(seq=5, **SAID)),
    ("steering_delivered", GIVEN, SteeringDelivered(seq=5, **GIVEN)),
    ("stopping", {"interaction_id": "int_1"}, Stopping(seq=5, interaction_id="int_1")),
    (
        "rejected",
        {**DECISION, "approval_id": None, "by": "policy", "decided_by": None, "message": "no"},
        Rejected(
            seq=5,
            interaction_id="int_1",
            call_id="call_1",
            tool_name="Mail-send",
            by="policy",
            message="no",
        ),
    ),
    (
        "rejected",
        {**DECISION, "by": "failure", "decided_by": None},
        Rejected(seq=5, **{**DECISION, "by": "failure", "decided_by": None}),
    ),
    ("cancelled", {"interaction_id": "int_1"}, Cancelled(seq=5, interaction_id="int_1")),
    (
        "error",
        {"interaction_id": "int_1", "code": "llm_refused", "message": "no", "correlation_id": "x"},
        Failed(seq=5, interaction_id="int_1", code="llm_refused", message="no", correlation_id="x"),
    ),
    (
        "interaction_complete",
        {
            "interaction_id": "int_1",
            "status": "COMPLETED",
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        },
        Complete(
            seq=5,
            interaction_id="int_1",
            status=Status.COMPLETED,
            usage=Usage(prompt_tokens=3, completion_tokens=4),
        ),
    ),
    ("branch_changed", {"interaction_id": None}, BranchChanged(seq=5, interaction_id="int_0")),
    (
        "feedback_given",
        {"rating": "up", "note": "yes"},
        FeedbackGiven(seq=5, interaction_id="int_0", rating="up", note="yes"),
    ),
    ("chat_changed", {"title": "Oslo"}, ChatChanged(seq=5, interaction_id="int_0", title="Oslo")),
]


def frame(name: str, payload: Any, id: str | None = "5-0badcafe") -> Frame:
    return Frame(name, json.dumps(payload), id)


@pytest.mark.parametrize(("name", "payload", "event"), WIRE, ids=[row[0] for row in WIRE])
def test_frame_becomes_its_typed_event(name: str, payload: dict[str, Any], event: Event) -> None:
    told = event.model_copy(update={"event_id": "5-0badcafe"})
    assert event_of(frame(name, payload), interaction_id="int_0") == told


@pytest.mark.parametrize(("name", "payload", "event"), WIRE, ids=[row[0] for row in WIRE])
def test_field_of_a_newer_server_is_ignored(
    name: str, payload: dict[str, Any], event: Event
) -> None:
    told = event.model_copy(update={"event_id": "5-0badcafe"})
    assert event_of(frame(name, {**payload, "new": 1}), interaction_id="int_0") == told


def test_every_typed_event_is_in_the_table() -> None:
    assert {name for name, _, _ in WIRE} == EVENTS.keys()
    assert {*EVENTS.values(), Unknown} == set(get_args(Event))


def test_event_of_a_newer_server_is_handed_on() -> None:
    event = event_of(Frame("weather", "not json", "9"), interaction_id="int_0")
    assert event == Unknown(
        seq=9, event_id="9", interaction_id="int_0", name="weather", data="not json"
    )


def test_frame_without_id_is_a_preview() -> None:
    assert event_of(frame("answer_delta", DELTA, None)).seq is None


@pytest.mark.parametrize(
    "broken",
    [
        Frame("answer", "{", "1"),
        Frame("answer", "[]", "1"),
        Frame("answer", "{}", "1"),
        Frame("interaction_complete", '{"status": "NICE"}', "1"),
        Frame("answer", '{"content": "x"}', "one"),
        Frame("answer", '{"content": "x"}', "9" * 30),
    ],
)
def test_what_makes_no_sense_is_a_protocol_error(broken: Frame) -> None:
    with pytest.raises(ProtocolError):
        event_of(broken)


def test_importing_the_client_imports_no_server() -> None:
    script = (
        "import sys, sk_agents.client\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'fastapi', 'starlette', 'uvicorn', 'httpx', 'mcp', 'apsw'}, loaded\n"
        "ours = {n.split('.')[1] for n in sys.modules if n.startswith('sk_agents.')}\n"
        "assert ours == {'client', 'exceptions', 'private_files', 'wire'}, ours\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=seconds(60))
