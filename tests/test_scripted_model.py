"""The scripted model, called directly and through its server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from sk_agents.engine.models import Message, Usage
from sk_agents.engine.ports import Model
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import ModelError
from sk_agents.testing import ScriptedModel, ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.patience import seconds

HELLO = Prompt([Message(role="user", content="hello")])
STREAMED = {"model": "m", "stream": True, "messages": []}


async def pieces_of(model: Model, prompt: Prompt = HELLO) -> list[ModelPiece]:
    return [piece async for pieces in model.stream(prompt) for piece in pieces]


@asynccontextmanager
async def posted(
    server: ScriptedModelServer, body: dict[str, Any]
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with (
        asyncio.timeout(seconds(5)),
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/chat/completions", json=body) as response,
    ):
        yield response


async def frames(server: ScriptedModelServer, body: dict[str, Any] = STREAMED) -> list[Any]:
    """The stream's documents; `[DONE]` stays as it is."""
    async with posted(server, body) as response:
        assert response.content_type == "text/event-stream"
        text = (await response.read()).decode()
    data = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in data]


def deltas(documents: list[Any]) -> list[dict[str, Any]]:
    return [c["delta"] for document in documents[:-1] for c in document["choices"]]


async def test_turns_are_played_in_order_and_prompts_are_kept() -> None:
    model = ScriptedModel([says("abc", pieces=3), calls(("files-write", {"path": "x"}))])
    assert await pieces_of(model) == [
        TextDelta("a"),
        TextDelta("b"),
        TextDelta("c"),
        TurnFinished(),
    ]
    second = Prompt([Message(role="user", content="again")])
    assert await pieces_of(model, second) == [
        CallRequested("provider-1", "files-write", '{"path": "x"}'),
        TurnFinished("tool_calls"),
    ]
    assert model.prompts == [HELLO, second]


async def test_error_is_raised_where_it_stands() -> None:
    model = ScriptedModel([ModelError("no"), [TextDelta("half"), ModelError("cut")]])
    with pytest.raises(ModelError, match="no"):
        await pieces_of(model)
    seen: list[ModelPiece] = []
    with pytest.raises(ModelError, match="cut"):
        async for pieces in model.stream(HELLO):
            seen.extend(pieces)
    assert seen == [TextDelta("half")]


async def test_end_of_the_script_is_an_error_that_says_so() -> None:
    with pytest.raises(ModelError, match="0 turns, not 1"):
        await pieces_of(ScriptedModel([]))


async def test_gate_holds_the_stream_until_it_is_set() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([[TextDelta("a"), gate, TextDelta("b")]])
    async with asyncio.timeout(seconds(5)), aclosing(model.stream(HELLO)) as stream:
        assert await anext(stream) == (TextDelta("a"),)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        gate.set()
        assert await waiting == (TextDelta("b"),)


async def test_pieces_of_a_tuple_arrive_together() -> None:
    together = (TextDelta("a"), TextDelta("b"))
    model = ScriptedModel([[together, TurnFinished()]])
    assert [pieces async for pieces in model.stream(HELLO)] == [together, (TurnFinished(),)]
    async with ScriptedModelServer([[together, TurnFinished()]]) as server:
        assert deltas(await frames(server)) == [{"content": "a"}, {"content": "b"}, {}]


async def test_server_streams_text_and_reasoning_and_records_the_request() -> None:
    turn: Turn = [ReasoningDelta("hm"), TextDelta("he"), TextDelta("llo"), TurnFinished("length")]
    async with ScriptedModelServer([turn]) as server:
        documents = await frames(server)
    assert deltas(documents) == [
        {"reasoning_content": "hm"},
        {"content": "he"},
        {"content": "llo"},
        {},
    ]
    assert documents[-2]["choices"][0]["finish_reason"] == "length"
    assert documents[-1] == "[DONE]"
    assert server.requests == [STREAMED]
    assert server.headers[0]["Content-Type"] == "application/json"


async def test_server_streams_the_calls_arguments_in_parts() -> None:
    async with ScriptedModelServer([calls(("a-b", {"x": 1}), ("c-d", {}))]) as server:
        documents = await frames(server)
    parts = [call for delta in deltas(documents) for call in delta.get("tool_calls", [])]
    named = [(part["index"], part["id"]) for part in parts if "id" in part]
    assert named == [(0, "provider-1"), (1, "provider-2")]
    arguments = ["", ""]
    for part in parts:
        arguments[part["index"]] += part["function"]["arguments"]
    assert [json.loads(text) for text in arguments] == [{"x": 1}, {}]


async def test_server_sends_usage_when_asked_to() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    async with ScriptedModelServer([says("x", usage=usage), says("x")]) as server:
        with_usage = await frames(server, STREAMED | {"stream_options": {"include_usage": True}})
        without = await frames(server)
    assert with_usage[-2]["choices"] == []
    assert with_usage[-2]["usage"]["total_tokens"] == 5
    assert not any("usage" in document for document in without[:-1])


async def test_server_answers_an_error_with_its_status_and_headers() -> None:
    busy = ModelError("slow down", status=429, headers={"Retry-After": "7"})
    async with ScriptedModelServer([busy, ModelError("broken")]) as server:
        async with posted(server, STREAMED) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "7")
            assert (await response.json())["error"]["message"] == "slow down"
        async with posted(server, STREAMED) as response:
            assert response.status == 500


async def test_server_cuts_the_connection_at_an_error_in_the_stream() -> None:
    async with ScriptedModelServer([[TextDelta("half"), ModelError("cut")]]) as server:
        with pytest.raises(aiohttp.ClientError):
            await frames(server)


async def test_turn_without_an_end_is_a_stream_without_done() -> None:
    async with ScriptedModelServer([[TextDelta("half")]]) as server:
        documents = await frames(server)
    assert [c["delta"] for document in documents for c in document["choices"]] == [
        {"content": "half"}
    ]


async def test_server_holds_the_stream_at_a_gate() -> None:
    gate = asyncio.Event()
    turn = [TextDelta("a"), gate, *says("b")]
    async with ScriptedModelServer([turn]) as server, posted(server, STREAMED) as response:
        assert b'"content": "a"' in await response.content.readuntil(b"\n\n")
        rest = asyncio.ensure_future(response.content.read())
        await asyncio.wait([rest], timeout=0)
        assert not rest.done()
        gate.set()
        assert (await rest).endswith(b"[DONE]\n\n")


async def test_request_that_does_not_stream_gets_one_document() -> None:
    async with ScriptedModelServer([says("hello"), calls(("a-b", {}))]) as server:
        body = {"model": "m", "messages": []}
        async with posted(server, body) as response:
            said = (await response.json())["choices"][0]
        async with posted(server, body) as response:
            asked = (await response.json())["choices"][0]
    assert (said["message"]["content"], said["finish_reason"]) == ("hello", "stop")
    assert asked["message"]["tool_calls"][0]["function"]["name"] == "a-b"
