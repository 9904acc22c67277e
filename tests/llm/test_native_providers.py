"""Anthropic, Gemini, OpenAI Responses and Azure by their own protocols, in any fragmentation."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sk_agents.engine.models import Message, Part, ToolCall, Usage
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    ReasoningState,
    TextDelta,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import (
    ConfigurationError,
    ContextTooLong,
    ModelError,
    ModelProtocolError,
    ModelRateLimited,
    ModelUnavailable,
)
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.llm.replies import StreamedReply
from sk_agents.llm.streamed_chat import RequestOptions, StreamedChat
from tests.llm.loopback import HELLO, event, head, pieces_of
from tests.llm.raw_http import request_from, served
from tests.llm.recorded_replies import ANTHROPIC, GEMINI, RESPONSES, events

RECORDED = {
    "anthropic/claude-sonnet-4-6": ANTHROPIC,
    "gemini/gemini-3.1-pro": GEMINI,
    "openai_responses/gpt-5.4": RESPONSES,
}
APIS = {"anthropic": "anthropic", "gemini": "gemini", "openai_responses": "responses"}
ONCE = RetryPolicy(attempts=1)
TOOL = ToolSpec(
    "weather-today",
    "The weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}},
)
PNG = "data:image/png;base64,iVBORw0KGgo="
STATES: dict[str, dict[str, Any]] = {
    "anthropic": {
        "kind": "anthropic",
        "blocks": [
            {"type": "thinking", "thinking": "Two cities: Köln, Paris.", "signature": "sig-1"},
            {"type": "redacted_thinking", "data": "c2VjcmV0"},
        ],
    },
    "gemini": {"kind": "gemini", "signatures": ["sig-1", None]},
    "openai_responses": {
        "kind": "openai_responses",
        "items": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Two cities: Köln, Paris."}],
                "encrypted_content": "gAAA",
            }
        ],
    },
}


class Provider:
    """A server with one answer; keeps what it was asked."""

    def __init__(self, *answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await request_from(reader))
        for piece in self._answers[min(len(self.requests), len(self._answers)) - 1]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]

    @property
    def heads(self) -> list[str]:
        return [request.partition(b"\r\n\r\n")[0].decode() for request in self.requests]


@asynccontextmanager
async def asked(
    name: str,
    *answers: Sequence[bytes],
    options: RequestOptions | None = None,
    environ: Mapping[str, str] | None = None,
    **spec: Any,
) -> AsyncIterator[tuple[StreamedChat, Provider]]:
    provider = Provider(*answers)
    async with served(provider) as url, ModelClients() as clients:
        given = ModelSpec(
            name,
            base_url=url,
            api_key_env="KEY",
            retry=ONCE,
            options=options or RequestOptions(),
            api=spec.pop("api", APIS.get(name.partition("/")[0])),
            **spec,
        )
        model = build_model(given, clients, {"KEY": "k3y", **(environ or {})})
        assert isinstance(model, StreamedChat)
        yield model, provider


def whole(pieces: Sequence[ModelPiece]) -> dict[str, Any]:
    """A reply, however it was cut."""
    return {
        "thought": "".join(p.content for p in pieces if isinstance(p, ReasoningDelta)),
        "text": "".join(p.content for p in pieces if isinstance(p, TextDelta)),
        "calls": [
            (p.name, json.loads(p.arguments)) for p in pieces if isinstance(p, CallRequested)
        ],
        "states": [p.data for p in pieces if isinstance(p, ReasoningState)],
        "end": pieces[-1],
    }


def expected(name: str) -> dict[str, Any]:
    return {
        "thought": "Two cities: Köln, Paris.",
        "text": "Let me look 👀.",
        "calls": [("weather-today", {"city": "Köln"}), ("weather-today", {})],
        "states": [STATES[name.partition("/")[0]]],
        "end": TurnFinished("tool_calls", Usage(prompt_tokens=25, completion_tokens=31)),
    }


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_reply_is_read(name: str) -> None:
    async with asked(name, [head(), RECORDED[name]]) as (model, _):
        assert whole(await pieces_of(model)) == expected(name)


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_reply_is_the_same_cut_at_every_byte(name: str) -> None:
    recorded = RECORDED[name]
    async with asked(name, [head(), recorded]) as (model, _):
        for cut in range(1, len(recorded)):
            reading = model.reading(StreamedReply())
            pieces = [*reading.feed(recorded[:cut]), *reading.feed(recorded[cut:])]
            pieces += reading.end()
            assert whole(pieces) == expected(name), cut
        reading = model.reading(StreamedReply())
        pieces = [piece for byte in recorded for piece in reading.feed(bytes([byte]))]
        assert whole([*pieces, *reading.end()]) == expected(name)


@pytest.mark.parametrize("name", RECORDED)
async def test_reply_that_breaks_off_is_no_reply(name: str) -> None:
    recorded = RECORDED[name]
    async with asked(name, [head(), recorded[: len(recorded) * 2 // 3]]) as (model, _):
        with pytest.raises(ModelError):
            await pieces_of(model)


def conversation(state: Mapping[str, Any] | None) -> list[Message]:
    call = ToolCall(id="c1", plugin_name="weather", function_name="today", arguments={"city": "K"})
    second = call.model_copy(update={"id": "c2", "arguments": {}})
    return [
        Message(role="system", content="Be brief."),
        Message(role="user", parts=(Part(content="What is it?"), Part(kind="image", content=PNG))),
        Message(
            role="assistant", content="Look:", tool_calls=(call, second), reasoning_state=state
        ),
        Message(role="tool", content="sunny", tool_call_id="c1"),
        Message(role="tool", content="", tool_call_id="c2"),
    ]


async def sent(name: str, prompt: Prompt, **options: Any) -> tuple[str, Any]:
    async with asked(name, [head(), RECORDED[name]], **options) as (model, provider):
        await pieces_of(model, prompt)
        return provider.heads[0], provider.bodies[0]


def full_prompt(provider: str) -> Prompt:
    return Prompt(conversation(STATES[provider]), (TOOL,), max_tokens=100, reasoning_effort="low")


async def test_anthropic_is_asked_in_its_words() -> None:
    options = RequestOptions(stop=("END",), extra_body={"metadata": {"user_id": "u"}})
    name = "anthropic/claude-sonnet-4-6"
    first, body = await sent(name, full_prompt("anthropic"), options=options)
    assert first.startswith("POST /v1/messages HTTP/1.1")
    assert "x-api-key: k3y" in first and "anthropic-version: 2023-06-01" in first
    cached = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": "claude-sonnet-4-6",
        "stream": True,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "tools": [
            {
                "name": "weather-today",
                "description": "The weather.",
                "input_schema": dict(TOOL.parameters),
                **cached,
            }
        ],
        "stop_sequences": ["END"],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "metadata": {"user_id": "u"},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "iVBORw0KGgo=",
                        },
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    *STATES["anthropic"]["blocks"],
                    {"type": "text", "text": "Look:"},
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "weather-today",
                        "input": {"city": "K"},
                    },
                    {"type": "tool_use", "id": "c2", "name": "weather-today", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": "(no output)",
                        **cached,
                    },
                ],
            },
        ],
    }


async def test_older_claude_gets_a_budget_to_think_with() -> None:
    prompt = replace(HELLO, max_tokens=100, temperature=0.5, reasoning_effort="low")
    async with asked("anthropic/claude-sonnet-4-5", [head(), ANTHROPIC]) as (model, provider):
        await pieces_of(model, prompt)
    body = provider.bodies[0]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert body["max_tokens"] == 2148
    assert "temperature" not in body


async def test_gemini_is_asked_in_its_words() -> None:
    options = RequestOptions(top_p=0.5, seed=7, stop=("END",))
    name = "gemini/gemini-3.1-pro"
    first, body = await sent(name, full_prompt("gemini"), options=options)
    path = "/v1beta/models/gemini-3.1-pro:streamGenerateContent?alt=sse"
    assert first.startswith(f"POST {path} HTTP/1.1")
    assert "x-goog-api-key: k3y" in first
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather-today",
                        "description": "The weather.",
                        "parametersJsonSchema": dict(TOOL.parameters),
                    }
                ]
            }
        ],
        "generationConfig": {
            "topP": 0.5,
            "seed": 7,
            "stopSequences": ["END"],
            "maxOutputTokens": 100,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
        },
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "What is it?"},
                    {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Look:"},
                    {
                        "functionCall": {"name": "weather-today", "args": {"city": "K"}},
                        "thoughtSignature": "sig-1",
                    },
                    {"functionCall": {"name": "weather-today", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": "weather-today",
                            "response": {"result": "sunny"},
                        }
                    },
                    {"functionResponse": {"name": "weather-today", "response": {"result": ""}}},
                ],
            },
        ],
    }


async def test_responses_is_asked_in_its_words() -> None:
    first, body = await sent("openai_responses/gpt-5.4", full_prompt("openai_responses"))
    assert first.startswith("POST /responses HTTP/1.1")
    assert "Authorization: Bearer k3y" in first
    call = {"type": "function_call", "name": "weather-today"}
    assert body == {
        "model": "gpt-5.4",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 100,
        "tools": [
            {
                "type": "function",
                "name": "weather-today",
                "description": "The weather.",
                "parameters": dict(TOOL.parameters),
                "strict": False,
            }
        ],
        "input": [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": PNG},
                ],
            },
            *STATES["openai_responses"]["items"],
            {"role": "assistant", "content": "Look:"},
            {**call, "call_id": "c1", "arguments": '{"city":"K"}'},
            {**call, "call_id": "c2", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "c2", "output": ""},
        ],
    }


@pytest.mark.parametrize("name", RECORDED)
async def test_state_of_another_provider_is_not_sent(name: str) -> None:
    own = name.partition("/")[0]
    for other in STATES.keys() - {own}:
        _, body = await sent(name, Prompt(conversation(STATES[other]), (TOOL,)))
        text = json.dumps(body)
        assert not any(secret in text for secret in ("sig-1", "gAAA", "c2VjcmV0"))


@pytest.mark.parametrize(
    ("name", "stream", "reason"),
    [
        (
            "anthropic/claude-x",
            events(
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": "half"},
                },
                {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
                {"type": "message_stop"},
            ),
            "length",
        ),
        (
            "anthropic/claude-x",
            events(
                {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
                {"type": "message_stop"},
            ),
            "content_filter",
        ),
        (
            "gemini/gemini-x",
            events({"candidates": [{"content": {"parts": []}, "finishReason": "MAX_TOKENS"}]}),
            "length",
        ),
        (
            "gemini/gemini-x",
            events({"promptFeedback": {"blockReason": "SAFETY"}}),
            "content_filter",
        ),
        (
            "openai_responses/x",
            events(
                {
                    "type": "response.incomplete",
                    "response": {"incomplete_details": {"reason": "max_output_tokens"}},
                }
            ),
            "length",
        ),
    ],
)
async def test_reply_that_was_cut_says_so(name: str, stream: bytes, reason: str) -> None:
    async with asked(name, [head(), stream]) as (model, _):
        end = (await pieces_of(model))[-1]
        assert isinstance(end, TurnFinished)
        assert end.finish_reason == reason


@pytest.mark.parametrize(
    ("name", "answer", "error"),
    [
        (
            "anthropic/claude-x",
            [head(), event({"type": "error", "error": {"type": "overloaded_error"}})],
            ModelUnavailable,
        ),
        (
            "anthropic/claude-x",
            [
                head("400 Bad Request", "application/json"),
                b'{"type":"error","error":{"type":"invalid_request_error",'
                b'"message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
            ],
            ContextTooLong,
        ),
        (
            "gemini/gemini-x",
            [
                head("429 Too Many Requests", "application/json"),
                b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota"}}]',
            ],
            ModelRateLimited,
        ),
        (
            "openai_responses/x",
            [
                head(),
                event({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
            ],
            ModelUnavailable,
        ),
        ("gemini/gemini-x", [head(), b"data: [1]\n\n"], ModelProtocolError),
        (
            "anthropic/claude-x",
            [head(), event({"type": "content_block_delta"})],
            ModelProtocolError,
        ),
        ("openai_responses/x", [head(), event({"kind": "?"})], ModelProtocolError),
    ],
)
async def test_failure_has_its_class(
    name: str, answer: Sequence[bytes], error: type[ModelError]
) -> None:
    async with asked(name, answer) as (model, _):
        with pytest.raises(error):
            await pieces_of(model)


async def test_arguments_that_come_only_at_the_end_of_a_call_are_taken() -> None:
    lines = [line for line in RESPONSES.split(b"\n\n") if b"arguments.delta" not in line]
    async with asked("openai_responses/gpt-5.4", [head(), b"\n\n".join(lines)]) as (model, _):
        assert whole(await pieces_of(model)) == expected("openai_responses/gpt-5.4")


DONE = [head(), event({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]})]


@pytest.mark.parametrize(
    ("version", "base", "path"),
    [
        (
            "2024-10-21",
            "",
            "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21",
        ),
        (None, "", "/openai/v1/chat/completions"),
        (None, "/openai/v1", "/openai/v1/chat/completions"),
    ],
)
async def test_azure_is_reached_at_a_deployment_or_at_v1(
    version: str | None, base: str, path: str
) -> None:
    provider = Provider(DONE)
    async with served(provider) as url, ModelClients() as clients:
        spec = ModelSpec("azure/my gpt", url + base, "KEY", api="azure", api_version=version)
        await pieces_of(build_model(spec, clients, {"KEY": "k3y"}))
    assert provider.heads[0].startswith(f"POST {path} HTTP/1.1")
    assert "api-key: k3y" in provider.heads[0] and "Authorization" not in provider.heads[0]
    assert provider.bodies[0]["model"] == "my gpt"


async def test_azure_takes_a_token_and_its_address_from_the_environment() -> None:
    provider = Provider(DONE)
    async with served(provider) as url, ModelClients() as clients:
        environ = {
            "AZURE_OPENAI_ENDPOINT": url,
            "AZURE_OPENAI_AD_TOKEN": "t0ken",
            "OPENAI_API_VERSION": "2025-01-01",
        }
        await pieces_of(build_model(ModelSpec("azure/gpt"), clients, environ))
        assert "Authorization: Bearer t0ken" in provider.heads[0]
        assert "api-version=2025-01-01" in provider.heads[0]
        with pytest.raises(ConfigurationError, match="AZURE_API_KEY or AZURE_OPENAI_API_KEY"):
            build_model(ModelSpec("azure/gpt"), clients, {"AZURE_OPENAI_ENDPOINT": url})
        with pytest.raises(ConfigurationError, match="AZURE_API_BASE"):
            build_model(ModelSpec("azure/gpt"), clients, {"AZURE_API_KEY": "k"})


async def test_options_are_sent_with_every_request() -> None:
    options = RequestOptions(
        headers={"X-Team": "blue", "authorization": "Custom 1"},
        query={"tenant": "a b"},
        extra_body={"safe_mode": True, "temperature": 0.1},
        top_p=0.9,
        stop=("END",),
        seed=3,
    )
    async with asked("some", DONE, options=options) as (model, provider):
        await pieces_of(model, replace(HELLO, temperature=0.7))
    assert provider.heads[0].startswith("POST /chat/completions?tenant=a+b HTTP/1.1")
    assert "X-Team: blue" in provider.heads[0] and "authorization: Custom 1" in provider.heads[0]
    assert "k3y" not in provider.heads[0]
    body = provider.bodies[0]
    wanted = {"safe_mode": True, "temperature": 0.1, "top_p": 0.9, "stop": ["END"], "seed": 3}
    assert {name: body[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (
            {"code": "unsupported_parameter", "param": "temperature", "message": "no"},
            "temperature",
        ),
        ({"message": "Unrecognized request argument supplied: stream_options"}, "stream_options"),
        ({"message": "'temperature' is not supported with this model."}, "temperature"),
    ],
)
async def test_parameter_that_a_provider_does_not_know_is_left_out_from_then_on(
    error: dict[str, str], gone: str
) -> None:
    refused = [head("400 Bad Request", "application/json"), json.dumps({"error": error}).encode()]
    async with asked("some", refused, DONE) as (model, provider):
        prompt = replace(HELLO, temperature=0.7)
        for _ in range(2):
            await pieces_of(model, prompt)
    assert [gone in body for body in provider.bodies] == [True, False, False]


async def test_other_word_for_the_bound_is_tried_if_one_is_not_known() -> None:
    error = {"code": "unsupported_parameter", "param": "max_tokens"}
    refused = [head("400 Bad Request", "application/json"), json.dumps({"error": error}).encode()]
    async with asked("some", refused, DONE) as (model, provider):
        await pieces_of(model, replace(HELLO, max_tokens=9))
    assert provider.bodies[0]["max_tokens"] == provider.bodies[1]["max_completion_tokens"] == 9
    assert "max_tokens" not in provider.bodies[1]


async def test_refusal_names_the_parameter_and_is_not_repeated_for_what_an_answer_needs() -> None:
    error = {"code": "unsupported_parameter", "param": "tools"}
    refused = [head("400 Bad Request", "application/json"), json.dumps({"error": error}).encode()]
    async with asked("some", refused) as (model, provider):
        with pytest.raises(ModelError, match=r"400 \(unsupported_parameter: tools\)"):
            await pieces_of(model)
        assert len(provider.requests) == 1


async def test_reply_that_is_one_document_is_read() -> None:
    document = {
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Look:",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "a", "function": {"name": "weather-today", "arguments": "{}"}}
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3},
    }
    answer = [head("200 OK", "application/json"), json.dumps(document).encode()]
    async with asked("some", answer) as (model, _):
        assert await pieces_of(model) == [
            ReasoningDelta("hm"),
            TextDelta("Look:"),
            CallRequested("a", "weather-today", "{}"),
            TurnFinished("tool_calls", Usage(prompt_tokens=2, completion_tokens=3)),
        ]


def chat_events(*deltas: dict[str, Any], reason: str = "stop") -> bytes:
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    return events(*chunks, {"choices": [{"delta": {}, "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("stream", "thought", "text"),
    [
        (chat_events({"content": "<think>a<b"}, {"content": "</think>\n\nc"}), "a<b", "c"),
        (chat_events({"content": "\n<think>\nonly"}), "\nonly", ""),
        (chat_events({"content": "I <think> so</think>"}), "", "I <think> so</think>"),
        (chat_events({"content": "<th"}, {"content": "ere"}), "", "<there"),
        (chat_events({"content": "<thi"}), "", "<thi"),
        (
            chat_events(
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
                {"content": [{"type": "text", "text": "b"}]},
                {"content": "c"},
            ),
            "a",
            "bc",
        ),
    ],
)
async def test_thoughts_in_the_text_are_told_from_it_cut_at_every_byte(
    stream: bytes, thought: str, text: str
) -> None:
    async with asked("some", DONE) as (model, _):
        for cut in range(len(stream)):
            reading = model.reading(StreamedReply())
            pieces = [*reading.feed(stream[:cut]), *reading.feed(stream[cut:]), *reading.end()]
            found = whole(pieces)
            assert (found["thought"], found["text"]) == (thought, text), cut


async def test_call_in_the_older_form_is_understood() -> None:
    stream = chat_events(
        {"function_call": {"name": "weather-today", "arguments": ""}},
        {"function_call": {"arguments": '{"city"'}},
        {"function_call": {"arguments": ': "K"}'}},
        reason="function_call",
    )
    async with asked("some", [head(), stream]) as (model, _):
        call, end = await pieces_of(model)
    assert call == CallRequested("call_0", "weather-today", '{"city": "K"}')
    assert isinstance(end, TurnFinished) and end.finish_reason == "tool_calls"


JUNK: tuple[Any, ...] = (None, 5, True, "x", [], ["x"], {}, {"x": 1})


def spoilt(value: Any) -> Iterator[Any]:
    """The value with each part of it, in turn, replaced by something else."""
    yield from JUNK
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            yield from ({**value, name: junk} for junk in spoilt(inner))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from ([*value[:at], junk, *value[at + 1 :]] for junk in spoilt(inner))


@pytest.mark.parametrize("name", [*RECORDED, "some"])
async def test_event_of_another_form_is_an_error_of_the_model_and_nothing_else(name: str) -> None:
    recorded = RECORDED.get(name, chat_events({"content": "a"}, {"reasoning": "b"}))
    documents = [
        json.loads(line[6:]) for line in recorded.splitlines() if line.startswith(b"data: ")
    ]
    async with asked(name, DONE) as (model, _):
        for at, document in enumerate(documents):
            for bad in spoilt(document):
                reading = model.reading(StreamedReply())
                stream = [*documents[:at], bad, *documents[at + 1 :]]
                data = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in stream)
                try:
                    reading.feed(data)
                    reading.end()
                except ModelError:
                    pass
