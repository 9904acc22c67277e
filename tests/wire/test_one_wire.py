"""The chats API is described in one place, and the server, the client and the page follow it."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel, ValidationError

from sk_agents import client
from sk_agents.chats.render import ChatRenderer, branch_views, interaction_view, stream_end
from sk_agents.client.event_stream import event_of
from sk_agents.client.sse_parser import Frame, SseParser
from sk_agents.engine import events as log
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import Audience, Cost, Part, Review, RunStatus, Usage, UserInput
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.wire import events, requests, views
from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES, Frames
from tests.engine.heads import head_after

ROOT = Path(__file__).parents[2]
NOW = datetime(2025, 1, 15, 10, tzinfo=UTC)
RUN: dict[str, Any] = {"run_id": "int_1", "at": NOW}
HELLO = UserInput(parts=(Part(content="hello"), Part(kind="file", content="x", name="a.txt")))
FINANCE = Audience(groups=("finance",))
VOTE: dict[str, Any] = {
    "approval_id": "approval_e",
    "call_id": "e",
    "voter": "bob",
    "voter_name": "Bob",
}
SHOWN = {"tool_name": "Mail-send", "arguments": {"to": "ada"}, "preview": "+ a line"}


def proposed(call_id: str) -> log.ToolProposed:
    return log.ToolProposed(
        **RUN,
        round=1,
        call_id=call_id,
        plugin_name="Mail",
        function_name="send",
        arguments={"to": "ada"},
        gated=True,
    )


def asked(call_id: str, **more: Any) -> log.ApprovalRequested:
    return log.ApprovalRequested(
        **RUN,
        approval_id=f"approval_{call_id}",
        call_id=call_id,
        kind="question",
        shown=SHOWN,
        digest="d",
        choices=("done", "retry"),
        answer_schema={"type": "string"},
        **more,
    )


def decided(call_id: str, outcome: Any, **more: Any) -> log.ApprovalDecided:
    return log.ApprovalDecided(
        **RUN,
        approval_id=f"approval_{call_id}",
        call_id=call_id,
        outcome=outcome,
        by="human",
        decided_by="ada",
        **more,
    )


EVENTS: list[log.Event] = [
    log.RunQueued(**RUN, message=HELLO, position=1),
    log.RunStarted(**RUN, message=HELLO),
    log.Thinking(**RUN, round=1, content="hm"),
    *(proposed(call_id) for call_id in "abcde"),
    asked("a", expires_at=NOW),
    asked("b"),
    asked("d"),
    asked("e", review=Review(audience=FINANCE, quorum=2, escalate_to="board")),
    log.VoteCast(**RUN, **VOTE, right="group:finance", approved=True, digest="d", message="yes"),
    log.VoteWithdrawn(**RUN, **VOTE),
    log.ReviewExtended(
        **RUN,
        approval_id="approval_e",
        call_id="e",
        audience=Audience(groups=("board",)),
        left=FINANCE,
        expires_at=NOW,
    ),
    decided("a", "approved", answer="yes", choice="done", edited_arguments={"to": "bob"}),
    decided("b", "rejected", message="no"),
    log.ToolStarted(**RUN, call_id="a"),
    log.ToolFinished(**RUN, call_id="a", result="sent"),
    log.ToolFinished(**RUN, call_id="c", result="no", outcome="refused", by="policy"),
    log.ThreadChanged(at=NOW, metadata={"title": "Mail"}),
    log.Steered(**RUN, message_id="m1", content="at once"),
    log.SteeringDelivered(**RUN, round=2, message_ids=("m1",)),
    log.CancelRequested(**RUN, after="step"),
    log.Answered(**RUN, round=2, content="Sent."),
    log.Cancelled(**RUN),
    log.Failed(**RUN, code="x", message="y"),
    log.RunEnded(
        **RUN,
        status=RunStatus.COMPLETED,
        usage=Usage(prompt_tokens=1, completion_tokens=2, cost=Cost(amount=1.0, currency="EUR")),
    ),
    log.Rated(**RUN, rating="up", note="yes"),
    log.Rated(**RUN),
    log.BranchChanged(at=NOW, head_run="int_1"),
    log.BranchChanged(at=NOW, head_run=None),
]
DELTAS = [
    LiveDelta(kind="answer", run_id="int_1", round=1, attempt=1, offset=0, content="S"),
    LiveDelta(kind="thinking", run_id="int_1", round=1, attempt=1, offset=0, content="h"),
    LiveDelta(kind="tool_output", run_id="int_1", call_id="a", offset=0, content="1 file"),
]


def rendered(*, whole_chat: bool) -> list[Frame]:
    numbered = [event.model_copy(update={"seq": seq}) for seq, event in enumerate(EVENTS, 1)]
    renderer = ChatRenderer("chat", whole_chat=whole_chat)
    frames = [*renderer.frames([*numbered, *DELTAS]), stream_end("shutting_down", "/chats/chat")]
    return SseParser().feed(b"".join(frames))


@cache
def checker(model: type[BaseModel]) -> Draft202012Validator:
    """Of exactly what the server sends: every field that it promises, and no other."""

    def closed(node: Any) -> Any:
        if isinstance(node, list):
            return [closed(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        node = {key: closed(value) for key, value in node.items()}
        return {**node, "additionalProperties": False} if "properties" in node else node

    return Draft202012Validator(closed(model.model_json_schema(mode="serialization")))


def classes(module: ModuleType) -> dict[str, type[BaseModel]]:
    return {
        name: found
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, BaseModel) and found.__module__ == module.__name__
    }


@pytest.mark.parametrize(
    ("frames", "whole_chat"), [(INTERACTION_FRAMES, False), (CHAT_FRAMES, True)]
)
def test_every_event_is_rendered_as_its_model_says(frames: Frames, whole_chat: bool) -> None:
    found = rendered(whole_chat=whole_chat)
    assert {frame.event for frame in found} == frames.keys()
    for frame in found:
        checker(frames[frame.event][0]).validate(json.loads(frame.data))


@pytest.mark.parametrize("frames", [INTERACTION_FRAMES, CHAT_FRAMES])
def test_every_example_is_what_its_model_says(frames: Frames) -> None:
    for model, example in frames.values():
        checker(model).validate(example)


def test_client_reads_every_event_with_every_field() -> None:
    for frame in rendered(whole_chat=True):
        if frame.event == "stream_end":
            continue
        event = event_of(frame)
        assert type(event) is events.EVENTS[frame.event]
        payload = json.loads(frame.data)
        read = json.loads(event.model_dump_json(by_alias=True))
        absent = {name for name, value in payload.items() if value is None}
        assert {name: read.get(name) for name in payload.keys() - absent} == {
            name: value for name, value in payload.items() if name not in absent
        }


def test_every_event_of_the_wire_is_one_of_the_clients() -> None:
    assert {*events.EVENTS.values(), events.Unknown} == set(get_args(events.Event))
    assert client.Event is events.Event
    public = {getattr(client, name) for name in client.__all__}
    assert set(get_args(events.Event)) <= public


def test_every_model_of_the_wire_has_a_type_on_the_page() -> None:
    definitions = runpy.run_path(str(ROOT / "ui" / "schema.py"))["schema"]()["definitions"]
    sent = classes(requests).keys() - {"RequestBody"}
    shown = classes(views).keys() - {"StoredChat", "Interaction"}
    assert sent | shown <= definitions.keys()
    assert definitions["Frames"]["properties"].keys() == {*events.EVENTS, "stream_end"}


def test_view_sets_every_field_of_its_model() -> None:
    state = ThreadState()
    for seq, event in enumerate(EVENTS[1:19], 1):
        state.apply(event.model_copy(update={"seq": seq}))
    view = interaction_view(head_after(), state, state.run("int_1"), visible=True)
    assert view.approvals and view.items and view.agent_events
    ahead: list[BaseModel] = [view, *branch_views(state)]
    while ahead:
        model = ahead.pop()
        unsent = {"seq", "event_id", "at", "interaction_id", "type"}
        optional = {
            name
            for name, field in type(model).model_fields.items()
            if events.SOMETIMES in field.metadata
        }
        missing = type(model).model_fields.keys() - model.model_fields_set - unsent - optional
        assert missing == set(), type(model).__name__
        for value in dict(model).values():
            values = value if isinstance(value, list | tuple) else [value]
            ahead.extend(entry for entry in values if isinstance(entry, BaseModel))


def test_no_other_module_describes_what_the_wire_describes() -> None:
    wire = {*classes(events), *classes(requests), *classes(views)}
    defined = Counter(
        node.name
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name in wire if defined[name] > 1} == set()


def test_a_new_field_of_an_event_is_one_line_of_the_wire() -> None:
    class Timed(events.AnswerEvent):
        seconds: float = 0.0

    schema = Timed.model_json_schema(mode="serialization")
    assert "seconds" in schema["required"]
    assert Timed.model_validate({"content": "x"}).seconds == 0.0
    assert Timed.model_validate({"content": "x", "seconds": 2, "newer": 1}).seconds == 2.0


def test_requests_refuse_unknown_fields() -> None:
    for name, model in classes(requests).items():
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            model.model_validate({"surprise": 1})
        assert model.model_config.get("extra") == "forbid", name


def test_page_reads_every_event_by_its_name() -> None:
    text = (ROOT / "ui" / "src" / "api" / "frames.ts").read_text(encoding="utf-8")
    known = text.partition("const KNOWN")[2].partition("};")[0]
    assert set(re.findall(r"^  (\w+): true,$", known, re.MULTILINE)) == CHAT_FRAMES.keys()
