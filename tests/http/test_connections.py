"""Bytes that are no request, connections that want too much: against a real server."""

import asyncio
import json
import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from websockets.asyncio.client import connect

from sk_agents.http.connections import OTHER_FILES, ConnectionLimits, affordable_connections
from sk_agents.http.limits import StreamSlots
from tests.http.toy import (
    MAX_BYTES,
    Wire,
    eventually,
    post,
    request,
    serving,
    status,
    toy_app,
)

LIMITS = ConnectionLimits(
    connections=40, headers=20, head_bytes=4000, head_seconds=0.3, pipelined=3, pipelined_bytes=500
)
# Longer than a busy machine takes from one request to the next.
REST = 2.0
GOOD = b'{"content":"hello"}'
CHUNKED = "Transfer-Encoding: chunked"


class Edge:
    """A server, its application and the usual way to ask it whether it is well."""

    def __init__(self, port: int, app: FastAPI) -> None:
        self.port = port
        self.app = app

    def ask(self, data: bytes) -> bytes:
        """All that is answered until the connection is closed."""
        with Wire(self.port) as wire:
            return wire.send(data).rest()

    def serves(self) -> bool:
        with Wire(self.port) as wire:
            answer = wire.send(post(GOOD, "Connection: close")).rest()
        return status(answer) == 200


@pytest.fixture(scope="module")
def server() -> Iterator[Edge]:
    app = toy_app(body_seconds=0.3)
    with serving(app, LIMITS) as port:
        yield Edge(port, app)


@pytest.fixture
def edge(server: Edge) -> Edge:
    server.app.state.ran.clear()
    return server


def chunks(*parts: bytes, trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return framed + b"0\r\n" + trailer + b"\r\n"


def chunked(*headers: str, body: bytes) -> bytes:
    return post(b"", CHUNKED, *headers) + body


SMUGGLED = post(b'{"content":"smuggled"}')


@pytest.mark.parametrize(
    ("row", "data"),
    [
        ("H4 length first", chunked("Content-Length: 5", body=b"0\r\n\r\n" + SMUGGLED)),
        ("H4 chunked first", post(GOOD, CHUNKED)),
        ("H4 not chunked at all", chunked("Transfer-Encoding: identity", body=SMUGGLED)),
        ("H4 no such encoding", post(b"", "Transfer-Encoding: xchunked") + SMUGGLED),
        ("H5 two lengths", post(GOOD, "Content-Length: 3") + SMUGGLED),
        ("H5 the same twice", post(GOOD, f"Content-Length: {len(GOOD)}") + SMUGGLED),
        ("H5 list", post(b"", "Content-Length: 5, 5") + SMUGGLED),
        ("H5 sign", post(b"", "Content-Length: +5") + SMUGGLED),
        ("H10 NUL", post(GOOD, "X: a\0b")),
        ("H10 CR", post(GOOD, "X: a\rb")),
        ("H10 LF", post(GOOD, "X: a\nY: b")),
        ("H10 folded", post(GOOD, "X: a\r\n b")),
        ("H10 blank before the colon", post(GOOD, "X : a")),
        ("H10 no name", post(GOOD, ": a")),
        ("H13 other host", request("GET", "http://evil.example/chats/c")),
        ("H13 no path", request("GET", "http://localhost")),
        ("H13 user in target", request("GET", "http://localhost@evil.example/chats/c")),
        ("CONNECT", request("CONNECT", "evil.example:80")),
        ("bytes in the path", request("GET", "/chats/\xff")),
        ("TLS", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("bad chunk", chunked(body=b"zz\r\n")),
        ("negative chunk", chunked(body=b"-5\r\n")),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_is_no_request_is_400_and_closes(edge: Edge, row: str, data: bytes) -> None:
    answer = edge.ask(data)
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"application/problem+json" in answer
    assert edge.app.state.ran == []


def answer_body(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def test_h13_whole_url_that_names_our_host_is_served(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        answer = wire.send(request("GET", "http://localhost/chats/c")).until(b"}")
    assert status(answer) == 200


def test_h13_forwarded_headers_are_not_believed(edge: Edge) -> None:
    forged = ["X-Forwarded-Host: evil.example", "Forwarded: host=evil.example"]
    with Wire(edge.port) as wire:
        answer = wire.send(request("GET", "/chats/c", *forged)).until(b"}")
    assert status(answer) == 200
    with Wire(edge.port) as wire:
        forged = ["X-Forwarded-Host: localhost"]
        answer = wire.send(request("GET", "/chats/c", *forged, host="evil.example")).until(b"}")
    assert status(answer) == 400


def test_h18_method_cannot_be_overridden(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        answer = wire.send(request("GET", "/chats/c", "X-HTTP-Method-Override: DELETE")).until(b"}")
    assert status(answer) == 200


def headers(count: int) -> bytes:
    """As many as that in all."""
    extra = (f"X-{number}: y" for number in range(count - 2))
    return request("GET", "/chats/c", "Connection: close", *extra)


def sized(size: int) -> bytes:
    """A head of so many bytes, as they are counted: target, names and values."""
    frame = len("/chats/c" + "Host" + "localhost" + "Connection" + "close" + "X")
    return request("GET", "/chats/c", "Connection: close", "X: " + "y" * (size - frame))


@pytest.mark.parametrize(
    ("row", "data", "expected"),
    [
        ("H9 headers L-1", headers(LIMITS.headers - 1), 200),
        ("H9 headers L", headers(LIMITS.headers), 200),
        ("H9 headers L+1", headers(LIMITS.headers + 1), 431),
        ("H9 headers 100 L", headers(LIMITS.headers * 100), 431),
        ("H9 bytes L-1", sized(LIMITS.head_bytes - 1), 200),
        ("H9 bytes L", sized(LIMITS.head_bytes), 200),
        ("H9 bytes L+1", sized(LIMITS.head_bytes + 1), 431),
        ("H9 1 MB", sized(1024 * 1024), 431),
        ("H9 long target", request("GET", "/chats/" + "c" * LIMITS.head_bytes), 431),
        ("H9 1 MB without an end", request("GET", "/")[:-4] + b"\r\nX: " + b"y" * 2**20, 431),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_head_up_to_its_limit_is_read(edge: Edge, row: str, data: bytes, expected: int) -> None:
    answer = edge.ask(data)
    assert status(answer) == expected
    assert edge.serves()


def test_what_follows_a_chunked_body_is_no_header(edge: Edge) -> None:
    body = chunks(b"abc", trailer=b"Host: evil.example\r\nAuthorization: Bearer x\r\n")
    with Wire(edge.port) as wire:
        wire.send(request("POST", "/seen", CHUNKED) + body)
        seen = answer_body(wire.until(b"}"))
    assert [name for name, _ in seen["headers"]] == ["host", "transfer-encoding"]
    assert seen["body"] == "abc"


@pytest.mark.parametrize(
    ("row", "tail"),
    [
        ("one field", b"0\r\nX: " + b"y" * 2**20),
        ("many fields", b"0\r\n" + b"X: y\r\n" * 50_000),
        ("an extension", b"3;" + b"y" * 2**20),
    ],
)
def test_endless_frame_of_a_chunked_body_is_cut(edge: Edge, row: str, tail: bytes) -> None:
    assert status(edge.ask(chunked(body=tail))) in (400, 431)
    assert edge.app.state.ran == []


@pytest.mark.parametrize(
    ("row", "sent"),
    [
        ("H20 nothing", b""),
        ("H20 half a head", b"GET / HTTP/1.1\r\nHost: localh"),
        ("H20 only blank lines", b"\r\n\r\n"),
    ],
)
def test_connection_without_a_request_is_closed(edge: Edge, row: str, sent: bytes) -> None:
    assert edge.ask(sent) == b""


def test_connection_is_closed_when_its_next_head_does_not_end(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        assert status(wire.send(post(GOOD)).until(b"}")) == 200
        assert wire.send(b"GET / HTTP/1.1\r\n").rest() == b""


def test_connection_that_waits_too_long_for_its_next_request_is_closed() -> None:
    with serving(toy_app(), rest_seconds=REST) as port, Wire(port) as wire:
        for _ in range(3):
            assert status(wire.send(post(GOOD)).until(b"}")) == 200
        assert wire.rest() == b""


def test_next_request_is_not_cut_off_however_long_it_takes() -> None:
    with serving(toy_app(body_seconds=2 * REST), rest_seconds=REST) as port, Wire(port) as wire:
        assert status(wire.send(post(GOOD)).until(b"}")) == 200
        assert status(wire.send(post(GOOD)[:-5]).rest()) == 408
    with serving(toy_app(), rest_seconds=REST) as port, Wire(port) as wire:
        assert status(wire.send(post(GOOD)).until(b"}")) == 200
        wire.send(post(GOOD)[:10])
        with Wire(port) as other:
            # Closed after its rest, so the first one's is over by now.
            assert status(other.send(post(GOOD)).until(b"}")) == 200
            assert other.rest() == b""
        assert status(wire.send(post(GOOD)[10:]).until(b"}")) == 200


@pytest.mark.parametrize(
    ("row", "data"),
    [
        ("H6 chunked", chunked(body=b"1\r\n{\r\n")),
        ("H6 announced", post(GOOD)[:-5]),
        ("H6 nothing of it", post(GOOD)[: -len(GOOD)]),
    ],
)
def test_body_that_stops_coming_is_408_and_closes(edge: Edge, row: str, data: bytes) -> None:
    answer = edge.ask(data)
    assert (status(answer), answer_body(answer)["code"]) == (408, "slow_request")
    assert b"connection: close\r\n" in answer
    assert edge.app.state.ran == []


def test_z1_announced_body_is_refused_before_it_is_sent(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        wire.send(post(b"", "Content-Length: 10000000000"))
        assert status(wire.until(b"}")) == 413


def test_z1_body_that_goes_on_after_its_refusal_is_not_kept(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        wire.send(post(b"", "Content-Length: 10000000000"))
        assert status(wire.until(b"}")) == 413
        with pytest.raises(OSError):
            for _ in range(100_000):
                wire.send(b"x" * 65536)
    assert edge.serves()


def test_z1_counted_body_is_refused_at_the_limit(edge: Edge) -> None:
    piece = b"%x\r\n%b\r\n" % (MAX_BYTES, b" " * MAX_BYTES)
    with Wire(edge.port) as wire:
        wire.send(chunked(body=piece))
        wire.send(piece)
        assert status(wire.until(b"}")) == 413


def test_h17_old_protocol_is_answered_and_closed(edge: Edge) -> None:
    answer = edge.ask(post(GOOD).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (status(answer), answer_body(answer)) == (200, {"content": "hello"})


def test_h17_stream_for_an_old_client_is_sent_plain_until_it_closes(edge: Edge) -> None:
    """Chunks came with HTTP/1.1: an older client would take their sizes for text."""
    asked = request("GET", "/stream?user=alice").replace(b"HTTP/1.1", b"HTTP/1.0")
    with Wire(edge.port) as wire:
        answer = wire.send(asked).until(b": keepalive\n\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.startswith(b"event: hello\ndata: {}\n\n: keepalive\n\n")


@pytest.mark.parametrize(
    ("asked", "expected"), [("Accept: */*", [b"keep-alive"]), ("Connection: close", [b"close"])]
)
def test_a_stream_says_one_thing_of_its_connection(
    edge: Edge, asked: str, expected: list[bytes]
) -> None:
    with Wire(edge.port) as wire:
        answer = wire.send(request("GET", "/stream?user=alice", asked)).until(b"\r\n\r\n")
    assert re.findall(rb"\r\nconnection: (\S+)", answer) == expected


def test_h17_requests_sent_ahead_are_answered_in_order(edge: Edge) -> None:
    sent = [b'{"content":"%d"}' % number for number in range(LIMITS.pipelined + 1)]
    data = b"".join(map(post, sent))
    with Wire(edge.port) as wire:
        answer = wire.send(data).until(b'"%d"}' % LIMITS.pipelined)
    assert answer.count(b"HTTP/1.1 200") == len(sent)
    assert [said for _, said in edge.app.state.ran] == [str(n) for n in range(len(sent))]


@pytest.mark.parametrize(
    ("row", "data"),
    [
        ("H17 too many", post(GOOD) * 50),
        ("H17 too much", post(GOOD) + post(b" " * (LIMITS.pipelined_bytes + 1) + GOOD)),
    ],
)
def test_too_much_sent_ahead_closes(edge: Edge, row: str, data: bytes) -> None:
    with Wire(edge.port) as wire:
        wire.send(request("GET", "/stream?user=a")).until(b"hello")
        wire.send(data)
        assert b"HTTP/1.1" not in wire.rest()
    assert edge.app.state.ran == []
    assert edge.serves()


def test_garbage_after_a_request_does_not_spoil_its_answer(edge: Edge) -> None:
    answer = edge.ask(post(GOOD) + b"\x00\x01garbage\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert (status(answer), answer_body(answer)) == (200, {"content": "hello"})


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA")
OFFERS = {
    "length": post(GOOD, *H2C),
    "chunked": chunked(*H2C, body=chunks(GOOD[:7], GOOD[7:])),
    "no body": request("GET", "/chats/c", *H2C),
    "a protocol nobody knows": post(GOOD, "Connection: upgrade", "Upgrade: mystery"),
}


@pytest.mark.parametrize("sent", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("piece", [1, 150, 10_000])
def test_an_offer_of_another_protocol_is_answered_as_if_there_were_none(
    edge: Edge, sent: bytes, piece: int
) -> None:
    with Wire(edge.port) as wire:
        for start in range(0, len(sent), piece):
            wire.send(sent[start : start + piece])
        assert status(wire.until(b"}")) == 200
        # The connection goes on, and knows where the request ended.
        wire.send(post(b'{"content":"next"}'))
        assert status(wire.until(b"}")) == 200
    said = [content for _, content in edge.app.state.ran]
    assert said[-1] == "next" and said[:-1] in ([], ["hello"])


def test_a_body_behind_an_offer_of_another_protocol_is_bounded_like_any_other(edge: Edge) -> None:
    too_large = b'{"content":"%b"}' % (b"x" * MAX_BYTES)
    with Wire(edge.port) as wire:
        assert status(wire.send(post(too_large, *H2C)).until(b"}")) == 413
    with Wire(edge.port) as wire:
        assert status(wire.send(post(b"", *H2C, "Content-Length: 9") + b"{").until(b"}")) == 408


def test_the_answer_to_what_is_no_request_is_not_to_be_kept_nor_guessed_at(edge: Edge) -> None:
    answer = edge.ask(b"nonsense\r\n\r\n")
    assert b"\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n" in answer


def test_a_client_that_has_ended_its_side_gets_its_answer(edge: Edge) -> None:
    edge.app.state.may_answer.clear()
    with Wire(edge.port) as wire:
        wire.send(post(GOOD, target="/late")).socket.shutdown(socket.SHUT_WR)
        # Written to find out whether the client has left: so the server knows that it has ended.
        wire.until(b"HTTP/1.1 100 Continue\r\n\r\n")
        edge.app.state.may_answer.set()
        answer = wire.rest()
    assert b"HTTP/1.1 200" in answer
    assert answer.endswith(b'{"content":"late"}')


def test_a_client_that_has_ended_its_side_gets_the_answers_to_all_it_sent_ahead(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        wire.send(post(GOOD) * 3 + post(GOOD)[:-3]).socket.shutdown(socket.SHUT_WR)
        answer = wire.rest()
    assert answer.count(b"HTTP/1.1 200") == 3
    assert edge.app.state.ran == [("c", "hello")] * 3


def test_a_client_that_has_ended_its_side_goes_on_reading_its_stream() -> None:
    slots = StreamSlots()
    with serving(toy_app(slots=slots)) as port, Wire(port) as wire:
        wire.send(request("GET", "/stream?user=alice")).socket.shutdown(socket.SHUT_WR)
        wire.until(b"hello")
        # The comments that look for clients who have left.
        wire.until(b": keepalive")
        wire.until(b": keepalive")
        assert slots.by_user == {"alice": 1}


def test_a_request_without_its_rest_ends_with_its_connection(edge: Edge) -> None:
    with Wire(edge.port) as wire:
        wire.send(post(GOOD)[:-3]).socket.shutdown(socket.SHUT_WR)
        assert wire.rest() == b""
    assert edge.app.state.ran == []


def test_a_request_that_has_not_come_whole_is_refused_when_the_server_ends() -> None:
    app = toy_app()
    with ExitStack() as stack:
        with serving(app) as port:
            wire = stack.enter_context(Wire(port))
            wire.send(post(GOOD)[:-3])
            # What was sent before is read before.
            assert Edge(port, app).serves()
        answer = wire.rest()
        assert status(answer) == 503
        # As what comes a moment later is: it tells a client to try again elsewhere.
        assert b'"code": "shutting_down"' in answer
    assert app.state.ran == [("c", "hello")]


@pytest.mark.parametrize("ahead", [b"", post(GOOD)], ids=["alone", "with a request sent ahead"])
def test_a_stream_whose_client_leaves_is_let_go(ahead: bytes) -> None:
    slots = StreamSlots()
    with serving(toy_app(slots=slots)) as port:
        with Wire(port) as wire:
            wire.send(request("GET", "/stream?user=alice")).until(b"hello")
            wire.send(ahead)
            assert slots.by_user == {"alice": 1}
        eventually(lambda: not slots.by_user)


def test_h20_idle_connections_make_room_for_a_good_client() -> None:
    limits = ConnectionLimits(connections=5, head_seconds=600)
    with ExitStack() as stack:
        edge = Edge(stack.enter_context(serving(toy_app(), limits)), toy_app())
        idle = [stack.enter_context(Wire(edge.port)) for _ in range(20)]
        assert edge.serves()
        assert idle[0].rest() == b""


@pytest.mark.parametrize(("more", "expected"), [(-1, 200), (0, 200), (1, 503)])
def test_h20_connections_up_to_their_limit_are_served(more: int, expected: int) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(toy_app(), ConnectionLimits(connections=5)))
        for _ in range(5 + more - 1):
            wire = stack.enter_context(Wire(port))
            wire.send(request("GET", "/stream?user=a")).until(b"hello")
        last = stack.enter_context(Wire(port))
        assert status(last.send(post(GOOD)).until(b"}")) == expected


def test_h20_place_of_a_closed_connection_is_free_again() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(toy_app(), ConnectionLimits(connections=1)))
        with Wire(port) as held:
            held.send(request("GET", "/stream?user=a")).until(b"hello")

        def served() -> bool:
            return httpx.get(f"http://127.0.0.1:{port}/chats/c").status_code == 200

        eventually(served)


def test_h20_connection_that_waits_for_its_next_request_makes_room() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(toy_app(), ConnectionLimits(connections=1)))
        first = stack.enter_context(Wire(port))
        assert status(first.send(post(GOOD)).until(b"}")) == 200
        with Wire(port) as second:
            assert status(second.send(post(GOOD)).until(b"}")) == 200
        assert first.rest() == b""


async def test_websocket_outlives_the_time_for_a_head(edge: Edge) -> None:
    async with connect(f"ws://localhost:{edge.port}/echo") as socket:
        with Wire(edge.port) as idle:
            # Closed after that time, and it came later.
            assert await asyncio.to_thread(idle.rest) == b""
        await socket.send("still there")
        assert await socket.recv() == "still there"


async def test_websocket_outlives_the_rest_of_the_request_before_it() -> None:
    with serving(toy_app(), rest_seconds=REST) as port, Wire(port) as wire, Wire(port) as other:
        assert status(wire.send(post(GOOD)).until(b"}")) == 200
        async with connect(f"ws://localhost:{port}/echo", sock=wire.socket) as socket:
            assert status(other.send(post(GOOD)).until(b"}")) == 200
            assert await asyncio.to_thread(other.rest) == b""
            await socket.send("still there")
            assert await socket.recv() == "still there"


def test_connections_are_no_more_than_the_files_a_process_may_open() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert affordable_connections(10) == 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (OTHER_FILES + 50, before[1]))
        assert affordable_connections(50) == 50
        assert affordable_connections(51) == 51
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == OTHER_FILES + 51
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY:
            assert affordable_connections(hard) == hard - OTHER_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
