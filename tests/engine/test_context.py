"""Prompts that would not fit: what is left out, what is said instead, what is never parted."""

from __future__ import annotations

from datetime import UTC, datetime

from sk_agents.engine.context import Context, cut_to_fit, summary, tokens
from sk_agents.engine.context import compaction as compaction_of
from sk_agents.engine.events import (
    Answered,
    Compacted,
    Event,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.models import Message, Part, RunStatus, UserInput
from sk_agents.engine.state import ThreadState, fold
from sk_agents.engine.transcript import Transcript, thread_messages

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SMALL = Context(window=4_000, reserve=400)


def numbered(*events: Event) -> list[Event]:
    return [e.model_copy(update={"seq": n, "at": NOW}) for n, e in enumerate(events, 1)]


def turn(number: int, *, size: int = 400, tool: bool = False) -> list[Event]:
    run_id = f"run-{number}"
    parent = f"run-{number - 1}" if number > 1 else None
    said = UserInput(parts=(Part(content=f"question {number} " + "q" * size),))
    events: list[Event] = [RunStarted(run_id=run_id, message=said, parent_run=parent)]
    if tool:
        call = f"call-{number}"
        events += [
            ToolProposed(
                run_id=run_id,
                round=1,
                call_id=call,
                plugin_name="Search",
                function_name="find",
                arguments={},
                gated=False,
            ),
            ToolStarted(run_id=run_id, call_id=call),
            ToolFinished(run_id=run_id, call_id=call, result="r" * size),
        ]
    answer = Answered(run_id=run_id, content=f"answer {number} " + "a" * size)
    return [*events, answer, RunEnded(run_id=run_id, status=RunStatus.COMPLETED)]


def conversation(turns: int, *, size: int = 400, tool: bool = False) -> ThreadState:
    events = [event for n in range(1, turns + 1) for event in turn(n, size=size, tool=tool)]
    return fold(numbered(*events))


def compaction(state: ThreadState, context: Context, overhead: int) -> Compacted | None:
    return compaction_of(state, Transcript(), context, overhead)


def test_a_conversation_that_fits_is_left_alone() -> None:
    assert compaction(conversation(2), SMALL, overhead=0) is None


def test_the_oldest_turns_are_left_out_until_half_the_window_is_free() -> None:
    state = conversation(20)
    event = compaction(state, SMALL, overhead=0)
    assert event is not None
    state.apply(event.model_copy(update={"seq": state.next_seq, "at": NOW, "run_id": ""}))
    messages = list(thread_messages(state))
    assert tokens(messages) <= SMALL.budget
    assert messages[0].role == "system"
    assert "question 9 " in messages[0].content
    assert messages[-1].content.startswith("answer 20")


def test_a_call_is_never_parted_from_its_result() -> None:
    state = conversation(20, tool=True)
    event = compaction(state, SMALL, overhead=0)
    assert event is not None
    state.apply(event.model_copy(update={"seq": state.next_seq, "at": NOW, "run_id": ""}))
    messages = list(thread_messages(state))
    asked = [call.id for message in messages for call in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role == "tool"]
    assert asked == answered != []


def test_the_run_that_is_asked_about_is_never_left_out() -> None:
    state = conversation(2, size=10_000)
    event = compaction(state, SMALL, overhead=0)
    assert event is not None
    assert event.through_run == "run-1"


def test_a_single_run_cannot_be_compacted() -> None:
    assert compaction(conversation(1, size=20_000), SMALL, overhead=0) is None


def test_a_later_summary_covers_later_turns() -> None:
    state = conversation(20)
    first = compaction(state, SMALL, overhead=0)
    assert first is not None
    state.apply(first.model_copy(update={"seq": state.next_seq, "at": NOW, "run_id": ""}))
    second = compaction(state, Context(window=1_500, reserve=0), overhead=0)
    assert second is not None
    assert int(second.through_run[4:]) > int(first.through_run[4:])


def test_a_summary_is_bounded_and_keeps_the_newest() -> None:
    state = conversation(100)
    text = summary(None, state.branch())
    assert len(text) < 9_000
    assert "question 100" in text
    assert text.startswith("(earlier turns are left out)")


def test_large_tool_output_is_cut_in_the_prompt_with_a_note() -> None:
    big = Message(role="tool", content="x" * 50_000 + "END", tool_call_id="call-1")
    small = Message(role="tool", content="kept whole", tool_call_id="call-2")
    context = Context(window=4_000, reserve=0)
    cut = cut_to_fit([big, small], context)
    assert tokens(cut) <= context.budget
    assert "the whole output of call-1 is in the log" in cut[0].content
    assert cut[0].content.endswith("END")
    assert cut[1] is small


def test_what_fits_is_not_copied() -> None:
    messages = [Message(role="user", content="hi")]
    assert cut_to_fit(messages, SMALL) is messages
