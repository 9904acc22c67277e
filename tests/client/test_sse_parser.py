"""Server-sent events by the WHATWG's rules, however the network cuts them."""

from collections.abc import Sequence

import httpx
import httpx_sse
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.client.errors import ProtocolError
from sk_agents.client.sse_parser import BOM, Frame, SseParser

TABLE: list[tuple[str, bytes, list[Frame]]] = [
    ("nothing", b"", []),
    ("one frame", b"event: a\ndata: b\n\n", [Frame("a", "b")]),
    ("default name", b"data: b\n\n", [Frame("message", "b")]),
    ("empty name", b"event:\ndata: b\n\n", [Frame("message", "b")]),
    ("returns", b"event: a\rdata: b\r\r", [Frame("a", "b")]),
    ("returns and newlines", b"event: a\r\ndata: b\r\n\r\n", [Frame("a", "b")]),
    ("mixed line ends", b"event: a\r\ndata: b\rdata: c\n\r\n", [Frame("a", "b\nc")]),
    ("newline after return", b"data: a\r\n\rdata: b\n\n", [Frame("message", x) for x in "ab"]),
    ("byte order mark", BOM + b"data: b\n\n", [Frame("message", "b")]),
    ("second mark", BOM + BOM + b"data: b\n\ndata: c\n\n", [Frame("message", "c")]),
    ("half a mark", b"\xef\xbbdata: b\n\ndata: c\n\n", [Frame("message", "c")]),
    ("comment", b": hello\ndata: b\n:\n\n", [Frame("message", "b")]),
    ("comment only", b": keepalive\n\n", []),
    ("lines of data", b"data: a\ndata:\ndata: b\n\n", [Frame("message", "a\n\nb")]),
    ("no data", b"event: a\n\n", []),
    ("empty data", b"data\n\n", [Frame("message", "")]),
    ("two empty data", b"data\ndata\n\n", [Frame("message", "\n")]),
    ("no space", b"data:b\n\n", [Frame("message", "b")]),
    ("one space goes", b"data:  b\n\n", [Frame("message", " b")]),
    ("tab stays", b"data:\tb\n\n", [Frame("message", "\tb")]),
    ("colons in value", b"data: a: b:c\n\n", [Frame("message", "a: b:c")]),
    ("unknown field", b"other: x\nDATA: y\n data: z\ndata: b\n\n", [Frame("message", "b")]),
    ("last name counts", b"event: a\nevent: c\ndata: b\n\n", [Frame("c", "b")]),
    ("id", b"id: 7\ndata: b\n\n", [Frame("message", "b", "7")]),
    ("id with NUL", b"id: 7\x00\ndata: b\n\n", [Frame("message", "b")]),
    (
        "own id only",
        b"id: 7\ndata: a\n\ndata: b\n\n",
        [Frame("message", "a", "7"), Frame("message", "b")],
    ),
    ("empty id", b"id\ndata: b\n\n", [Frame("message", "b", "")]),
    ("not closed", b"data: a\n\ndata: b\n", [Frame("message", "a")]),
    ("not even a line", b"data: a\n\ndata: b", [Frame("message", "a")]),
    ("more blank lines", b"\n\ndata: a\n\n\n\n", [Frame("message", "a")]),
    (
        "many bytes a letter",
        "data: zażółć 🦆\u2028\x85\n\n".encode(),
        [Frame("message", "zażółć 🦆\u2028\x85")],
    ),
    ("broken letters", b"data: \xe2\x82\ndata: \xff!\n\n", [Frame("message", "\ufffd\n\ufffd!")]),
]
by_name = pytest.mark.parametrize(
    ("stream", "frames"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)


def parsed(*reads: bytes) -> list[Frame]:
    parser = SseParser()
    return [frame for read in reads for frame in parser.feed(read)]


def split(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in zip(edges, edges[1:], strict=False)]


@by_name
def test_frames_are_those_of_the_table(stream: bytes, frames: list[Frame]) -> None:
    assert parsed(stream) == frames


@by_name
def test_frames_are_the_same_when_cut_at_any_byte(stream: bytes, frames: list[Frame]) -> None:
    for place in range(len(stream) + 1):
        assert parsed(stream[:place], b"", stream[place:]) == frames


@by_name
def test_frames_are_the_same_byte_by_byte(stream: bytes, frames: list[Frame]) -> None:
    assert parsed(*(stream[at : at + 1] for at in range(len(stream)))) == frames


def test_frame_closed_by_a_return_does_not_wait_for_what_follows() -> None:
    assert SseParser().feed(b"data: a\r\r") == [Frame("message", "a")]


@pytest.mark.parametrize(
    ("stream", "last_id"),
    [
        (b"id: 1\ndata: a\n\ndata: b\n\n", "1"),
        (b"id: 1\ndata: a\n\nid: 2\n\n", "2"),
        (b"id: 1\ndata: a\n\nid: 2\n", "1"),
        (b"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", "1"),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", ""),
    ],
)
def test_last_id_is_that_of_the_last_closed_frame_that_has_one(stream: bytes, last_id: str) -> None:
    parser = SseParser()
    parser.feed(stream)
    assert parser.last_id == last_id


@pytest.mark.parametrize(
    ("value", "retry"),
    [
        (b"1500", 1500),
        (b"0", 0),
        (b"007", 7),
        (b"1.5", None),
        (b"-1", None),
        (b"+1", None),
        (b"1s", None),
        (b"", None),
        ("٣".encode(), None),
        (b"9" * 5000, None),
    ],
)
def test_retry_is_digits_only(value: bytes, retry: int | None) -> None:
    parser = SseParser()
    parser.feed(b"retry: " + value + b"\n")
    assert parser.retry == retry


@pytest.mark.parametrize(
    "reads", [[b"data: 123456\n\n"], [b"data: 1", b"23456"], [b"data: 1\n", b"data: 2"]]
)
def test_frame_over_the_limit_is_refused(reads: list[bytes]) -> None:
    parser = SseParser(max_frame=10)
    with pytest.raises(ProtocolError):
        for read in reads:
            parser.feed(read)


def test_limit_is_for_each_frame_by_itself() -> None:
    parser = SseParser(max_frame=10)
    assert len([frame for _ in range(50) for frame in parser.feed(b"data: 1234\n\n")]) == 50


words = st.text(
    st.characters(exclude_characters="\r\n\0\ufeff", codec="utf-8"), min_size=1, max_size=12
)
fields = st.one_of(
    st.builds("data: {}".format, words),
    st.builds("data:{}".format, words),
    st.builds("event: {}".format, words),
    st.builds("id: {}".format, words),
    st.builds("retry: {}".format, st.integers(0, 99999)),
    st.builds(": {}".format, words),
    st.builds("{}: x".format, st.sampled_from(["Data", "ids", " data"])),
)
frames_of_lines = st.lists(
    st.lists(fields, max_size=5).map(lambda lines: [*lines, "data: end"]), max_size=5
)


@given(st.data(), frames_of_lines, st.lists(words, max_size=1))
def test_same_bytes_give_the_same_frames_as_httpx_sse(
    data: st.DataObject, frames: list[list[str]], unfinished: list[str]
) -> None:
    line_end = st.sampled_from(["\n", "\r\n", "\r"])
    lines = [line for frame in frames for line in [*frame, ""]]
    text = "".join(line + data.draw(line_end) for line in lines)
    text += "".join(f"data: {word}" for word in unfinished)
    stream = text.encode()
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    reads = split(stream, places)
    parser = SseParser()
    ours = [(frame.event, frame.data) for read in reads for frame in parser.feed(read)]
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    theirs = list(httpx_sse.EventSource(response).iter_sse())
    assert ours == [(event.event, event.data) for event in theirs]
    assert parser.last_id == (theirs[-1].id if theirs else "")


@by_name
def test_table_agrees_with_httpx_sse_where_that_follows_the_rules(
    stream: bytes, frames: list[Frame]
) -> None:
    # It keeps the byte order mark and tells no frame without data from one with empty data.
    if stream.startswith(BOM[:2]) or any(not frame.data.strip("\n") for frame in frames):
        return
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    theirs = [event for event in httpx_sse.EventSource(response).iter_sse() if event.data]
    assert [(e.event, e.data) for e in theirs] == [(frame.event, frame.data) for frame in frames]
