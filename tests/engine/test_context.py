"""Prompts that would not fit: what is left out, what is said instead, what is never parted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from sk_agents.engine.events import (
    Answered,
    Cancelled,
    Compacted,
    Event,
    Imported,
    ImportedItem,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import ThreadState, fold
from sk_agents.engine.models import Attachment, Message, Part, RunStatus, ToolCall, UserInput
from sk_agents.engine.run.context_window import ContextWindow, cut_to_fit, summary, tokens
from sk_agents.engine.run.context_window import compaction as compaction_of
from sk_agents.engine.run.conversation import (
    Transcript,
    rough_tokens,
    run_messages,
    thread_messages,
)
from sk_agents.engine.run.conversation import conversation as conversation_of
from tests.engine.builders import finished, proposed, tool_started

# More than what is kept of any output.
KEPT = 4_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)
SMALL = ContextWindow(window=4_000, reserve=400)


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


def compaction(state: ThreadState, context: ContextWindow, overhead: int) -> Compacted | None:
    transcript = Transcript()
    now = conversation_of(state, transcript).now
    return compaction_of(state, transcript, context, transcript.tokens + overhead + tokens(now))


def test_a_conversation_that_fits_is_left_alone() -> None:
    assert compaction(conversation(2), SMALL, overhead=0) is None


def test_the_oldest_turns_are_left_out_until_half_the_window_is_free() -> None:
    state = conversation(20)
    event = compaction(state, SMALL, overhead=0)
    assert event is not None
    assert event.run_id == "run-20"
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
    second = compaction(state, ContextWindow(window=1_500, reserve=0), overhead=0)
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
    context = ContextWindow(window=4_000, reserve=0)
    cut = cut_to_fit([big, small], context)
    assert tokens(cut) <= context.budget
    assert "the whole output of call-1 is in the log" in cut[0].content
    assert cut[0].content.endswith("END")
    assert cut[1] is small


def test_what_fits_is_not_copied() -> None:
    messages = [Message(role="user", content="hi")]
    assert cut_to_fit(messages, SMALL) is messages


def applied(state: ThreadState, event: Compacted) -> ThreadState:
    state.apply(event.model_copy(update={"seq": state.next_seq, "at": NOW}))
    return state


def asking(state: ThreadState, *parts: Part, parent: str | None = None) -> ThreadState:
    """With a run under way whose message has these parts."""
    started = RunStarted(
        run_id="now", message=UserInput(parts=parts), parent_run=parent or state.head_run
    )
    state.apply(started.model_copy(update={"seq": state.next_seq, "at": NOW}))
    return state


def size(state: ThreadState) -> int:
    return tokens(thread_messages(state))


def test_what_just_fits_is_left_alone_and_one_token_more_is_not() -> None:
    state = conversation(10)
    room = SMALL.budget - size(state)
    assert room > 0
    assert compaction(state, SMALL, overhead=room) is None
    assert compaction(state, SMALL, overhead=room + 1) is not None


@pytest.mark.parametrize("overhead", [0, 300])
@pytest.mark.parametrize("turns", [19, 25])
def test_no_more_turns_are_left_out_than_fill_half_of_the_budget(turns: int, overhead: int) -> None:
    state = asking(conversation(turns), Part(content="and now?"))
    event = compaction(state, SMALL, overhead=overhead)
    assert event is not None
    assert event.run_id == "now"
    sizes = [tokens(run_messages(run)) for run in state.branch()]
    left_out = int(event.through_run[4:])
    kept = sum(sizes[left_out:]) + overhead
    assert kept <= SMALL.budget / 2 < kept + sizes[left_out - 1]


def test_turns_that_fill_just_half_of_the_budget_are_kept() -> None:
    state = asking(conversation(25), Part(content="and now?"))
    *past, now = [tokens(run_messages(run)) for run in state.branch()]
    for kept in (3, 4):
        overhead = SMALL.budget // 2 - now - sum(past[-kept:])
        event = compaction(state, SMALL, overhead=overhead)
        assert event is not None
        assert int(event.through_run[4:]) == len(past) - kept


LONG_MESSAGES = {
    "text": Part(content="x" * 12_000),
    "file of many pages": Part(
        kind="file",
        content="a few words",
        original=Attachment(media_type="application/pdf", uri="data:application/pdf;base64,"),
        pages=4,
    ),
    "text of four bytes a letter": Part(content="\U0001f600" * 2_100),
}


@pytest.mark.parametrize("part", LONG_MESSAGES.values(), ids=LONG_MESSAGES)
def test_long_message_leaves_out_all_that_was_said_before_it(part: Part) -> None:
    state = conversation(8)
    assert size(state) < SMALL.budget / 2
    event = compaction(asking(state, part), SMALL, overhead=0)
    assert event is not None
    assert (event.run_id, event.through_run) == ("now", "run-8")


def test_picture_counts_by_what_a_model_makes_of_it_and_not_by_its_bytes() -> None:
    picture = Part(kind="image", content="data:image/png;base64," + "A" * 4_000_000)
    assert 1_000 < tokens([Message(role="user", parts=(picture,))]) < 1_500


def test_long_tool_output_leaves_out_what_was_said_before_it() -> None:
    state = asking(conversation(8), Part(content="look"))
    events: list[Event] = [
        proposed("c", "now", gated=False),
        tool_started("c", "now"),
        finished("c", "now", result="r" * 12_000),
    ]
    for event in events:
        state.apply(event.model_copy(update={"seq": state.next_seq, "at": NOW}))
    compacted = compaction(state, SMALL, overhead=0)
    assert compacted is not None
    assert compacted.through_run == "run-8"


def test_short_message_after_little_was_said_leaves_everything() -> None:
    state = asking(conversation(8), Part(content="x" * 400))
    assert compaction(state, SMALL, overhead=0) is None


def test_first_message_however_long_leaves_nothing_to_compact() -> None:
    assert compaction(asking(fold([]), Part(content="x" * 99_999)), SMALL, overhead=0) is None


def test_summary_of_a_branch_that_is_not_visible_is_not_used() -> None:
    state = conversation(20)
    hidden = compaction(state, SMALL, overhead=0)
    assert hidden is not None
    state = applied(state, hidden.model_copy(update={"summary": "HIDDEN"}))
    assert "HIDDEN" in str(thread_messages(state))
    # The user goes back to the second turn and asks something else.
    state = asking(state, Part(content="x" * 13_000), parent="run-2")
    messages = thread_messages(state)
    assert "HIDDEN" not in str(messages)
    assert [message.role for message in messages] == ["user", "assistant"] * 2 + ["user"]
    event = compaction(state, SMALL, overhead=0)
    assert event is not None
    assert event.through_run == "run-2"
    assert event.summary.startswith("- User: question 1 ")


def test_later_summary_begins_with_the_earlier_one_that_is_visible() -> None:
    state = conversation(6, size=4_000)
    for text in ("OLDER", "NEWER"):
        state = applied(state, Compacted(run_id="run-6", through_run="run-2", summary=text))
    second = compaction(state, ContextWindow(window=8_000, reserve=0), overhead=0)
    assert second is not None
    assert second.summary.startswith("NEWER\n- User: question 3 ")
    assert "OLDER" not in second.summary


def test_summary_is_no_longer_than_the_budget() -> None:
    small = ContextWindow(window=600, reserve=0)
    event = compaction(conversation(20), small, overhead=0)
    assert event is not None
    assert len(event.summary) <= small.budget + len("(earlier turns are left out)\n")
    assert event.summary.endswith("...")


def test_summary_that_fits_exactly_is_kept_whole() -> None:
    runs = conversation(3).branch()
    whole = summary("before", runs)
    assert summary("before", runs, limit=len(whole)) == whole
    assert whole.startswith("before\n- User: question 1 ")
    shorter = summary("before", runs, limit=len(whole) - 1)
    assert shorter == "(earlier turns are left out)\n" + whole[1:]


@pytest.mark.parametrize(("size", "kept"), [(229, True), (230, False)])
def test_summary_quotes_a_short_message_whole_and_the_start_of_a_longer_one(
    size: int, kept: bool
) -> None:
    """The message has eleven letters before those counted here."""
    text = summary(None, conversation(1, size=size).branch())
    asked = "question 1 " + "q" * min(size, 229)
    assert text.splitlines()[0] == f"- User: {asked}" + ("" if kept else " ...")


def test_summary_names_the_files_that_are_not_shown_any_more() -> None:
    files = [Part(kind="file", content="x", name=name) for name in ("plan.txt", None)]
    state = asking(conversation(1), Part(content="look"), *files)
    lines = summary(None, [state.run("now")]).splitlines()
    assert lines[0] == (
        "- User: look (with the file plan.txt, which is not shown any more) "
        "(with the file file, which is not shown any more)"
    )


def test_summary_says_how_a_run_without_an_answer_ended() -> None:
    said = UserInput(parts=(Part(content="never\n mind"),))
    events: list[Event] = [
        RunStarted(run_id="r", message=said),
        Cancelled(run_id="r"),
        RunEnded(run_id="r", status=RunStatus.CANCELLED),
    ]
    text = summary(None, fold(numbered(*events)).branch())
    assert text == "- User: never mind\n  Assistant: (cancelled)"


def output(number: int, size: int) -> Message:
    return Message(role="tool", content=f"{number}" * size, tool_call_id=f"call-{number}")


def test_only_tool_output_is_cut_however_long_a_message_is() -> None:
    said = Message(role="user", content="u" * 50_000)
    answer = Message(role="assistant", content="a" * 50_000)
    cut = cut_to_fit([said, answer, output(1, 50_000)], SMALL)
    assert [cut[0], cut[1]] == [said, answer]
    assert len(cut[2].content) < 5_000


def test_output_that_need_not_be_cut_is_kept_whole() -> None:
    messages = [output(1, 3_000), output(2, 40_000), output(3, 3_000)]
    context = ContextWindow(window=7_000, reserve=0)
    assert tokens(messages) > context.budget
    cut = cut_to_fit(messages, context)
    assert tokens(cut) <= context.budget
    assert [cut[0], cut[2]] == [messages[0], messages[2]]
    assert len(cut[1].content) > 15_000


def test_cut_output_keeps_its_beginning_and_end_and_counts_what_is_left_out() -> None:
    text = "".join(map(str, range(10_000)))
    (cut,) = cut_to_fit([Message(role="tool", content=text, tool_call_id="c")], SMALL)
    kept = re.fullmatch(r"(\d+)\n\[\.\.\. (\d+) characters .*\]\n(\d+)", cut.content)
    assert kept is not None
    start, left_out, end = kept.groups()
    assert text.startswith(start) and text.endswith(end)
    assert len(start) + int(left_out) + len(end) == len(text)
    assert abs(len(start) - len(end)) <= 1


def test_output_is_never_cut_below_what_says_something() -> None:
    cut = cut_to_fit(
        [output(number, 9_000) for number in range(9)], ContextWindow(window=9, reserve=0)
    )
    assert all(2_000 <= len(message.content) <= 2_200 for message in cut)


def test_file_as_long_as_what_is_kept_of_a_longer_one_stays_whole() -> None:
    files = tuple(Part(kind="file", content=text) for text in ("a" * 8_000, "b" * 4_000))
    context = ContextWindow(window=2_200, reserve=0)
    (cut,) = cut_to_fit([Message(role="user", parts=files)], context)
    longer, exact = cut.parts
    assert "4000 characters are left out" in longer.content
    assert exact.content == files[1].content


def test_output_is_cut_no_further_once_it_just_fits() -> None:
    whole = [Message(role="tool", content="x" * 40_000, tool_call_id="1")]
    halved = cut_to_fit(whole, ContextWindow(tokens(whole) - 1, reserve=0))
    assert KEPT < len(halved[0].content) < len(whole[0].content)
    assert cut_to_fit(whole, ContextWindow(tokens(halved), reserve=0)) == halved


def test_messages_that_just_fit_are_not_cut() -> None:
    messages = [output(1, 9_000)]
    assert cut_to_fit(messages, ContextWindow(window=tokens(messages), reserve=0)) is messages
    assert (
        cut_to_fit(messages, ContextWindow(window=tokens(messages) - 1, reserve=0)) is not messages
    )


def test_budget_is_what_the_answer_leaves_of_the_window_and_never_nothing() -> None:
    assert ContextWindow(window=1_000, reserve=300).budget == 700
    assert ContextWindow(window=100, reserve=300).budget == 1


PAPER = Attachment(media_type="application/pdf", uri="data:application/pdf;base64,")
UNPAGED = Part(kind="file", content="x" * 400, original=PAPER)
CALL = ToolCall(id="1", plugin_name="Files", function_name="look", arguments={"text": "x" * 390})
COUNTED = {
    "letters": (Message(role="user", content="x" * 400), 100),
    "letters of two bytes": (Message(role="user", content="\u00e9" * 400), 200),
    "letters of three bytes": (Message(role="user", content="\u6211" * 400), 300),
    "letters of four bytes": (Message(role="user", content="\U0001f600" * 400), 400),
    "half of a letter": (Message(role="user", content="\ud83d" * 400), 100),
    "parts": (Message(role="user", parts=(Part(content="x" * 200), Part(content="x" * 200))), 100),
    "a file whose pages are not known": (Message(role="user", parts=(UNPAGED,)), 100),
    "arguments of a call": (Message(role="assistant", tool_calls=(CALL,)), 103),
    "arguments of two calls": (Message(role="assistant", tool_calls=(CALL, CALL)), 206),
}


@pytest.mark.parametrize(("message", "expected"), COUNTED.values(), ids=COUNTED)
def test_everything_a_message_says_is_counted_by_its_bytes(message: Message, expected: int) -> None:
    empty = rough_tokens(Message(role="user"))
    assert empty > 0
    assert rough_tokens(message) - empty == pytest.approx(expected, abs=2)


def imported_item(content: str, **fields: Any) -> ImportedItem:
    return ImportedItem(run_id="before", at=NOW, role="user", content=content, **fields)


def test_imported_items_open_the_conversation() -> None:
    imported = Imported(
        items=(
            imported_item("look"),
            imported_item("data:image/png;base64,AA", content_type="image"),
        )
    )
    messages = thread_messages(fold(numbered(imported, *turn(1))))
    picture = Part(kind="image", content="data:image/png;base64,AA")
    assert messages[0] == Message(role="user", content="look")
    assert messages[1] == Message(role="user", parts=(picture,))
    assert messages[2].content.startswith("question 1")
