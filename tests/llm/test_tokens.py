"""Estimates that are near enough, and nearer after each report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.llm.tokens import (
    Calibration,
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


def test_calibration_approaches_what_is_reported() -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration = calibration.learned(100, 150)
    assert calibration.applied(1000) == pytest.approx(1500, rel=0.01)


@pytest.mark.parametrize(("estimated", "reported"), [(0, 5), (5, 0), (5, -1)])
def test_absent_reports_teach_nothing(estimated: int, reported: int) -> None:
    assert Calibration(1.2).learned(estimated, reported) == Calibration(1.2)


def test_absurd_report_moves_the_average_by_a_bounded_step() -> None:
    assert Calibration().learned(1, 10**9).factor <= 1.6


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
