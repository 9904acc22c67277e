"""Prompts in the words of chat completions."""

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from weakref import ref

import pytest

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.run.conversation import Conversation, Past
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.llm.openai_wire import (
    Dialect,
    RequestEncoder,
    encoded,
    request_body,
    wire_message,
)

HELLO = Message(role="user", content="hello")
IMAGE = Part(kind="image", content="data:image/png;base64,AAAA")
FILE = Part(kind="file", content="a,b", name="table.csv")


def sent(prompt: Prompt, dialect: Dialect | None = None) -> dict[str, Any]:
    body = json.loads(encoded(request_body("m", prompt, dialect or Dialect())))
    assert isinstance(body, dict)
    return body


def test_what_the_prompt_leaves_open_is_not_sent() -> None:
    assert sent(Prompt([HELLO])) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_temperature_zero_is_a_value() -> None:
    assert sent(Prompt([HELLO], temperature=0.0))["temperature"] == 0.0


def test_limits_and_effort_are_sent_in_the_endpoints_words() -> None:
    prompt = Prompt([HELLO], max_tokens=7, reasoning_effort="low")
    assert sent(prompt)["max_tokens"] == 7
    body = sent(prompt, Dialect("max_completion_tokens", asks_for_usage=False))
    assert body["max_completion_tokens"] == 7
    assert body["reasoning_effort"] == "low"
    assert "stream_options" not in body


def test_tools_are_offered_as_functions() -> None:
    parameters = MappingProxyType({"type": "object", "properties": MappingProxyType({})})
    body = sent(Prompt([HELLO], tools=[ToolSpec("a-b", "does b", parameters)]))
    function = {
        "name": "a-b",
        "description": "does b",
        "parameters": {"type": "object", "properties": {}},
    }
    assert body["tools"] == [{"type": "function", "function": function}]


def test_call_and_its_result_are_joined_by_id() -> None:
    call = ToolCall(id="c1", plugin_name="a", function_name="b", arguments={"x": 1})
    asked = wire_message(Message(role="assistant", tool_calls=(call,)))
    assert asked == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "a-b", "arguments": '{"x":1}'}}
        ],
    }
    result = wire_message(Message(role="tool", content="done", tool_call_id="c1"))
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "done"}


def test_image_makes_the_content_a_list_of_parts() -> None:
    message = Message(role="user", parts=(Part(content="see"), IMAGE, FILE))
    assert wire_message(message)["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "File table.csv:\na,b"},
    ]


def test_parts_without_an_image_are_plain_text() -> None:
    message = Message(role="user", parts=(Part(content="see"), FILE))
    assert wire_message(message)["content"] == "see\nFile table.csv:\na,b"


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        (
            {
                "title": "My Answer",
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
    ],
)
def test_schema_is_strict_only_where_strict_mode_takes_it(
    schema: dict[str, Any], strict: bool
) -> None:
    wanted = sent(Prompt([HELLO], response_schema=schema))["response_format"]
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["strict"] is strict
    assert wanted["json_schema"]["schema"] == schema
    assert " " not in wanted["json_schema"]["name"]


def test_numbers_and_characters_that_orjson_refuses_are_sent() -> None:
    call = ToolCall(id="c", plugin_name="", function_name="f", arguments={"n": 2**70})
    messages = [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="user", content="\ud800"),
    ]
    body = sent(Prompt(messages))
    assert json.loads(body["messages"][0]["tool_calls"][0]["function"]["arguments"]) == {"n": 2**70}
    assert body["messages"][1]["content"] == "\ud800"


def test_bytes_on_the_wire_say_the_same() -> None:
    messages = [Message(role="system", content="é"), Message(role="user", content="hi\n")]
    prompt = Prompt(messages, temperature=0.0)
    encoder = RequestEncoder("m")
    first = encoder.encode(prompt)
    assert json.loads(first) == request_body("m", prompt)
    assert encoder.encode(prompt) == first


def test_options_that_change_from_one_prompt_to_the_next_are_encoded_anew() -> None:
    encoder = RequestEncoder("m")
    messages = [Message(role="user", content="hi")]
    tool = ToolSpec("t", "does", {"type": "object"})
    prompts = [
        Prompt(messages),
        Prompt(messages, tools=[tool]),
        Prompt(messages, tools=[replace(tool, description="does more")]),
        Prompt(messages, temperature=0.5),
        Prompt(messages, max_tokens=7),
        Prompt(messages, reasoning_effort="low"),
        Prompt(messages, response_schema={"type": "object"}),
        Prompt(messages, response_schema={"type": "array"}),
    ]
    for prompt in (*prompts, *prompts):
        assert json.loads(encoder.encode(prompt)) == request_body("m", prompt)


def test_past_of_a_conversation_is_encoded_once_and_grows_with_it() -> None:
    encoder, past = RequestEncoder("m"), Past()
    system = (Message(role="system", content="be kind"),)
    for number in range(5):
        now = [Message(role="user", content=f"é {number}")]
        prompt = Prompt(Conversation(system, past, now))
        assert json.loads(encoder.encode(prompt)) == request_body("m", prompt)
        # Asked again, after a failure.
        assert json.loads(encoder.encode(prompt)) == request_body("m", prompt)
        past.messages += [*now, Message(role="assistant", content=f"answer {number}")]
    past.messages[0] = Message(role="user", content="looked at again")
    assert b"looked at again" not in encoder.encode(Prompt(Conversation(system, past, [])))


def test_encoded_past_goes_with_its_conversation() -> None:
    encoder, past = RequestEncoder("m"), Past([HELLO])
    encoder.encode(Prompt(Conversation((), past, [HELLO])))
    kept = ref(past)
    del past
    assert kept() is None


def test_prompt_older_than_what_was_sent_since_is_encoded_as_it_is() -> None:
    encoder, past = RequestEncoder("m"), Past([HELLO])
    earlier = Prompt(Conversation((), past, [HELLO]))
    past.messages += [Message(role="assistant", content="hi"), HELLO]
    later = Prompt(Conversation((), past, []))
    for prompt in (later, earlier, later):
        assert json.loads(encoder.encode(prompt)) == request_body("m", prompt)


def test_beginning_of_a_conversation_is_only_what_is_said_now() -> None:
    prompt = Prompt(Conversation((), Past(), [HELLO]))
    assert json.loads(RequestEncoder("m").encode(prompt)) == request_body("m", prompt)
