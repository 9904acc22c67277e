"""Connections: kept, lost, limited, timed, cut."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from sk_agents.exceptions import ConfigurationError, ModelUnavailable
from sk_agents.llm.http_client import Pool, Timeouts, request_target
from tests.llm.loopback import until
from tests.llm.raw_http import (
    CHUNKED,
    OK,
    Answers,
    asked,
    http,
    request_from,
    rest_of,
    sent,
    served,
)
from tests.missing import lacks
from tests.patience import seconds


class Silent:
    """A handler that takes requests and never answers; `left` is set when the client is gone."""

    def __init__(self, *first: bytes) -> None:
        self._first = first
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        self.asked.set()
        for piece in self._first:
            writer.write(piece)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.left.set()


async def test_request_arrives_as_it_was_meant() -> None:
    server = Answers([OK])
    async with served(server) as url, http() as client:
        to = request_target("POST", f"{url}/a b/é?", {"X-Key": "1"})
        response = await client.send(to, b"body", Timeouts())
        assert await rest_of(response) == b"ok"
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert (line, body) == (b"POST /a%20b/%C3%A9 HTTP/1.1", b"body")
    assert f"Host: {url.removeprefix('http://')}".encode() in headers
    assert b"X-Key: 1" in headers
    assert b"Content-Length: 4" in headers


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b", "é", "\x7f"])
def test_header_that_would_break_out_of_its_line_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="X-Key"):
        request_target("POST", "http://127.0.0.1:1/v1", {"X-Key": value})


def test_secret_is_in_no_text_form_of_a_target() -> None:
    to = request_target("POST", "http://127.0.0.1:1/v1", {"Authorization": "Bearer sk-secret"})
    assert "sk-secret" not in repr(to)


@pytest.mark.parametrize(
    ("url", "origin", "host"),
    [
        ("http://h/v1", ("http", "h", 80), b"Host: h\r\n"),
        ("https://h/v1", ("https", "h", 443), b"Host: h\r\n"),
        ("https://h:444", ("https", "h", 444), b"Host: h:444\r\n"),
        ("http://[::1]:8/v1", ("http", "::1", 8), b"Host: [::1]:8\r\n"),
    ],
)
def test_address_is_understood(url: str, origin: tuple[str, str, int], host: bytes) -> None:
    to = request_target("GET", url, {})
    assert to.origin[:3] == origin
    assert host in to.head


async def test_server_on_ipv6_is_reached() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        lacks("ipv6", "this machine has no IPv6")
    async with served(Answers([OK]), host="::1") as url, http() as client:
        assert await asked(client, url) == (200, b"ok")


async def test_address_that_does_not_answer_is_passed_over() -> None:
    """`localhost` may stand for an address of IPv6 on which nobody listens."""
    async with served(Answers([OK])) as url, http() as client:
        named = url.replace("127.0.0.1", "localhost")
        assert await asked(client, named) == (200, b"ok")


async def test_name_that_no_host_can_have_is_an_error() -> None:
    async with http() as client:
        with pytest.raises(OSError, match="name"):
            await sent(client, f"http://{'a' * 70}.invalid")


async def test_requests_at_once_have_connections_of_their_own_and_later_ones_share() -> None:
    server = Answers(*([OK] for _ in range(6)))
    async with served(server) as url, http() as client:
        for _ in range(2):
            assert (
                await asyncio.gather(*(asked(client, url) for _ in range(3))) == [(200, b"ok")] * 3
            )
            assert client.resting == 3
    assert server.connections == 3


async def test_connection_that_its_server_closes_at_rest_is_forgotten() -> None:
    server = Answers([OK])
    async with served(server) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        await until(lambda: client.resting == 0)


async def test_connection_that_dies_under_the_next_request_is_replaced_unnoticed() -> None:
    requests = 0

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await request_from(reader)
        requests += 1
        writer.write(OK)
        # The next one on this connection is taken and never answered.
        await request_from(reader)
        requests += 1

    async with served(answer_one) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        assert await asked(client, url) == (200, b"ok")
    assert requests == 3


async def test_fresh_connection_that_dies_is_not_tried_again() -> None:
    requests = 0

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await request_from(reader)
        requests += 1

    async with served(close) as url, http() as client:
        with pytest.raises(ConnectionResetError):
            await sent(client, url)
    assert requests == 1


async def test_response_that_breaks_off_on_a_used_connection_is_not_asked_for_again() -> None:
    server = Answers([OK], [b"HTTP/1.1 200"])
    async with served(server) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        with pytest.raises(ConnectionResetError):
            await sent(client, url)
    assert len(server.requests) == 2


async def test_words_nobody_asked_for_end_a_resting_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        writer.write(OK)
        await writer.drain()
        await reached.wait()
        writer.write(OK)
        await reader.read()

    reached = asyncio.Event()
    async with served(talk) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        assert client.resting == 1
        reached.set()
        await until(lambda: client.resting == 0)


async def test_unused_connection_is_closed_after_its_time() -> None:
    server = Answers([OK], [OK])
    async with served(server) as url, http(Pool(keepalive=0.05)) as client:
        assert await asked(client, url) == (200, b"ok")
        assert client.resting == 1
        await until(lambda: client.resting == 0)
        assert await asked(client, url) == (200, b"ok")
    assert server.connections == 2


async def test_response_whose_farewell_is_late_gives_its_connection_back() -> None:
    gate = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await gate.wait()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with served(answer) as url, http() as client:
        response = await sent(client, url)
        assert await response.read() == b"abc"
        response.release(is_done=True)
        assert client.resting == 0
        gate.set()
        await until(lambda: client.resting == 1)


async def test_response_whose_farewell_never_comes_loses_its_connection() -> None:
    server = Silent(CHUNKED + b"3\r\nabc\r\n")
    async with served(server) as url, http() as client:
        response = await sent(client, url)
        assert await response.read() == b"abc"
        response.release(is_done=True)
        async with asyncio.timeout(seconds(5)):
            await server.left.wait()
        assert client.resting == 0


@pytest.mark.parametrize("first", [[], [CHUNKED], [CHUNKED + b"3\r\nabc\r\n"]])
async def test_silence_is_a_timeout_and_closes_the_connection(first: list[bytes]) -> None:
    server = Silent(*first)
    async with served(server) as url, http() as client:
        with pytest.raises(TimeoutError):
            await rest_of(await sent(client, url, timeouts=Timeouts(idle=0.05)))
        async with asyncio.timeout(seconds(5)):
            await server.left.wait()


async def test_trickle_without_end_is_a_timeout_in_all() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        writer.write(CHUNKED)
        while True:
            writer.write(b"1\r\na\r\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with served(trickle) as url, http() as client:
        response = await sent(client, url, timeouts=Timeouts(idle=5, total=0.1))
        with pytest.raises(TimeoutError):
            await rest_of(response)


async def test_time_a_reader_takes_is_not_held_against_the_server() -> None:
    gate = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        writer.write(CHUNKED + b"1\r\na\r\n")
        await gate.wait()
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    loop = asyncio.get_running_loop()
    async with served(answer) as url, http() as client:
        response = await sent(client, url, timeouts=Timeouts(idle=0.05))
        assert await response.read() == b"a"
        since = loop.time()
        await until(lambda: loop.time() > since + 0.15)
        gate.set()
        assert await rest_of(response) == b"b"


@pytest.mark.parametrize("first", [[], [CHUNKED]])
async def test_cancelled_request_closes_its_connection(first: list[bytes]) -> None:
    server = Silent(*first)
    async with served(server) as url, http(Pool(connections=1)) as client:
        task = asyncio.create_task(asked(client, url))
        async with asyncio.timeout(seconds(5)):
            await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left.wait()
        # The place it had taken is free again.
        with pytest.raises(TimeoutError):
            await rest_of(await sent(client, url, timeouts=Timeouts(idle=0.05)))


async def test_request_beyond_the_limit_waits_for_its_turn() -> None:
    server = Answers([OK], [OK])
    async with served(server) as url, http(Pool(connections=1)) as client:
        first = await sent(client, url)
        second = asyncio.create_task(asked(client, url))
        await asyncio.sleep(0)
        assert len(server.requests) == 1
        assert await rest_of(first) == b"ok"
        assert await second == (200, b"ok")
    assert server.connections == 1


@pytest.mark.parametrize("has_its_turn", [False, True])
async def test_request_that_is_cancelled_at_its_turn_leaves_it_to_the_next(
    has_its_turn: bool,
) -> None:
    server = Answers([OK], [OK])
    async with served(server) as url, http(Pool(connections=1)) as client:
        first = await sent(client, url)
        second, third = (asyncio.create_task(asked(client, url)) for _ in range(2))
        await asyncio.sleep(0)
        if not has_its_turn:
            second.cancel()
        assert await rest_of(first) == b"ok"
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        async with asyncio.timeout(seconds(5)):
            assert await third == (200, b"ok")


async def test_request_that_waits_for_its_turn_too_long_is_a_timeout() -> None:
    server = Silent(CHUNKED)
    async with served(server) as url, http(Pool(connections=1)) as client:
        first = await sent(client, url)
        with pytest.raises(TimeoutError):
            await sent(client, url, timeouts=Timeouts(total=0.05))
        first.release(is_done=False)


async def test_closing_cuts_what_is_in_use_and_refuses_what_comes_later() -> None:
    server = Silent(CHUNKED)
    async with served(server) as url, http() as client:
        response = await sent(client, url)
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(OSError, match="closed"):
            await reading
        with pytest.raises(ModelUnavailable, match="closed"):
            await sent(client, url)


async def test_early_refusal_of_a_large_body_is_read() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await asyncio.sleep(5)

    async with served(refuse) as url, http() as client:
        response = await sent(client, url, body=b"x" * (16 << 20))
        assert response.status == 413
        assert await rest_of(response) == b"no"


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_refused_connection_is_an_error_and_frees_its_place(nobodys_port: int) -> None:
    async with http(Pool(connections=1)) as client:
        for _ in range(3):
            with pytest.raises(OSError, match=r"."):
                await sent(client, f"http://127.0.0.1:{nobodys_port}")


async def test_handshake_without_an_answer_is_a_timeout() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.sleep(5)

    async with served(hold) as url, http() as client:
        with pytest.raises(TimeoutError):
            await sent(client, url.replace("http:", "https:"), timeouts=Timeouts(connect=0.1))


async def test_tls_towards_a_server_without_it_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK)

    async with served(answer) as url, http() as client:
        with pytest.raises(ssl.SSLError):
            await sent(client, url.replace("http:", "https:"))
