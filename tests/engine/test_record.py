"""How a commit is written, and how damage is recognised."""

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.events import BranchChanged, Event, Unrecognised
from sk_agents.engine.log.chain import extended
from sk_agents.engine.log.commits import Absent
from sk_agents.engine.models import EPOCH, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import CommitReused, InvalidInput, SchemaTooNew, StateCorrupt
from sk_agents.persistence.encoding import (
    LARGE_COMMIT,
    LongRecords,
    Record,
    check_replay,
    decode_record,
    encode_events,
    encoded_events,
    read_whole_log,
    record_checksum,
)
from tests.engine.builders import imported, log, moment, one_of_each, proposed, started, turn
from tests.engine.heads import NEW, admitted
from tests.engine.histories import legal_logs

AT = moment(9)
PLACE: dict[str, Any] = {"thread_id": "t", "first_seq": 3, "commit_id": "c"}


def stored(events: list[Event], **place: Any) -> Record:
    body = encode_events(events, AT)
    where = {**PLACE, **place}
    return decode_record(**where, body=body, check=record_checksum(**where, body=body))


def placed(events: list[Event], first_seq: int) -> tuple[Event, ...]:
    """Numbered, and dated unless it brings its date along."""
    return tuple(
        event.model_copy(update={"seq": seq, "at": AT if event.at == EPOCH else event.at})
        for seq, event in enumerate(events, first_seq)
    )


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_event_of_every_type_comes_back_as_it_was_with_its_place(event: Event) -> None:
    record = stored([event])
    assert record == Record("c", 3, placed([event], 3))
    assert record.last_seq == 3


def test_all_events_of_a_commit_are_numbered_from_its_place() -> None:
    record = stored(turn(), first_seq=8)
    assert [event.seq for event in record.events] == [8, 9, 10]
    assert record.last_seq == 10


# Everything that could be taken for the end of an event.
TRICKY = ['},{"', "]}", "\\", '\\"', '"', "[[{", "\u2028\n", "\U0001f9ed", "x" * 20_000]


def sealed(events: list[Event]) -> dict[str, Any]:
    body = encode_events(events, AT)
    return {**PLACE, "body": body, "check": record_checksum(**PLACE, body=body)}


@pytest.mark.parametrize("times", [1, 3], ids=["short", "long"])
def test_a_part_of_a_record_is_what_the_whole_has_there(times: int) -> None:
    events = [*turn(), *(proposed(arguments={text: [text]}) for text in TRICKY)] * times
    where = sealed(events)
    whole = decode_record(**where)
    assert (len(where["body"]) > LongRecords.LONG) == (times > 1)
    for after in range(whole.last_seq + 3):
        for limit in (0, 1, 2, 5, 1000, None):
            part = decode_record(**where, after=after, limit=limit)
            asked_for = [event for event in whole.events if event.seq > after]
            assert list(part.events) == asked_for[:limit]
            assert part.last_seq == whole.last_seq


def test_a_long_record_is_read_in_pages_in_linear_time() -> None:
    """A chat that was brought in is one record."""

    def cost(turns: int) -> float:
        where = sealed(turn() * turns)
        begin, seq = time.process_time(), 0
        while page := decode_record(**where, after=seq, limit=500).events:
            seq = page[-1].seq
        return time.process_time() - begin

    # Both within a moment: a machine is not equally fast for long.
    assert min(cost(8000) / cost(1000) for _ in range(3)) < 20


@given(legal_logs(max_moves=15))
def test_any_log_comes_back_equal(events: list[Event]) -> None:
    assert stored(events, first_seq=1).events == placed(events, 1)


def test_switch_to_the_root_comes_back() -> None:
    assert stored([BranchChanged(head_run=None)]).events[0] == BranchChanged(seq=3, at=AT)


def test_unknown_type_of_a_newer_writer_is_read_as_unrecognised() -> None:
    body = b'{"v":1,"at":"2030-01-01T00:00:09Z","events":[{"type":"later","x":{"y":1}}]}'
    record = decode_record(**PLACE, body=body, check=record_checksum(**PLACE, body=body))
    assert record.events == (Unrecognised(seq=3, at=AT, type="later"),)


BODY = encode_events(turn(text="naïve"), AT)
CHECK = record_checksum(**PLACE, body=BODY)


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_any_changed_byte_is_damage(place: int, flip: int) -> None:
    body = bytes([*BODY[:place], BODY[place] ^ flip, *BODY[place + 1 :]])
    with pytest.raises(StateCorrupt):
        decode_record(**PLACE, body=body, check=CHECK)


@given(st.integers(0, len(BODY) - 1))
def test_record_cut_short_is_damage(length: int) -> None:
    with pytest.raises(StateCorrupt):
        decode_record(**PLACE, body=BODY[:length], check=CHECK)


@pytest.mark.parametrize(
    "elsewhere", [{"thread_id": "t2"}, {"first_seq": 4}, {"commit_id": "c2"}], ids=str
)
def test_record_moved_to_another_place_is_damage(elsewhere: dict[str, Any]) -> None:
    with pytest.raises(StateCorrupt) as damage:
        decode_record(**{**PLACE, **elsewhere}, body=BODY, check=CHECK)
    assert damage.value.thread_id == elsewhere.get("thread_id", "t")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"v":1,"events":[]}',
        b'{"v":1,"at":"2030-01-01T00:00:09Z"}',
        b'{"v":1,"at":"2030-01-01T00:00:09Z","events":["x"]}',
        b'{"v":1,"at":"2030-01-01T00:00:09Z","events":[{"type":["answered"]}]}',
        b'{"v":1,"at":"2030-01-01T00:00:09Z","events":[{"type":"answered"}]}',
        b'{"v":1,"at":"yesterday","events":[{"type":"answered","content":"x"}]}',
    ],
)
def test_well_sealed_nonsense_is_damage(body: bytes) -> None:
    with pytest.raises(StateCorrupt):
        decode_record(**PLACE, body=body, check=record_checksum(**PLACE, body=body))


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value] if isinstance(value, list) else {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        *("\ud800", object(), float("nan"), [float("inf")], {"a": -float("inf")}),
        nested([], 220),
        nested({}, 220),
    ],
    ids=[
        *("half a pair", "an object", "nan", "infinity", "negative infinity"),
        *("deeper than is read: lists", "deeper than is read: objects"),
    ],
)
def test_value_without_a_json_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        encode_events([proposed(arguments={"x": value})], AT)


def test_name_with_half_a_pair_is_refused_and_a_replacement_is_a_name_like_others() -> None:
    with pytest.raises(InvalidInput):
        encode_events([proposed(arguments={"\ud800": 1})], AT)
    event = proposed(arguments={"\ufffd": [{"é": 1}]})
    assert stored([event]).events == placed([event], 3)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity, or so"])
def test_text_that_names_no_number_is_just_text(text: str) -> None:
    event = proposed(arguments={"x": text})
    assert stored([event]).events == placed([event], 3)


@given(legal_logs(max_moves=10))
def test_commit_sent_again_gets_its_stored_events(events: list[Event]) -> None:
    record = stored(events)
    assert check_replay(record, events) == record.events
    unnumbered = [event.model_copy(update={"seq": 0}) for event in events]
    assert check_replay(record, unnumbered) == record.events


def test_commit_sent_again_matches_by_what_is_written_not_by_python_types() -> None:
    event = proposed(arguments={"pair": (1, 2), "when": AT})
    assert check_replay(stored([event]), [event])


@pytest.mark.parametrize(
    "others",
    [[], turn()[:2], [*turn(), started("r2")], turn(text="else"), turn("r2"), [imported("x")]],
    ids=len,
)
def test_commit_id_with_other_events_is_refused(others: list[Event]) -> None:
    with pytest.raises(CommitReused) as refusal:
        check_replay(stored(turn()), others)
    assert refusal.value.commit_id == "c"


def test_replay_ignores_the_number_and_time_of_what_is_sent() -> None:
    assert check_replay(stored(turn()), log(*turn()))


def test_a_record_of_a_newer_version_is_not_taken_for_damage() -> None:
    body = b'{"v":99,"at":"2030-01-01T00:00:00Z","events":[]}'
    with pytest.raises(SchemaTooNew):
        decode_record("t", 1, "c", body, record_checksum("t", 1, "c", body))


def test_whole_log_with_a_record_that_holds_nothing_is_damaged() -> None:
    head = admitted(Absent(NEW), None, started()).thread
    whole = StoredRecord(1, "c", encode_events([started()], AT))
    empty = StoredRecord(1, "nothing", encode_events([], AT))
    assert len(read_whole_log(head, [whole])) == 1
    for records in ([empty, whole], [whole, StoredRecord(2, "nothing", empty.body)]):
        with pytest.raises(StateCorrupt, match="missing"):
            read_whole_log(head, records)


def whole_log() -> tuple[Thread, list[StoredRecord]]:
    """Three records of three events each, and their chained head."""
    records = [StoredRecord(seq, f"c{seq}", encode_events(turn(), AT)) for seq in (1, 4, 7)]
    head = admitted(Absent(NEW), None, started()).thread._replace(next_seq=10, chain="")
    chain = ""
    for record in records:
        chain = extended(head, chain, record.first_seq, record.commit_id, record.body)
    return head._replace(chain=chain), records


def test_whole_log_is_read_as_its_head_describes_it() -> None:
    head, records = whole_log()
    found = read_whole_log(head, records)
    assert [(record.first_seq, record.last_seq) for record in found] == [(1, 3), (4, 6), (7, 9)]


@pytest.mark.parametrize("left", [(1, 2), (0, 2), (0, 1), (), (1, 0, 2)], ids=str)
def test_whole_log_that_lacks_a_record_or_has_another_order_is_damaged(
    left: tuple[int, ...],
) -> None:
    head, records = whole_log()
    for chain in (head.chain, ""):
        with pytest.raises(StateCorrupt, match="missing"):
            read_whole_log(head._replace(chain=chain), [records[at] for at in left])


def test_whole_log_with_another_record_than_its_head_chains_is_damaged() -> None:
    head, records = whole_log()
    records[1] = StoredRecord(4, "another", records[1].body)
    with pytest.raises(StateCorrupt, match="not what its head chains"):
        read_whole_log(head, records)
    assert len(read_whole_log(head._replace(chain=""), records)) == 3, "one of an earlier version"


@pytest.mark.parametrize("is_large", [True, False])
async def test_others_are_served_while_a_large_commit_is_written(is_large: bool) -> None:
    served = asyncio.ensure_future(asyncio.sleep(0))
    await asyncio.sleep(0)
    events = [started()] * (LARGE_COMMIT + is_large)
    assert await encoded_events(events, AT) == encode_events(events, AT)
    assert served.done() == is_large
    await served


def test_fields_without_a_value_take_no_room_in_a_record() -> None:
    assert b"null" not in encode_events([started()], AT)
    assert b"null" not in encode_events([started().model_copy(update={"at": moment(1)})], AT)
