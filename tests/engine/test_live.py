"""The text of an open round: what a reader is given of it, and from which place on."""

import pytest

from sk_agents.engine.events import Event, SteeringDelivered
from sk_agents.engine.reading.live import (
    MAX_OUTPUT,
    MOST_CHARACTERS,
    LiveDelta,
    LiveRun,
    MirroredRun,
    StreamKey,
)
from tests.engine.builders import answered, proposed, started, tool_started

ANSWER: StreamKey = ("answer", 1, 1, None)


def pieces(live: LiveRun, seen: dict[StreamKey, tuple[int, int]] | None = None) -> list[str]:
    """What a reader is given until it has all, one string for each time it asks."""
    seen = {} if seen is None else seen
    given = []
    while deltas := list(live.deltas_since(seen)):
        given.append("".join(delta.content for delta in deltas))
        assert len(given) < 100
    return given


def said(*texts: str) -> LiveRun:
    live = LiveRun("r1")
    for text in texts:
        live.add_text("answer", text)
    return live


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([MOST_CHARACTERS], [MOST_CHARACTERS]),
        ([MOST_CHARACTERS // 2] * 2, [MOST_CHARACTERS]),
        ([MOST_CHARACTERS // 2] * 5, [MOST_CHARACTERS, MOST_CHARACTERS, MOST_CHARACTERS // 2]),
        ([MOST_CHARACTERS // 2, 1, MOST_CHARACTERS // 2], [MOST_CHARACTERS // 2 + 1, 16384]),
        ([10, MOST_CHARACTERS + 1, 10], [10, MOST_CHARACTERS + 1, 10]),
        ([3 * MOST_CHARACTERS], [3 * MOST_CHARACTERS]),
    ],
)
def test_reader_that_missed_much_gets_pieces_of_bounded_size(
    lengths: list[int], expected: list[int]
) -> None:
    texts = [chr(ord("a") + number) * length for number, length in enumerate(lengths)]
    given = pieces(said(*texts))
    assert "".join(given) == "".join(texts)
    assert [len(piece) for piece in given] == expected


def test_reader_that_has_the_beginning_of_a_long_text_gets_the_rest_at_once() -> None:
    live, seen = said("a" * MOST_CHARACTERS), dict[StreamKey, tuple[int, int]]()
    pieces(live, seen)
    for _ in range(4):
        live.add_text("answer", "b" * (MOST_CHARACTERS // 4))
    assert [len(piece) for piece in pieces(live, seen)] == [MOST_CHARACTERS]


def test_delta_says_of_which_round_attempt_and_place_it_is() -> None:
    live, seen = said("Hel", "lo"), dict[StreamKey, tuple[int, int]]()
    assert list(live.deltas_since(seen)) == [LiveDelta("answer", "r1", "Hello", 0, 1, 1)]
    live.add_text("answer", "!")
    assert list(live.deltas_since(seen)) == [LiveDelta("answer", "r1", "!", 5, 1, 1)]
    assert not list(live.deltas_since(seen))
    live.begin(2, 3)
    live.add_text("thinking", "hm")
    live.add_output("c1", "10%")
    assert list(live.deltas_since(seen)) == [
        LiveDelta("thinking", "r1", "hm", 0, 2, 3),
        LiveDelta("tool_output", "r1", "10%", 0, 0, 1, "c1"),
    ]


def test_reader_is_behind_exactly_while_there_is_text_it_has_not_seen() -> None:
    live, seen = said(), dict[StreamKey, tuple[int, int]]()
    assert not live.is_ahead_of(seen)
    live.add_text("answer", "Hel")
    assert live.is_ahead_of(seen)
    pieces(live, seen)
    assert not live.is_ahead_of(seen)
    live.add_text("thinking", "hm")
    assert live.is_ahead_of(seen)


def test_new_round_has_none_of_the_old_text_and_goes_on_with_the_output_of_tools() -> None:
    live = said("Hello")
    live.add_output("c1", "10% ")
    live.begin(2, 1)
    live.add_output("c1", "20%")
    assert (live.text(), pieces(live)) == ("", ["10% 20%"])


@pytest.mark.parametrize(
    ("event", "is_open"),
    [
        (answered(), False),
        (proposed(), False),
        (SteeringDelivered(run_id="r1", round=1, message_ids=()), False),
        (tool_started(), True),
        (started(), True),
    ],
)
def test_round_is_closed_by_its_stored_form_alone(event: Event, is_open: bool) -> None:
    live = said("Hello")
    live.stored([event])
    assert live.text() == ("Hello" if is_open else "")


def test_round_that_was_closed_keeps_its_number() -> None:
    live = LiveRun("r1")
    live.begin(4, 2)
    live.close_round()
    live.add_text("answer", "more")
    assert list(live.lengths().items()) == [(("answer", 4, 2, None), 4)]


def test_output_of_a_call_is_shown_up_to_its_bound_and_not_beyond() -> None:
    live = LiveRun("r1")
    live.add_output("c1", "x" * (MAX_OUTPUT - 3))
    live.add_output("c1", "12345")
    seen = dict[StreamKey, tuple[int, int]]()
    shown = "".join(pieces(live, seen))
    assert (len(shown), shown[-4:]) == (MAX_OUTPUT, "x123")
    live.add_output("c1", "6")
    assert not live.is_ahead_of(seen)
    live.add_output("c2", "y" * (MAX_OUTPUT + 5))
    assert pieces(live, seen) == ["y" * MAX_OUTPUT]


def test_call_that_was_closed_shows_nothing_even_if_it_goes_on_printing() -> None:
    live = LiveRun("r1")
    live.add_output("c1", "10%")
    live.close_call("c1")
    live.close_call("never printed")
    live.add_output("c1", "20%")
    live.add_output("never printed", "late")
    assert not live.lengths()


def test_listeners_are_all_called() -> None:
    live, called = LiveRun("r1"), list[str]()
    live.listeners += [lambda: called.append("a"), lambda: called.append("b")]
    live.call_listeners()
    assert called == ["a", "b"]


def test_place_of_a_reader_elsewhere_is_the_start_of_the_chunk_it_has_in_part() -> None:
    live = said("ab", "cd", "ef")
    assert live.seen_by({ANSWER: 4}) == {ANSWER: (2, 4)}
    assert pieces(live, live.seen_by({ANSWER: 5})) == ["ef"]
    assert pieces(live, live.seen_by({})) == ["abcdef"]
    letters = said("a", "b")
    assert pieces(letters, letters.seen_by({})) == ["ab"]


@pytest.mark.parametrize(
    ("epoch", "next_seq", "is_newer"),
    [(2, 5, False), (2, 6, False), (3, 0, False), (2, 4, True), (1, 99, True)],
)
def test_copy_is_newer_than_what_an_earlier_owner_or_an_earlier_log_says(
    epoch: int, next_seq: int, is_newer: bool
) -> None:
    mirror = MirroredRun("r1", "i", 2)
    mirror.take(5, {})
    assert mirror.is_newer_than(epoch, next_seq) is is_newer


def test_copy_takes_what_is_new_of_each_stream_and_closes_those_that_are_gone() -> None:
    thought: StreamKey = ("thinking", 1, 1, None)
    mirror, seen = MirroredRun("r1", "i", 1), dict[StreamKey, tuple[int, int]]()
    assert mirror.take(3, {ANSWER: (0, "Hel"), thought: (0, "hm")})
    assert mirror.lengths() == {ANSWER: 3, thought: 2}
    pieces(mirror, seen)
    assert mirror.take(4, {ANSWER: (0, "Hel")})
    assert (mirror.next_seq, mirror.is_ahead_of(seen)) == (4, False)
    assert mirror.lengths() == {ANSWER: 3}
    assert mirror.take(4, {ANSWER: (2, "lo")})
    assert pieces(mirror, seen) == ["o"]
    assert not mirror.take(4, {ANSWER: (5, "x"), thought: (0, "oh")})
    assert mirror.lengths() == {ANSWER: 4, thought: 2}
