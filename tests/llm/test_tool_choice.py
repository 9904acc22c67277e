"""Which tool a model must call, and whether several at once: in the words of each provider."""

from __future__ import annotations

from typing import Any

import pytest

from sk_agents.engine.models import Message
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.llm import anthropic_messages, gemini, openai_responses, openai_wire
from sk_agents.llm.streamed_chat import Endpoint

TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
CHOICES = ("auto", "none", "required", "look")


def body(provider: str, **fields: Any) -> dict[str, Any]:
    prompt = Prompt(**{"messages": [Message(role="user", content="Hi")], "tools": [TOOL], **fields})
    endpoint = Endpoint("http://127.0.0.1:9", "m-5")
    match provider:
        case "chat":
            return openai_wire.request_body("m", prompt)
        case "responses":
            return openai_responses.request_body(endpoint, prompt)
        case "anthropic":
            return anthropic_messages.request_body(endpoint, prompt)
        case _:
            return gemini.request_body(endpoint, prompt)


def choice(provider: str, **fields: Any) -> Any:
    sent = body(provider, **fields)
    if provider == "gemini":
        return sent.get("toolConfig", {}).get("functionCallingConfig")
    return sent.get("tool_choice")


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (
            "chat",
            ["auto", "none", "required", {"type": "function", "function": {"name": "look"}}],
        ),
        ("responses", ["auto", "none", "required", {"type": "function", "name": "look"}]),
        (
            "anthropic",
            [{"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "look"}],
        ),
        (
            "gemini",
            [
                {"mode": "AUTO"},
                {"mode": "NONE"},
                {"mode": "ANY"},
                {"mode": "ANY", "allowedFunctionNames": ["look"]},
            ],
        ),
    ],
)
def test_choice_of_a_tool_is_said_in_the_provider_s_words(
    provider: str, expected: list[Any]
) -> None:
    assert [choice(provider, tool_choice=each) for each in CHOICES] == expected
    assert choice(provider) is None
    assert choice(provider, tool_choice="required", tools=()) is None


def test_one_call_at_a_time_is_asked_for_where_the_provider_has_a_word_for_it() -> None:
    for provider in ("chat", "responses"):
        assert body(provider, parallel_tool_calls=False)["parallel_tool_calls"] is False
        assert "parallel_tool_calls" not in body(provider)
    one = {"type": "auto", "disable_parallel_tool_use": True}
    assert choice("anthropic", parallel_tool_calls=False) == one
    assert choice("anthropic", parallel_tool_calls=True) is None


def test_a_model_of_anthropic_that_thinks_is_not_made_to_call() -> None:
    assert choice("anthropic", tool_choice="look", reasoning_effort="low") == {"type": "auto"}
    assert choice("anthropic", tool_choice="none", reasoning_effort="low") == {"type": "none"}


def test_an_encoder_does_not_repeat_an_earlier_choice() -> None:
    encoder = openai_wire.RequestEncoder("m")
    messages = [Message(role="user", content="Hi")]
    first = Prompt(messages, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    second = Prompt(messages, tools=[TOOL])
    assert b'"tool_choice":"required"' in encoder.encode(first)
    assert b"tool_choice" not in encoder.encode(second)
