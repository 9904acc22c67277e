"""The text so far, out of previews that overlap, repeat and are taken back."""

from sk_agents.client import (
    Answer,
    AnswerDelta,
    Answering,
    Complete,
    Event,
    Queued,
    Started,
    Status,
    Thinking,
    ThinkingDelta,
    ToolCall,
)

STARTED = Started(seq=1, interaction_id="int_1")


def said(content: str, offset: int = 0, *, round: int = 1, attempt: int = 1) -> AnswerDelta:
    return AnswerDelta(
        interaction_id="int_1", round=round, attempt=attempt, offset=offset, content=content
    )


def thought(content: str, offset: int = 0) -> ThinkingDelta:
    return ThinkingDelta(interaction_id="int_1", round=1, offset=offset, content=content)


def after(*events: Event) -> Answering:
    answering = Answering()
    for event in events:
        answering.add(event)
    return answering


def test_pieces_make_the_text() -> None:
    answering = Answering()
    shown = [answering.add(event) for event in (STARTED, said("Hel"), said("lo", 3))]
    assert shown == ["", "Hel", "Hello"]
    assert not answering.is_final


def test_text_sent_again_from_its_start_changes_nothing() -> None:
    assert after(STARTED, said("Hel"), said("lo", 3), said("Hello")).text == "Hello"


def test_older_text_sent_again_takes_nothing_away() -> None:
    assert after(STARTED, said("Hello"), said("Hel")).text == "Hello"


def test_overlapping_pieces_join() -> None:
    assert after(STARTED, said("Hello w"), said("o world", 4)).text == "Hello world"


def test_higher_attempt_voids_what_was_said() -> None:
    answering = after(STARTED, said("Hello"), said("By", attempt=2))
    assert answering.text == "By"
    assert answering.add(said("!!", 5)) == "By"
    assert answering.add(said("e", 2, attempt=2)) == "Bye"


def test_next_round_begins_its_own_text() -> None:
    assert after(STARTED, said("one moment"), said("So", round=2)).text == "So"


def test_piece_that_leaves_a_hole_is_not_shown() -> None:
    answering = after(STARTED, said("Hel"), said("world", 7))
    assert answering.text == "Hel"
    assert answering.add(said("Hello, world")) == "Hello, world"


def test_what_was_said_beside_a_tool_call_was_a_thought() -> None:
    call = ToolCall(seq=3, id="c", tool_name="look", tool_input="{}")
    answering = after(STARTED, said("Let me look"), thought("hm"))
    assert (answering.text, answering.thinking) == ("Let me look", "hm")
    answering.add(Thinking(seq=2, content="Let me look"))
    assert (answering.text, answering.thinking) == ("", "")
    assert after(STARTED, said("Let me look"), call).text == ""


def test_stored_answer_replaces_every_preview() -> None:
    answering = after(STARTED, said("Helo"), Answer(seq=2, content="Hello."), said("late"))
    assert answering.text == "Hello."
    assert answering.is_final


def test_end_of_the_interaction_is_noted() -> None:
    complete = Complete(seq=3, interaction_id="int_1", status=Status.CANCELLED)
    answering = after(STARTED, said("Hel"), complete)
    assert (answering.text, answering.is_over, answering.is_final) == ("Hel", True, False)
    assert after(complete).is_over


def test_start_of_another_interaction_begins_anew() -> None:
    answering = after(STARTED, Answer(seq=2, content="Hello."))
    answering.add(Queued(seq=3, interaction_id="int_2"))
    assert answering.text == "Hello."
    answering.add(Started(seq=4, interaction_id="int_2"))
    assert (answering.text, answering.is_final, answering.is_over) == ("", False, False)


def test_start_seen_again_changes_nothing() -> None:
    assert after(STARTED, said("Hel"), STARTED).text == "Hel"
