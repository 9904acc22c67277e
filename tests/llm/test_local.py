"""Tools for a model that knows none, and the real local model where its packages are installed."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator, Sequence

import pytest

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    TextDelta,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import ConfigurationError, ModelProtocolError, ModelUnavailable
from sk_agents.llm.local import (
    LocalModel,
    answer_so_far,
    constrained,
    from_constrained,
    plain_messages,
    reply_schema,
    requested_call,
    start_server,
)
from sk_agents.llm.model_clients import ModelClients
from tests.llm.loopback import pieces_of

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("weather-today", "the weather", CITY)
QUESTION = Message(role="user", content="Weather in Paris?")


async def converted(*texts: str, finish: str = "stop") -> list[ModelPiece]:
    async def replies() -> AsyncGenerator[Sequence[ModelPiece]]:
        for text in texts:
            yield [TextDelta(text)]
        yield [TurnFinished(finish)]

    return [piece async for pieces in from_constrained(replies()) for piece in pieces]


def test_schema_is_one_of_the_tools_or_an_answer() -> None:
    call, answer = reply_schema([WEATHER])["anyOf"]
    assert call["properties"] == {"tool": {"const": "weather-today"}, "arguments": CITY}
    assert answer["required"] == ["answer"]


def test_tools_are_described_beside_the_system_prompt() -> None:
    system = Message(role="system", content="Be kind.")
    prompt = constrained(Prompt([system, QUESTION], tools=[WEATHER]))
    assert prompt.tools == ()
    assert prompt.response_schema == reply_schema([WEATHER])
    assert prompt.messages[0].content.startswith("Be kind.")
    assert "- weather-today(city): the weather" in prompt.messages[0].content
    alone = constrained(Prompt([QUESTION], tools=[WEATHER]))
    assert [message.role for message in alone.messages] == ["system", "user"]


def test_result_is_answered_freely() -> None:
    call = ToolCall(id="1", plugin_name="weather", function_name="today", arguments={"city": "P"})
    messages = [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="sunny", tool_call_id="1"),
    ]
    prompt = constrained(Prompt(messages, tools=[WEATHER]))
    assert prompt.response_schema is None
    assert [(m.role, m.content) for m in prompt.messages] == [
        ("assistant", '{"tool":"weather-today","arguments":{"city":"P"}}'),
        ("user", "Result of weather-today: sunny"),
    ]


def test_image_is_mentioned_to_a_model_that_cannot_see() -> None:
    image = Part(kind="image", content="data:image/png;base64,AA")
    (message,) = plain_messages([Message(role="user", parts=(Part(content="see"), image))])
    assert message.content == "see\n[an image]"


def test_answer_is_read_while_it_is_written() -> None:
    whole = json.dumps({"answer": 'say "hi"\n\\ 😀 é'})
    read = [answer_so_far(whole[:end]) for end in range(len(whole) + 1)]
    assert read[-1] == 'say "hi"\n\\ 😀 é'
    assert all(read[-1].startswith(part) for part in read)
    assert answer_so_far('{"tool": "x"') == ""


async def test_answer_is_streamed_and_a_call_comes_whole() -> None:
    answer = ['{ "ans', 'wer": "he', 'llo"', "}"]
    assert await converted(*answer) == [TextDelta("he"), TextDelta("llo"), TurnFinished("stop")]
    call = ['{"tool": "weather-today", "argu', 'ments": {"city": "Paris"}}']
    assert await converted(*call) == [
        CallRequested("local_0", "weather-today", '{"city":"Paris"}'),
        TurnFinished("tool_calls"),
    ]


async def test_answer_cut_by_the_limit_is_kept_and_a_cut_call_is_refused() -> None:
    said = await converted('{"answer": "hel', finish="length")
    assert said == [TextDelta("hel"), TurnFinished("length")]
    with pytest.raises(ModelProtocolError):
        await converted('{"tool": "weather-to', finish="length")
    assert requested_call('{"answer": "x"}') is None


def test_other_local_names_stop_the_start() -> None:
    with pytest.raises(ConfigurationError, match="local/smollm2"):
        LocalModel(ModelClients(), "llama")


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelUnavailable, match=r"teal-agents\[local\]"):
        start_server()


async def test_what_is_loaded_once_is_loaded_for_all_who_ask_and_again_after_a_failure() -> None:
    loads: list[int] = []
    gate = asyncio.Event()

    async def load() -> int:
        loads.append(1)
        await gate.wait()
        if len(loads) == 1:
            raise ModelUnavailable
        return len(loads)

    async with ModelClients() as clients:
        asking = [asyncio.create_task(clients.once("x", load)) for _ in range(3)]
        gate.set()
        failed = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(failure, ModelUnavailable) for failure in failed)
        assert [await clients.once("x", load) for _ in range(2)] == [2, 2]
    assert len(loads) == 2


async def test_real_model_answers_and_calls_tools(
    clients: ModelClients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sk_agents.llm.local")
    model = LocalModel(clients)
    *deltas, end = await pieces_of(model, Prompt([QUESTION], max_tokens=20, temperature=0.0))
    assert len(deltas) > 1
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert isinstance(end, TurnFinished)
    assert 0 < end.usage.completion_tokens <= 20
    assert caplog.text.count("the local model is ready") == 1
    *said, end = await pieces_of(model, Prompt([QUESTION], tools=[WEATHER], temperature=0.0))
    assert isinstance(end, TurnFinished)
    if isinstance(said[0], CallRequested):
        assert said[0].name == "weather-today"
        assert isinstance(json.loads(said[0].arguments)["city"], str)
    assert caplog.text.count("the local model is ready") == 1
