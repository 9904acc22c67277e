"""Chunks that need not be parsed say the same as if they were."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.llm.replies import LESSONS, PlainChunks, plain_text


def chunk(content: Any, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return {"id": "c-1", "model": "m", "choices": [choice], **more}


def encoded(content: Any, **more: Any) -> bytes:
    return orjson.dumps(chunk(content, **more))


def taught(data: bytes | None = None) -> PlainChunks:
    plain = PlainChunks()
    plain.learn(data or encoded("first"), "first")
    return plain


@pytest.mark.parametrize(
    "other",
    [
        5,
        [],
        {},
        {"choices": []},
        {"choices": [5]},
        {"choices": [{"delta": {"content": "a"}, "finish_reason": None}] * 2},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": "a", "role": "x"}, "finish_reason": None}]},
        chunk(None),
        chunk(["a"]),
        chunk("a", usage={"prompt_tokens": 1}),
        chunk("a", error={"code": 1}),
    ],
)
def test_chunk_that_is_more_than_text_is_not_plain(other: Any) -> None:
    assert plain_text(other) is None


def test_chunk_of_text_is_plain() -> None:
    assert plain_text(chunk("a", usage=None)) == "a"


def test_run_of_chunks_like_the_first_is_one_text() -> None:
    events = [encoded(text) for text in ("a", " b", "", "ü😀")]
    assert taught().text([b"[DONE]", *events, b"[DONE]"], 1) == ("a bü😀", 4)


@pytest.mark.parametrize("spell", [orjson.dumps, lambda document: json.dumps(document).encode()])
def test_both_common_ways_to_write_json_are_learnt(spell: Any) -> None:
    plain = taught(spell(chunk("first")))
    assert plain.text([spell(chunk("a")), spell(chunk("b"))], 0) == ("ab", 2)


@given(texts=st.lists(st.text(max_size=5), min_size=1, max_size=5), ascii_only=st.booleans())
def test_any_text_comes_out_as_parsing_would_give_it(texts: list[str], ascii_only: bool) -> None:
    documents = [json.dumps(chunk(text), ensure_ascii=ascii_only).encode() for text in texts]
    plain = taught(json.dumps(chunk("first")).encode())
    text, count = plain.text(documents, 0)
    parsed = "".join(json.loads(d)["choices"][0]["delta"]["content"] for d in documents[:count])
    assert text == parsed


ODD = [
    encoded("a") + b"\n" + encoded("b"),
    encoded("a") + b" ",
    encoded("a") + b"\n",
    encoded("a").replace(b'"a"', b'"a","x":"b"'),
    encoded("a").replace(b'"a"', b'"\\"'),
    encoded("a").replace(b'"a"', b'"\xff"'),
    encoded("a").replace(b"null", b'"stop"'),
    encoded("a", usage={"prompt_tokens": 1}),
    encoded("a")[:-3],
    encoded("a")[3:],
    b"[DONE]",
    b"",
]
LIKELY = st.sampled_from(["", " word", "ü😀", '"', "\\", "\n", '","x":"', encoded("a").decode()])


@given(events=st.lists(LIKELY.map(encoded) | st.sampled_from(ODD), min_size=1, max_size=8))
def test_many_chunks_say_what_each_of_them_says(events: list[bytes]) -> None:
    text, count = taught().text(events, 0)
    each = [taught().text([event], 0) for event in events[:count]]
    assert (text, [known for _, known in each]) == ("".join(one for one, _ in each), [1] * count)


@pytest.mark.parametrize(
    "other",
    [
        encoded("a", usage={"prompt_tokens": 1}),
        encoded("a").replace(b"c-1", b"c-2"),
        encoded("a").replace(b"null", b'"stop"'),
        encoded(None),
        encoded(5),
        encoded("a")[:-1],
        b"[DONE]",
        b"",
    ],
)
def test_chunk_that_differs_is_left_to_the_parser(other: bytes) -> None:
    assert taught().text([other, encoded("b")], 0) == ("", 0)


def test_beginning_and_end_that_overlap_are_no_chunk() -> None:
    whole = encoded("")
    at = whole.index(b'""')
    assert taught().text([whole[: at + 1] + whole[at + 2 :]], 0) == ("", 0)


def test_text_that_ends_and_begins_again_is_left_to_the_parser() -> None:
    twice = encoded("a").replace(b'"a"', b'"a","x":"b"')
    plain = taught()
    assert plain.text([twice], 0) == ("", 0)
    # More may differ than was thought: nothing is taken for granted any more.
    assert plain.text([encoded("a")], 0) == ("", 0)


@pytest.mark.parametrize("wrong", [b"\xff", b"\\", b"\\u12", b"\\ud800"])
def test_text_that_is_none_is_left_to_the_parser(wrong: bytes) -> None:
    assert taught().text([encoded("x").replace(b'"x"', b'"%s"' % wrong)], 0) == ("", 0)


def test_word_content_elsewhere_in_a_chunk_teaches_nothing() -> None:
    plain = taught(encoded("first", note={"content": "y"}))
    assert plain.text([encoded("a", note={"content": "y"})], 0) == ("", 0)


def test_stream_whose_chunks_all_differ_is_not_studied_for_ever() -> None:
    plain = PlainChunks()
    for number in range(LESSONS):
        plain.learn(encoded("a", no=number), "a")
    plain.learn(encoded("a", no=LESSONS), "a")
    assert plain.text([encoded("b", no=LESSONS)], 0) == ("", 0)
