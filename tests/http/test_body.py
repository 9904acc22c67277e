"""Bodies that are not what they should be."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from starlette.types import Message as Received
from starlette.types import Receive

from sk_agents.exceptions import MalformedRequest, SlowRequest, TooLarge, UnsupportedMedia
from sk_agents.http.body import read_json
from sk_agents.http.errors import MAX_ERRORS
from sk_agents.http.strict_json import MAX_DEPTH, MAX_MARKS, MAX_VALUES
from tests.http.toy import ANYTHING, MAX_BYTES, inside, toy_app
from tests.patience import seconds

JSON = "application/json"
GOOD = b'{"content":"hello"}'
CANARY = "canary"


async def send(
    body: bytes, content_type: str | None = JSON, path: str = "/chats/c/interactions", **more: str
) -> tuple[httpx.Response, list[Any]]:
    app = toy_app()
    headers = {**more, **({"Content-Type": content_type} if content_type else {})}
    async with inside(app) as client:
        return await client.post(path, content=body, headers=headers), app.state.ran


@pytest.mark.parametrize(
    ("row", "content_type", "headers"),
    [
        ("H1 none", None, {}),
        ("H1 plain text", "text/plain", {}),
        ("H1 form", "application/x-www-form-urlencoded", {}),
        ("H1 looks like it", "application/jsonx", {}),
        ("H1 looks like it", "text/json", {}),
        ("H1 empty", "", {}),
        ("H2 utf-16", "application/json; charset=utf-16", {}),
        ("H2 latin", "application/json;CHARSET=iso-8859-1", {}),
        ("H2 two charsets", "application/json; charset=utf-8; charset=utf-16", {}),
        ("H8 gzip", JSON, {"Content-Encoding": "gzip"}),
        ("H8 twice", JSON, {"Content-Encoding": "identity, gzip"}),
        ("H8 in transit", JSON, {"Transfer-Encoding": "gzip, chunked"}),
    ],
)
async def test_other_kinds_of_body_are_415_and_nothing_runs(
    row: str, content_type: str | None, headers: dict[str, str]
) -> None:
    response, ran = await send(GOOD, content_type, **headers)
    assert (response.status_code, response.json()["code"], ran) == (415, "unsupported_media", [])


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json; profile=x",
        "application/merge-patch+json",
    ],
)
async def test_json_by_any_of_its_names_is_read(content_type: str) -> None:
    response, _ = await send(GOOD, content_type, **{"Content-Encoding": "identity"})
    assert response.json() == {"content": "hello"}


def deep(levels: int) -> bytes:
    return b'{"content":"x","data":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def holding(value: str) -> bytes:
    return b'{"content":"x","data":%b}' % value.encode()


@pytest.mark.parametrize(
    ("row", "body"),
    [
        ("J1 empty", b""),
        ("J1 null", b"null"),
        ("J1 array", b"[]"),
        ("J1 text", b'"x"'),
        ("J1 number", b"1"),
        ("J1 blank", b"  "),
        ("J3 twice", b'{"content":"a","content":"b"}'),
        ("J3 twice, spelt differently", b'{"content":"a","\\u0063ontent":"b"}'),
        ("J3 twice, below", holding('[{"a":1,"a":1}]')),
        ("J4 100,000 arrays", b"[" * 100_000),
        ("J4 100,000 objects", b'{"a":' * 100_000),
        ("J4 one level too deep", deep(MAX_DEPTH + 1)),
        ("J5 5,000 digits", holding("9" * 5000)),
        ("J5 65 bits", holding(str(2**64))),
        ("J5 64 bits below zero", holding(str(-(2**63) - 1))),
        ("J5 no such float", holding("1e999")),
        ("J5 no such float", holding("-12.5E+400")),
        ("J5 no such float", holding("9" * 400 + ".5")),
        ("J5 NaN", holding("NaN")),
        ("J5 Infinity", holding("Infinity")),
        ("J5 Infinity", holding("-Infinity")),
        ("J7 extra", b'{"content":"x","role":"system"}'),
        ("J7 extra", b'{"content":"x","user_id":"bob"}'),
        ("broken", b'{"content":"x"'),
        ("two values", GOOD + GOOD),
        ("trailing comma", b'{"content":"x",}'),
        ("comment", b'{"content":"x"}/**/'),
        ("single quotes", b"{'content':'x'}"),
        ("byte order mark", b"\xef\xbb\xbf" + GOOD),
        ("U1 high", b'{"content":"\\ud800"}'),
        ("U1 low", b'{"content":"\\uDC00 x"}'),
        ("U1 wrong way round", b'{"content":"\\udc00\\ud800"}'),
        ("U1 in a key", holding('{"\\ud83d":1}')),
        ("U2 NUL", b'{"content":"a\\u0000"}'),
        ("U2 NUL after a backslash", b'{"content":"\\\\\\u0000"}'),
        ("U2 NUL in a key", holding('{"\\u0000":1}')),
        ("U2 raw NUL", b'{"content":"\x00"}'),
        ("raw newline", b'{"content":"a\nb"}'),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_json_that_cannot_be_kept_is_422_and_nothing_runs(row: str, body: bytes) -> None:
    path = "/chats/c/interactions" if len(body) < MAX_BYTES else "/anything"
    response, ran = await send(body, path=path)
    assert (response.status_code, response.json()["code"], ran) == (422, "invalid_input", [])
    assert response.json()["errors"][0].keys() == {"loc", "msg", "type"}
    assert response.json()["errors"][0]["loc"][0] == "body"


@pytest.mark.parametrize(
    "body", [b'{"content":"\xff"}', b"\xff", '{"content":"x"}'.encode("utf-16"), b'"\xed\xa0\x80"']
)
async def test_j11_what_is_not_utf_8_is_400(body: bytes) -> None:
    response, ran = await send(body)
    assert (response.status_code, response.json()["code"], ran) == (400, "malformed_request", [])


@pytest.mark.parametrize(
    ("row", "body", "value"),
    [
        ("J4 at the limit", b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
        ("J4 wide, not deep", b"[" + b"[]," * 200 + b"[]]", None),
        ("J4 brackets in text", json.dumps("[{" * 500).encode(), "[{" * 500),
        ("J5 64 bits", str(2**64 - 1).encode(), 2**64 - 1),
        ("J5 64 bits", str(-(2**63)).encode(), -(2**63)),
        ("J5 many digits", b"0.1234567890123456789012345", 0.1234567890123456789012345),
        ("J5 digits in text", b'"' + b"1" * 5000 + b'"', "1" * 5000),
        ("J12", b'{"__proto__":{"$ref":"x"},"lc":1}', {"__proto__": {"$ref": "x"}, "lc": 1}),
        ("U1 a pair", b'"\\ud83d\\ude00"', "😀"),
        ("U2 only its spelling", b'"\\\\u0000"', "\\u0000"),
        ("NaN in text", b'"NaN Infinity"', "NaN Infinity"),
        ("blanks around", b" \n[1]\t\r\n", [1]),
        ("nothing", b"", {}),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_odd_but_sound_json_is_read(row: str, body: bytes, value: Any) -> None:
    response, _ = await send(body, path="/anything")
    assert response.status_code == 200
    assert value is None or response.json()["value"] == value


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner
            )
        ),
        max_leaves=30,
    ),
    st.booleans(),
)
def test_every_sound_value_is_read_as_it_is(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert asyncio.run(read(body)) == value


async def test_optional_body_may_be_absent_but_not_of_another_kind() -> None:
    assert (await send(b"", None, "/anything"))[0].json() == {"value": {}}
    assert (await send(b"", "text/plain", "/anything"))[0].json() == {"value": {}}
    assert (await send(b"{}", None, "/anything"))[0].status_code == 415


@pytest.mark.parametrize(("size", "status"), [(-1, 200), (0, 200), (1, 413), (100_000, 413)])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "Z1 counted"])
async def test_body_up_to_its_limit_is_read(size: int, status: int, chunked: bool) -> None:
    frame = len(b'{"content":""}')
    body = b'{"content":"%b"}' % (b"x" * (MAX_BYTES + size - frame))

    async def parts() -> Any:
        for start in range(0, len(body), 700):
            yield body[start : start + 700]

    async with inside(toy_app()) as client:
        response = await client.post(
            "/chats/c/interactions",
            content=parts() if chunked else body,
            headers={"Content-Type": JSON},
        )
    assert response.status_code == status


@pytest.mark.parametrize(("depth", "status"), [(-1, 200), (0, 200), (1, 422), (100, 422)])
async def test_depth_up_to_its_limit_is_read(depth: int, status: int) -> None:
    assert (await send(deep(MAX_DEPTH + depth)))[0].status_code == status


@pytest.mark.parametrize(
    ("count", "status"),
    [(MAX_VALUES - 1, 200), (MAX_VALUES, 200), (MAX_VALUES + 1, 422), (MAX_MARKS + 2, 422)],
)
@pytest.mark.parametrize("member", ["1", "[]"])
async def test_values_up_to_their_limit_are_read(count: int, status: int, member: str) -> None:
    body = "[" + ",".join([member] * count) + "]"
    assert (await send(body.encode(), path="/anything"))[0].status_code == status


async def test_long_text_full_of_marks_is_no_long_list() -> None:
    body = json.dumps("[," * (MAX_VALUES + 1)).encode()
    assert (await send(body, path="/anything"))[0].status_code == 200


@pytest.mark.parametrize("mark", [",", "[", "{"])
@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 422)])
async def test_marks_are_counted_before_anything_is_built_of_them(
    mark: str, more: int, status: int
) -> None:
    body = json.dumps(mark * (MAX_MARKS + more)).encode()
    assert (await send(body, path="/anything"))[0].status_code == status


async def test_error_repeats_nothing_of_the_input() -> None:
    body = json.dumps({"content": [CANARY], "data": 1, f"{CANARY} <b>": CANARY}).encode()
    response, _ = await send(body)
    assert CANARY not in response.text
    assert [error["loc"] for error in response.json()["errors"]] == [
        ["body", "content"],
        ["body", "?"],
    ]


async def test_error_names_a_key_that_looks_like_one() -> None:
    response, _ = await send(b'{"content":"x","contnet":1}')
    assert response.json()["errors"][0]["loc"] == ["body", "contnet"]


async def test_many_errors_are_told_in_part() -> None:
    body = json.dumps({"content": "x", "items": ["x"] * 300}).encode()
    response, _ = await send(body)
    assert len(response.json()["errors"]) == MAX_ERRORS


def arriving(messages: Iterable[Received]) -> Receive:
    """What a server hands over, then silence."""
    waiting = iter(messages)

    async def receive() -> Received:
        for message in waiting:
            return message
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return receive


def part(body: bytes, more: bool = True) -> Received:
    return {"type": "http.request", "body": body, "more_body": more}


async def read(
    *bodies: bytes, receive: Receive | None = None, length: int | None = None, **options: Any
) -> Any:
    headers = [(b"content-type", b"application/json")]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    parts = [part(body, number < len(bodies) - 1) for number, body in enumerate(bodies)]
    return await read_json({"headers": headers}, receive or arriving(parts), ANYTHING, **options)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [part(b"")],
        [part(b'{"a":')],
        [part(b'{"a":'), part(b"1}")],
    ],
    ids=["nothing at all", "nothing", "a part", "all but the end"],
)
async def test_h6_body_that_stops_coming_is_given_up(messages: list[Received]) -> None:
    with pytest.raises(SlowRequest):
        await read(receive=arriving(messages), timeout=0.01)


async def test_body_that_comes_later_is_read() -> None:
    answers: asyncio.Queue[Received] = asyncio.Queue()
    reading = asyncio.create_task(read(receive=answers.get))
    for message in (part(b"[1,"), part(b"2"), part(b"]", False)):
        await asyncio.sleep(0)
        answers.put_nowait(message)
    async with asyncio.timeout(seconds(5)):
        assert await reading == [1, 2]


async def test_reader_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    answers: asyncio.Queue[Received] = asyncio.Queue()
    reading = asyncio.create_task(read(receive=answers.get))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    answers.put_nowait(part(b"1", False))
    assert (await answers.get())["body"] == b"1"


@pytest.mark.parametrize("before", [[], [part(b"[1")]])
async def test_connection_that_breaks_off_is_no_request(before: list[Received]) -> None:
    with pytest.raises(MalformedRequest):
        await read(receive=arriving([*before, {"type": "http.disconnect"}]))


@pytest.mark.parametrize(
    ("length", "error"),
    [(3, MalformedRequest), (1, MalformedRequest), (10**30, TooLarge), (1024 * 1024 + 1, TooLarge)],
)
async def test_length_that_is_not_the_bodys_is_refused(length: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        await read(b"[]", length=length)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), (b"content-length", b"2")],
        [(b"content-length", b"+2")],
        [(b"content-length", b"\xc2\xb2")],
    ],
)
async def test_length_that_is_no_number_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(MalformedRequest):
        await read_json({"headers": headers}, arriving([part(b"[]", False)]), ANYTHING)


async def test_refusal_comes_before_a_byte_is_read() -> None:
    with pytest.raises(TooLarge):
        await read(receive=arriving([]), length=11, max_bytes=10)
    headers = [(b"content-length", b"2"), (b"content-type", b"text/plain")]
    with pytest.raises(UnsupportedMedia):
        await read_json({"headers": headers}, arriving([]), ANYTHING)


async def test_two_content_types_are_none() -> None:
    headers = [(b"content-type", b"application/json"), (b"content-type", b"application/json")]
    with pytest.raises(UnsupportedMedia):
        await read_json({"headers": headers}, arriving([part(b"[]", False)]), ANYTHING)


async def test_reader_of_json_decides_and_not_the_one_of_python() -> None:
    class Strict(BaseModel, strict=True):
        pair: tuple[int, int]

    adapter = TypeAdapter(Strict)
    headers = [(b"content-type", b"application/json")]
    receive = arriving([part(b'{"pair":[1,2]}', False)])
    assert (await read_json({"headers": headers}, receive, adapter)).pair == (1, 2)
    with pytest.raises(RequestValidationError):
        await read_json({"headers": headers}, arriving([part(b'{"pair":1}', False)]), adapter)
