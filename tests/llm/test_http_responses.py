"""Responses as servers really send them, cut anywhere, and those that are none."""

import asyncio

import pytest

from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.http_client import MAX_HEAD_BYTES
from tests.llm.raw_http import (
    CHUNKED,
    OK,
    UNTIL_THE_END,
    Answers,
    asked,
    http,
    request_from,
    rest_of,
    sent,
    served,
)

GOOD = {
    "length": (OK, b"ok"),
    "chunked": (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
    "chunk extensions": (CHUNKED + b'3;a=1;b="x"\r\nabc\r\n0;last\r\n\r\n', b"abc"),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nX-Sum: 1\r\nContent-Type: x\r\n\r\n", b"a"),
    "empty": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "after a provisional one": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    "after hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, b"ok"),
    "no reason": (OK.replace(b" OK", b""), b"ok"),
}


@pytest.mark.parametrize("name", GOOD)
async def test_response_is_read_whole_and_its_connection_kept(name: str) -> None:
    answer, body = GOOD[name]
    server = Answers([answer], [OK])
    async with served(server) as url, http() as client:
        assert (await asked(client, url))[1] == body
        assert client.resting == 1
        assert await asked(client, url) == (200, b"ok")
    assert server.connections == 1


@pytest.mark.parametrize("name", GOOD)
async def test_response_cut_after_every_byte_is_the_same(name: str) -> None:
    answer, body = GOOD[name]
    server = Answers([answer[at : at + 1] for at in range(len(answer))])
    async with served(server) as url, http() as client:
        assert (await asked(client, url))[1] == body


@pytest.mark.parametrize(
    "head",
    [UNTIL_THE_END, b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n"],
)
async def test_body_without_a_length_ends_with_its_connection(head: bytes) -> None:
    async with served(Answers([head, b"abc", b"de"])) as url, http() as client:
        assert await asked(client, url) == (200, b"abcde")
        assert client.resting == 0


async def test_names_of_headers_are_small_and_trailers_are_none() -> None:
    answer = (
        CHUNKED.replace(b"\r\n\r\n", b"\r\nX-One: 1\r\n\r\n") + b"1\r\na\r\n0\r\nX-Two: 2\r\n\r\n"
    )
    async with served(Answers([answer])) as url, http() as client:
        response = await sent(client, url)
        assert await rest_of(response) == b"a"
        assert response.headers == {b"transfer-encoding": b"chunked", b"x-one": b"1"}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"9\r\nabc",
    ],
)
async def test_body_that_is_cut_short_is_an_error(answer: bytes) -> None:
    async with served(Answers([answer])) as url, http() as client:
        response = await sent(client, url)
        with pytest.raises(ConnectionResetError):
            await rest_of(response)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-"])
async def test_head_that_is_cut_short_is_an_error(answer: bytes) -> None:
    async with served(Answers([answer])) as url, http() as client:
        with pytest.raises(ConnectionResetError):
            await sent(client, url)


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nxyz",
    ],
)
async def test_what_is_no_response_is_a_protocol_error(answer: bytes) -> None:
    async with served(Answers([answer])) as url, http() as client:
        with pytest.raises(ModelProtocolError):
            await sent(client, url)


async def test_chunk_that_is_no_chunk_is_a_protocol_error() -> None:
    async with served(Answers([CHUNKED, b"zz\r\nabc\r\n"])) as url, http() as client:
        with pytest.raises(ModelProtocolError):
            await asked(client, url)


ENDLESS = {
    "name": (b"HTTP/1.1 200 OK\r\nX-", b"x"),
    "value": (b"HTTP/1.1 200 OK\r\nX-Y: ", b"x"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "provisional": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "extension": (CHUNKED + b"1;", b"x"),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"A: b\r\n"),
}


@pytest.mark.parametrize("where", ENDLESS)
async def test_head_without_end_is_refused_long_before_it_fills_the_memory(where: str) -> None:
    start, more = ENDLESS[where]
    sent_bytes = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        await request_from(reader)
        writer.write(start)
        block = more * (64 * 1024 // len(more))
        while sent_bytes < 256 * MAX_HEAD_BYTES:
            writer.write(block)
            await writer.drain()
            sent_bytes += len(block)

    async with served(pour) as url, http() as client:
        with pytest.raises(ModelProtocolError):
            await asked(client, url)
    assert sent_bytes < 256 * MAX_HEAD_BYTES


@pytest.mark.parametrize("more", [OK, b"HTTP/1.1 5", b"garbage", b"\r\n\r\nHTTP"])
async def test_what_follows_a_response_neither_harms_it_nor_answers_the_next_request(
    more: bytes,
) -> None:
    server = Answers([OK + more], [OK.replace(b"ok", b"no")])
    async with served(server) as url, http() as client:
        assert await asked(client, url) == (200, b"ok")
        assert client.resting == 0
        assert await asked(client, url) == (200, b"no")
    assert server.connections == 2


async def test_reader_that_is_slow_holds_the_sender_back_and_gets_all() -> None:
    total = 32 << 20
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await request_from(reader)
        writer.write(UNTIL_THE_END)
        while written < total:
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with served(pour) as url, http() as client:
        response = await sent(client, url)
        seen = -1
        while seen < written:
            # Until the sender has come to a standstill.
            seen = written
            for _ in range(200):
                await asyncio.sleep(0)
        assert written < total
        assert await rest_of(response) == b"x" * total
