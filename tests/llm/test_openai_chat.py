"""The client against a server that behaves: every kind of piece, over real HTTP."""

import asyncio
import logging
from contextlib import aclosing

import pytest

from sk_agents.engine.models import Message, Part, Usage
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import ConfigurationError, ModelUnavailable
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import calls, says
from tests.llm.loopback import (
    DONE,
    HELLO,
    RawServer,
    chunk,
    event,
    head,
    pieces_of,
    said,
    text_of,
    until,
)
from tests.patience import seconds


async def raw_pieces(clients: ModelClients, *segments: bytes) -> list[object]:
    async with RawServer([head(), *segments]) as server:
        return list(await pieces_of(OpenAIChat(clients, Endpoint(server.base_url, "m"))))


async def test_text_usage_and_finish_arrive(clients: ModelClients) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    async with ScriptedModelServer([says("hello there", pieces=4, usage=usage)]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m", key="sk-secret"))
        *deltas, last = await pieces_of(model)
        assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    assert "".join(d.content for d in deltas if isinstance(d, TextDelta)) == "hello there"
    assert last == TurnFinished("stop", usage)


async def test_reasoning_comes_apart_from_text(clients: ModelClients) -> None:
    turn: list[ModelPiece] = [
        ReasoningDelta("hm"),
        TextDelta("yes"),
        TurnFinished("content_filter"),
    ]
    async with ScriptedModelServer([turn]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        assert await pieces_of(model) == turn


async def test_calls_come_whole_and_in_order(clients: ModelClients) -> None:
    turn = calls(("a-b", {"x": [1, "é"]}), ("c-d", {}))
    async with ScriptedModelServer([turn]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        assert await pieces_of(model) == list(turn)


async def test_large_image_is_sent_whole(clients: ModelClients) -> None:
    image = "data:image/png;base64," + "A" * 3_000_000
    prompt = Prompt([Message(role="user", parts=(Part(kind="image", content=image),))])
    async with ScriptedModelServer([says("seen")]) as server:
        assert await text_of(OpenAIChat(clients, Endpoint(server.base_url, "m")), prompt) == "seen"
        assert server.requests[0]["messages"][0]["content"][0]["image_url"]["url"] == image


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
async def test_each_spelling_of_reasoning_is_known(clients: ModelClients, field: str) -> None:
    delta = {"content": "yes", field: "hm"}
    pieces = await raw_pieces(clients, chunk(**delta), chunk("stop"), DONE)
    assert pieces == [ReasoningDelta("hm"), TextDelta("yes"), TurnFinished("stop")]


async def test_text_of_one_read_is_one_piece(clients: ModelClients) -> None:
    whole = b"".join([head(), *(chunk(content=c) for c in "hello"), chunk("stop"), DONE])
    async with RawServer([whole]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        assert await pieces_of(model) == [TextDelta("hello"), TurnFinished("stop")]


async def test_calls_that_share_an_index_are_told_apart_by_id(clients: ModelClients) -> None:
    entries = [
        {"index": 0, "id": "1", "function": {"name": "a", "arguments": {"x": 1}}},
        {"index": 0, "id": "2", "function": {"name": "b", "arguments": ""}},
    ]
    pieces = await raw_pieces(clients, chunk("stop", tool_calls=entries), DONE)
    assert pieces[:2] == [CallRequested("1", "a", '{"x":1}'), CallRequested("2", "b", "{}")]


async def test_calls_without_an_index_are_told_apart_by_id(clients: ModelClients) -> None:
    first = {"id": "1", "function": {"name": "a", "arguments": '{"x"'}}
    more = {"function": {"arguments": ":1}"}}
    second = {"id": "2", "function": {"name": "b", "arguments": "{}"}}
    parts = [chunk(tool_calls=[entry]) for entry in (first, more, second)]
    pieces = await raw_pieces(clients, *parts, chunk("tool_calls"), DONE)
    assert pieces[:2] == [CallRequested("1", "a", '{"x":1}'), CallRequested("2", "b", "{}")]


async def test_characters_cut_apart_by_the_network_come_out_whole(clients: ModelClients) -> None:
    data = b"data: " + '{"choices":[{"delta":{"content":"Grüße 😀 日本"}}]}'.encode()
    stream = data + b"\n\n" + chunk("stop") + DONE
    framed = [b"1\r\n%c\r\n" % byte for byte in stream]
    lines = head().replace(b"Connection: close", b"Transfer-Encoding: chunked")
    async with RawServer([lines, *framed, b"0\r\n\r\n"]) as server:
        assert await text_of(OpenAIChat(clients, Endpoint(server.base_url, "m"))) == "Grüße 😀 日本"


async def test_emoji_split_over_two_chunks_comes_out_whole(clients: ModelClients) -> None:
    halves = [
        b'data: {"choices":[{"delta":{"content":"\\u%s"}}]}\n\n' % h for h in (b"d83d", b"de00")
    ]
    pieces = await raw_pieces(clients, *halves, chunk("stop"), DONE)
    text = "".join(piece.content for piece in pieces if isinstance(piece, TextDelta))
    assert text == "😀"


async def test_half_characters_become_replacement_characters_and_nul_stays(
    clients: ModelClients,
) -> None:
    content = b'data: {"choices":[{"delta":{"content":"a\\ud800b\\u0000c\\ud800"}}]}\n\n'
    entry = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"1","function":'
    entry += b'{"name":"t","arguments":"\\udc00"}}]}}]}\n\n'
    pieces = await raw_pieces(clients, content, entry, chunk("stop"), DONE)
    text = "".join(piece.content for piece in pieces if isinstance(piece, TextDelta))
    assert text == "a\ufffdb\0c\ufffd"
    assert CallRequested("1", "t", "\ufffd") in pieces


async def test_missing_usage_is_zero(clients: ModelClients) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": "x"}})
    pieces = await raw_pieces(clients, chunk(content="a"), chunk("stop"), usage, DONE)
    assert pieces[-1] == TurnFinished("stop", Usage())


async def test_finish_reason_without_done_is_an_end(clients: ModelClients) -> None:
    pieces = await raw_pieces(clients, chunk(content="a"), chunk("stop"))
    assert pieces == [TextDelta("a"), TurnFinished("stop")]


async def test_done_without_finish_reason_is_an_end(clients: ModelClients) -> None:
    pieces = await raw_pieces(clients, chunk(content="a"), DONE.strip())
    assert pieces == [TextDelta("a"), TurnFinished("stop")]


async def test_refusal_of_the_model_is_its_text(clients: ModelClients) -> None:
    pieces = await raw_pieces(
        clients, chunk(content=None, refusal="I will not."), chunk("stop"), DONE
    )
    assert pieces == [TextDelta("I will not."), TurnFinished("stop")]


async def test_unknown_fields_comments_and_first_chunks_without_choices_are_skipped(
    clients: ModelClients,
) -> None:
    odd = [
        b": OPENROUTER PROCESSING\n\n",
        event({"choices": [], "prompt_filter_results": []}),
        event({"choices": [{"delta": {"role": "assistant", "content": "", "x": 1}}], "y": {}}),
    ]
    pieces = await raw_pieces(clients, *odd, chunk(content="a"), chunk("stop"), DONE)
    assert pieces == [TextDelta("a"), TurnFinished("stop")]


async def test_connection_is_used_again(clients: ModelClients) -> None:
    async with ScriptedModelServer([says(str(number)) for number in range(5)]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        for number in range(5):
            assert await text_of(model) == str(number)
            await until(lambda: clients.http.resting == 1)


async def test_closing_the_stream_closes_the_connection(clients: ModelClients) -> None:
    async with RawServer([head(), chunk(content="a")], holds=True) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        async with asyncio.timeout(seconds(5)), aclosing(model.stream(HELLO)) as stream:
            assert await anext(stream) == [TextDelta("a")]
        async with asyncio.timeout(seconds(5)):
            await server.closed.wait()


async def test_cancelling_a_reader_closes_the_connection(clients: ModelClients) -> None:
    async with RawServer([head(), chunk(content="a")], holds=True) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in model.stream(HELLO):
                begun.set()

        task = asyncio.create_task(read())
        async with asyncio.timeout(seconds(5)):
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.closed.wait()


async def test_pieces_arrive_before_the_reply_is_complete(clients: ModelClients) -> None:
    gate = asyncio.Event()
    async with ScriptedModelServer([[TextDelta("a"), gate, *says("b")]]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        async with asyncio.timeout(seconds(5)), aclosing(model.stream(HELLO)) as stream:
            assert await anext(stream) == [TextDelta("a")]
            gate.set()
            rest = [piece async for pieces in stream for piece in pieces]
    assert rest == [TextDelta("b"), TurnFinished("stop")]


async def test_model_cannot_be_called_before_or_after_the_clients_are_open() -> None:
    clients = ModelClients()
    model = OpenAIChat(clients, Endpoint("http://127.0.0.1:9/v1", "m"))
    with pytest.raises(ModelUnavailable, match="closed"):
        await pieces_of(model)
    async with RawServer(said("hi")) as server:
        async with clients:
            assert await text_of(OpenAIChat(clients, Endpoint(server.base_url, "m"))) == "hi"
        with pytest.raises(ModelUnavailable, match="closed"):
            await pieces_of(model)


async def test_key_is_in_no_log_and_no_text_form(
    clients: ModelClients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = b'{"error": {"message": "bad key sk-secret", "code": "invalid_api_key"}}'
    async with RawServer([head("401 No", "application/json"), body]) as server:
        endpoint = Endpoint(server.base_url, "m", key="sk-secret")
        with pytest.raises(Exception, match="401") as caught:
            await pieces_of(OpenAIChat(clients, endpoint))
    shown = [repr(endpoint), str(caught.value), repr(caught.value.__dict__)]
    shown += [str(record.__dict__) for record in caplog.records]
    assert not [text for text in shown if "sk-secret" in text]
    assert "bad key ***" in "".join(shown)


def test_key_that_would_break_out_of_its_header_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        OpenAIChat(ModelClients(), Endpoint("http://127.0.0.1:1/v1", "m", key="a\r\nX-Evil: 1"))
    assert "Evil" not in str(caught.value)


@pytest.mark.parametrize("at_once", [True, False])
async def test_long_text_with_every_kind_of_character_comes_out_as_it_was_said(
    clients: ModelClients, at_once: bool
) -> None:
    words = [
        "plain",
        ' "quoted"',
        "\n\n",
        "\\",
        "é",
        "日本",
        "😀",
        "",
        " \t",
        "</s>",
        "data: x",
    ] * 20
    chunks = [chunk(content=word) for word in words]
    chunks[50:50] = [chunk(tool_calls=[]), b": a comment\n\n"]
    events = [*chunks, chunk("stop"), DONE]
    async with RawServer([head(), *([b"".join(events)] if at_once else events)]) as server:
        model = OpenAIChat(clients, Endpoint(server.base_url, "m"))
        assert await text_of(model) == "".join(words)
