"""Estimates that are near enough, and windows by the model's name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.llm.tokens import (
    context_window,
    estimate_message,
    estimate_prompt,
    estimate_text,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # What common tokenizers of today make of these, roughly.
        ("The quick brown fox jumps over the lazy dog, and then it rests for a while. ", 18),
        ("Съешь же ещё этих мягких французских булок, да выпей чаю. ", 20),
        ("我能吞下玻璃而不伤身体，这是一个很长的句子。", 18),
        ("😀🎉🚀👍", 8),
    ],
)
def test_estimate_is_within_a_factor_of_two(text: str, tokens: int) -> None:
    assert tokens / 2 <= estimate_text(text) <= tokens * 2


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[])), st.text())
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert estimate_text(text) <= estimate_text(text + more)
    assert (estimate_text(text) == 0) == (text == "")


def test_everything_the_model_reads_is_counted() -> None:
    call = ToolCall(id="1", plugin_name="a", function_name="b", arguments={"n": 2**70})
    plain = estimate_message(Message(role="user", content="hi"))
    assert estimate_message(Message(role="assistant", content="hi", tool_calls=(call,))) > plain
    image = Part(kind="image", content="data:image/png;base64," + "A" * 1_000_000)
    assert plain < estimate_message(Message(role="user", parts=(image,))) < 10_000
    prompt = Prompt([Message(role="user", content="hi")])
    tool = ToolSpec("a-b", "does b", {"type": "object"})
    assert estimate_prompt(Prompt(prompt.messages, tools=[tool])) > estimate_prompt(prompt)
    schema = {"type": "object"}
    assert estimate_prompt(Prompt(prompt.messages, response_schema=schema)) > plain


def counted(*messages: Message, **fields: Any) -> int:
    return estimate_prompt(Prompt(list(messages), **fields))


HI = Message(role="user", content="hi")
WORDS = "word " * 80


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("x" * 1000, 271),
        ("\u0436" * 1000, 551),
        ("\u6211" * 1000, 1001),
        ("\U0001f600" * 1000, 2201),
        ("x" * 1000 + "\u0436" * 1000 + "\u6211" * 1000, 1821),
        ("x", 1),
    ],
    ids=["latin", "cyrillic", "chinese", "emoji", "mixed", "one letter"],
)
def test_each_letter_counts_by_the_script_it_belongs_to(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens


def test_first_and_last_letters_of_each_length_are_counted_once() -> None:
    for letter in "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff":
        once, often = estimate_text(letter * 1000), estimate_text(letter * 3000)
        assert often - once == pytest.approx(2 * (once - 1), abs=1)
        assert once > 100


def test_call_counts_its_name_and_its_arguments() -> None:
    call = ToolCall(id="1", plugin_name="Files", function_name="look", arguments={"text": WORDS})
    message = Message(role="assistant", tool_calls=(call,))
    text = estimate_text("Files-look") + estimate_text(WORDS)
    assert text < estimate_message(message) - estimate_message(Message(role="user")) < text + 20
    twice = Message(role="assistant", tool_calls=(call, call))
    empty = estimate_message(Message(role="user"))
    assert estimate_message(twice) - empty == 2 * (estimate_message(message) - empty)


def test_text_and_pictures_of_a_message_are_added_up() -> None:
    text, picture = Part(content=WORDS), Part(kind="image", content="data:,")
    empty = estimate_message(Message(role="user"))
    both = estimate_message(Message(role="user", content=WORDS, parts=(text, picture)))
    assert both - empty == 2 * estimate_text(WORDS) + 1_100


def test_tool_counts_its_name_description_and_parameters() -> None:
    plain = counted(HI, tools=[ToolSpec("a-b", "", {})])
    described = counted(HI, tools=[ToolSpec("a-b", WORDS, {})])
    detailed = counted(HI, tools=[ToolSpec("a-b", WORDS, {"description": WORDS})])
    assert counted(HI) < plain
    assert described - plain == estimate_text(WORDS)
    assert detailed - described == pytest.approx(estimate_text(WORDS), abs=5)
    two = [ToolSpec("a-b", WORDS, {}), ToolSpec("a-b", WORDS, {})]
    assert counted(HI, tools=two) - counted(HI) == 2 * (described - counted(HI))


def test_schema_of_the_answer_is_counted() -> None:
    schema = {"description": WORDS}
    more = counted(HI, response_schema=schema) - counted(HI)
    assert more == pytest.approx(estimate_text(WORDS), abs=6)
    assert counted(HI, response_schema={}) > counted(HI)


def test_messages_are_added_up() -> None:
    assert counted(HI, HI, HI) == 3 * estimate_message(HI)


def test_number_too_large_for_json_is_counted_as_it_is_written() -> None:
    call = ToolCall(id="1", plugin_name="a", function_name="b", arguments={"n": 10**400})
    counted_once = estimate_message(Message(role="assistant", tool_calls=(call,)))
    assert counted_once > estimate_text("1" * 400)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o-mini", 128_000),
        ("openai/gpt-4.1", 1_047_576),
        ("gpt-4", 8_192),
        ("o3-mini", 200_000),
        ("anthropic/claude-sonnet-4-5", 200_000),
        ("groq/llama-3.3-70b-versatile", 131_072),
        ("openrouter/meta-llama/llama-3-8b-instruct", 8_192),
        ("ollama/llama3.2:1b", 4_096),
        ("local/smollm2", 8_192),
        ("who-knows", 8_192),
        ("foo1", 8_192),
    ],
)
def test_window_follows_the_models_family(model: str, window: int) -> None:
    assert context_window(model) == window


def test_override_wins() -> None:
    assert context_window("ollama/llama3", 32_768) == 32_768


def test_window_of_a_model_served_by_ollama_is_the_smaller_one() -> None:
    assert context_window("ollama/llama-2") == 4_096
    assert context_window("ollama_chat/gemma") == 4_096
    assert context_window("vllm/llama-2") == 4_096
