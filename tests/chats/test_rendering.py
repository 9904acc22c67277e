"""No text can forge a frame: whatever is said, one event of the log is at most one frame."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sk_agents.chats.render import ChatRenderer, event_id
from sk_agents.client.sse_parser import SseParser
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    Failed,
    RunEnded,
    RunStarted,
    Thinking,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.models import Part, RunStatus, UserInput
from tests.chats.test_golden_stream import theirs

HOSTILE = st.lists(
    st.sampled_from(
        ["\r", "\n", "\r\n", "\u2028", "\u2029", "\x85", "\0", "data: ", "id: 99", "event: answer",
         ": x", "\ufeff", "\U0001f9ed", "\\", '"', "\x0b", "\x0c", "\x1c", "retry: 0", "é"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    max_size=8,
).map("".join)  # fmt: skip


def story(text: str) -> list[Event]:
    """A run in which every text is this one."""
    run: dict[str, Any] = {"run_id": text or "r"}
    call = {"call_id": text, **run}
    shown = {"tool_name": text, "arguments": {text: text}}
    events: list[Event] = [
        RunStarted(message=UserInput(parts=(Part(content=text),)), **run),
        Thinking(round=1, content=text, **run),
        ToolProposed(
            round=1, plugin_name=text, function_name=text, arguments={text: text}, **call
        ),
        ApprovalRequested(approval_id=text, digest=text, shown=shown, **call),
        ApprovalDecided(
            approval_id=text, outcome="approved", by="human", decided_by=text, message=text,
            answer={text: [text]}, **call,
        ),
        ToolStarted(**call),
        ToolFinished(result=text, **call),
        Answered(content=text, **run),
        Failed(code=text, message=text, correlation_id=text, **run),
        RunEnded(status=RunStatus.FAILED, **run),
    ]  # fmt: skip
    return [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1)]


@settings(max_examples=150, deadline=None)
@given(text=HOSTILE)
def test_hostile_text_stays_inside_its_frame(text: str) -> None:
    events = story(text)
    frames = ChatRenderer("c", whole_chat=True).frames(events)
    raw = b"".join(frames)
    seen = [(frame.id, frame.event, frame.data) for frame in SseParser().feed(raw)]
    assert [id for id, _, _ in seen] == [event_id(event) for event in events if event.seq != 3]
    assert asyncio.run(theirs(raw)) == seen
    answer = next(json.loads(data) for _, name, data in seen if name == "answer")
    assert answer["content"] == text
    asked = next(json.loads(data) for _, name, data in seen if name == "approval_required")
    assert json.loads(asked["tool_input"]) == {text: text}


def test_a_renderer_that_has_learned_the_beginning_goes_on_the_same() -> None:
    events = story("x")
    whole = ChatRenderer("c").frames(events)
    for cut in range(len(events) + 1):
        early, late = ChatRenderer("c"), ChatRenderer("c")
        late.learn(events[:cut])
        assert early.frames(events[:cut]) + late.frames(events[cut:]) == whole
