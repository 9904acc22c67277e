"""The client against everything that can go wrong on the other side, over real sockets."""

import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest

from sk_agents.engine.turns import ModelPiece, TextDelta, TurnFinished
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.http_client import Timeouts
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import says
from tests.llm.loopback import (
    DONE,
    HELLO,
    Answer,
    RawServer,
    Waits,
    chunk,
    event,
    head,
    pieces_of,
    said,
    text_of,
)

JSON = "application/json"
HALF = [head(), chunk(content="half")]


@pytest.fixture
def waits() -> Waits:
    return Waits()


class Asked:
    """How one server was asked, and what came of it."""

    def __init__(self, clients: ModelClients, waits: Waits) -> None:
        self._clients = clients
        self._waits = waits
        self.times = 0

    async def __call__(self, *answers: Answer, **options: int) -> str:
        async with RawServer(*answers) as server:
            endpoint = Endpoint(server.base_url, "m", **options)  # type: ignore[arg-type]
            try:
                return await text_of(OpenAIChat(self._clients, endpoint, self._waits.timing))
            finally:
                self.times = server.asked


@pytest.fixture
async def ask(clients: ModelClients, waits: Waits) -> AsyncIterator[Asked]:
    yield Asked(clients, waits)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_passing_failure_is_tried_again(ask: Asked, waits: Waits, status: int) -> None:
    busy = [head(f"{status} Busy", JSON), b"{}"]
    assert await ask(busy, busy, said("hi")) == "hi"
    assert (ask.times, len(waits.seconds)) == (3, 2)


async def test_rate_limit_that_stays_is_reported_after_bounded_waits(
    ask: Asked, waits: Waits
) -> None:
    limited = [head("429 Slow", JSON, "Retry-After: 3"), b'{"error":{"code":"slow_down"}}']
    with pytest.raises(ModelRateLimited, match=r"429 \(slow_down\)") as caught:
        await ask(limited)
    assert caught.value.retry_after == 3
    assert ask.times == RetryPolicy().attempts
    assert all(seconds >= 3 for seconds in waits.seconds)
    assert sum(waits.seconds) <= RetryPolicy().total_wait


async def test_retry_after_as_a_date_is_respected(ask: Asked, waits: Waits) -> None:
    date = "Retry-After: Tue, 01 Jan 2030 00:00:20 GMT"
    assert await ask([head("503 Busy", JSON, date), b"{}"], said("hi")) == "hi"
    assert 20 <= waits.seconds[0] < 25


async def test_empty_account_is_not_waited_for(ask: Asked, waits: Waits) -> None:
    spent = [head("429 Spent", JSON), b'{"error":{"code":"insufficient_quota"}}']
    with pytest.raises(ModelRateLimited):
        await ask(spent)
    assert (ask.times, waits.seconds) == (1, [])


async def test_server_error_that_stays_is_unavailable(ask: Asked) -> None:
    with pytest.raises(ModelUnavailable, match="500"):
        await ask([head("500 Oops", "text/html"), b"<html>"])
    assert ask.times == RetryPolicy().attempts


async def test_scripted_servers_error_is_tried_again(clients: ModelClients, waits: Waits) -> None:
    async with ScriptedModelServer([ModelError("no", status=503), says("hi")]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"), waits.timing)
        assert await text_of(model) == "hi"


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    """A port that is taken, so nobody else gets it, and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1"]
)
async def test_unreachable_host_is_unavailable(
    clients: ModelClients, waits: Waits, nobodys_port: int, base_url: str
) -> None:
    url = base_url.format(port=nobodys_port)
    with pytest.raises(ModelUnavailable):
        await pieces_of(OpenAIChat(clients, Endpoint(url, "m"), waits.timing))
    assert len(waits.seconds) == RetryPolicy().attempts - 1


async def test_tls_towards_a_plain_server_is_unavailable(
    clients: ModelClients, waits: Waits
) -> None:
    async with ScriptedModelServer([]) as server:
        endpoint = Endpoint(server.base_url.replace("http:", "https:"), "m")
        with pytest.raises(ModelUnavailable):
            await pieces_of(OpenAIChat(clients, endpoint, waits.timing))


async def test_connection_dropped_before_an_answer_is_tried_again_at_once(
    ask: Asked, waits: Waits
) -> None:
    assert await ask([], said("hi")) == "hi"
    assert waits.seconds == []


@pytest.mark.parametrize("start", [[head()], [head(), chunk(role="assistant", content="")]])
async def test_stream_that_ends_before_its_first_piece_is_tried_again(
    ask: Asked, start: Answer
) -> None:
    assert await ask(start, said("hi")) == "hi"


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [b'data: {"choi'],
        [chunk(tool_calls=[{"index": 0, "id": "1", "function": {"name": "a", "arguments": "{"}}])],
        [event({"error": {"code": 502, "message": "upstream"}})],
    ],
)
async def test_stream_that_breaks_off_is_interrupted_and_not_tried_again(
    ask: Asked, rest: Answer
) -> None:
    with pytest.raises(ModelInterrupted):
        await ask([*HALF, *rest])
    assert ask.times == 1


async def test_cut_connection_in_a_stream_is_an_interruption(clients: ModelClients) -> None:
    async with ScriptedModelServer([[TextDelta("half"), ModelError("cut")]]) as server:
        seen: list[ModelPiece] = []
        with pytest.raises(ModelInterrupted):
            async for pieces in OpenAIChat(clients, Endpoint(server.base_url, "m")).stream(HELLO):
                seen += pieces
    assert seen == [TextDelta("half")]


async def test_half_a_call_is_never_given_out(clients: ModelClients) -> None:
    call = {"index": 0, "id": "1", "function": {"name": "a", "arguments": "{}"}}
    async with RawServer([head(), chunk(content="x"), chunk(tool_calls=[call])]) as server:
        seen: list[ModelPiece] = []
        with pytest.raises(ModelInterrupted):
            async for pieces in OpenAIChat(clients, Endpoint(server.base_url, "m")).stream(HELLO):
                seen += pieces
    assert seen == [TextDelta("x")]


async def test_connection_lost_after_the_finish_is_no_failure(clients: ModelClients) -> None:
    lines = head().replace(b"Connection: close", b"Content-Length: 100000")
    async with RawServer([lines, chunk(content="a"), chunk("stop")]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        assert await pieces_of(model) == [TextDelta("a"), TurnFinished("stop")]


async def test_silence_is_unavailable_at_first_and_an_interruption_later(
    clients: ModelClients, waits: Waits
) -> None:
    for answer, error in (([head()], ModelUnavailable), (HALF, ModelInterrupted)):
        async with RawServer(answer, holds=True) as server:
            endpoint = Endpoint(
                server.base_url, "m", timeouts=Timeouts(idle=0.05), retry=RetryPolicy(attempts=2)
            )
            with pytest.raises(error):
                await pieces_of(OpenAIChat(clients, endpoint, waits.timing))


@pytest.mark.parametrize(
    "answer",
    [
        [head(), b"data: {oops}\n\n"],
        [head(), b"data: \xff\xfe\n\n"],
        [head(), b"data: 5\n\n"],
        [head(), event({"nothing": 1})],
        [head(), event({"choices": [5]})],
        [head(), event({"choices": "abc"})],
        [head(), event({"choices": [{"delta": {"content": 5}}]})],
        [head(), event({"choices": [{"delta": {"tool_calls": [5]}}]})],
        [head(), event({"choices": []}), DONE],
        [head(), DONE],
        [head(), event({"error": {"message": "sk-123 is broken", "type": "odd"}})],
        [head(), event({"error": "a text"})],
        [head(), b"data: " + b"[" * 100_000 + b"\n\n"],
        [head("200 OK", "text/html"), b"<html>welcome</html>"],
        [head("200 OK", JSON), b'{"choices":[]}'],
        [head("200 OK", JSON), b'{"error":{"message":"no"}}'],
        [head("302 Found", JSON, "Location: http://127.0.0.1:1/"), b""],
        [head("200 OK", "text/event-stream", "Content-Encoding: gzip"), b"\x1f\x8b"],
        [b"220 mail.example ESMTP\r\n\r\n"],
    ],
)
async def test_what_makes_no_sense_is_a_protocol_error_at_once(ask: Asked, answer: Answer) -> None:
    with pytest.raises(ModelProtocolError) as caught:
        await ask(answer)
    assert ask.times == 1
    assert "sk-123" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 429, "message": "slow"}, ModelRateLimited),
        ({"type": "overloaded_error"}, ModelUnavailable),
        ({"code": "context_length_exceeded"}, ContextTooLong),
    ],
)
async def test_error_object_at_the_start_of_a_stream_means_what_it_says(
    ask: Asked, error: dict[str, object], expected: type[ModelError]
) -> None:
    with pytest.raises(expected):
        await ask([head(), event({"error": error})])


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"code":"context_length_exceeded"}}'),
        (400, b'{"error":{"message":"This model\'s maximum context length is 8 tokens"}}'),
        (400, b'{"error":{"type":"exceed_context_size_error"}}'),
        (400, b'[{"error":{"message":"prompt is too long"}}]'),
        (413, b""),
    ],
)
async def test_prompt_beyond_the_window_is_told_apart(ask: Asked, status: int, body: bytes) -> None:
    with pytest.raises(ContextTooLong):
        await ask([head(f"{status} Bad", JSON), body])
    assert ask.times == 1


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error":{"code":"invalid_value"}}', r"400 \(invalid_value\)"),
        (401, b'{"error":{"message":"sk-123"}}', "API key is missing or wrong"),
        (400, b'{"error":{"type":"no_db_connection","code":"400"}}', "API key is missing or wrong"),
        (400, b'{"error":{"message":"Invalid model name passed in model=x"}}', "no such model"),
        (402, b"", "no credit"),
        (403, b"<html>sk-123</html>", "may not use"),
        (404, b'{"error":"sk-123"}', "no such model"),
        (422, b'{"error":{"code":"has spaces sk-123"}}', "422$"),
    ],
)
async def test_refusal_says_the_status_and_nothing_secret(
    ask: Asked, status: int, body: bytes, message: str
) -> None:
    with pytest.raises(ModelRefused, match=message) as caught:
        await ask([head(f"{status} No", JSON), body])
    assert ask.times == 1
    assert "sk-123" not in str(caught.value)


async def test_single_huge_line_is_refused_with_bounded_memory(ask: Asked) -> None:
    block = b"x" * 65536
    endless = [head(), b"data: ", *[block] * 1000]
    tracemalloc.start()
    try:
        with pytest.raises(ModelProtocolError):
            await ask(endless, max_event=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


async def test_endless_garbage_is_refused(ask: Asked) -> None:
    garbage = [head(), *[b": nothing\n\n" * 1000] * 1000]
    with pytest.raises(ModelProtocolError, match="end"):
        await ask(garbage, max_reply=1 << 20)
