"""Server-sent events, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.streamed_chat import SseReader

STREAM = 'data: {"a": "é"}\n\n: alive\n\nevent: x\ndata: one\ndata:two\n\ndata: 😀\n\n'.encode()
DATA = ['{"a": "é"}'.encode(), b"one\ntwo", "😀".encode()]


def read_all(reads: list[bytes], reader: SseReader | None = None) -> list[bytes]:
    reader = reader or SseReader()
    return [data for read in reads for data in reader.feed(read)] + reader.end()


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_data_is_whole_however_it_was_cut(newline: bytes, size: int) -> None:
    stream = STREAM.replace(b"\n", newline)
    assert read_all([stream[i : i + size] for i in range(0, len(stream), size)]) == DATA


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_data_is_the_same_for_every_way_to_cut_it(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reads = [STREAM[a:b] for a, b in zip(edges, edges[1:], strict=False) if a < b]
    assert read_all(reads) == DATA


def test_last_event_counts_without_its_blank_line() -> None:
    assert read_all([b"data: a\n\ndata: [DO", b"NE]"]) == [b"a", b"[DONE]"]
    assert read_all([b"data: [DONE]\n"]) == [b"[DONE]"]


def test_event_larger_than_the_limit_is_refused_before_it_is_complete() -> None:
    reader = SseReader(max_event=1000)
    with pytest.raises(ModelProtocolError):
        read_all([b"data: " + b"x" * 100] * 20, reader)


def test_many_events_together_may_be_larger_than_the_limit() -> None:
    assert len(read_all([b"data: x\n\n" * 1000], SseReader(max_event=100))) == 1000
