"""Scripts in files: which turn is played, and what stops a start-up."""

from pathlib import Path

import pytest

from sk_agents.engine.models import Message
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import ConfigurationError, ModelRateLimited
from sk_agents.llm.scripted import BUILT_IN, ScriptPlayer, load_script
from tests.llm.loopback import Waits, pieces_of, text_of

SCRIPT = """
rules:
  - match: "(?i)weather"
    turns:
      - thinking: let me look
        calls: [{tool: weather-today, arguments: {city: Paris}}]
      - text: "It is {result}."
turns:
  - {text: first}
  - {text: second, finish: length}
"""


def script(folder: Path, text: str = SCRIPT, waits: Waits | None = None) -> ScriptPlayer:
    (folder / "talk.yaml").write_text(text)
    return ScriptPlayer(load_script("talk.yaml", folder), (waits or Waits()).timing)


def asked(*contents: str) -> Prompt:
    """A conversation in which people and the model spoke by turns."""
    roles = ("user", "assistant")
    return Prompt([Message(role=roles[n % 2], content=c) for n, c in enumerate(contents)])  # type: ignore[arg-type]  # of two roles


async def test_turns_follow_the_conversation_and_begin_again(tmp_path: Path) -> None:
    player = script(tmp_path)
    assert await text_of(player, asked("a")) == "first"
    assert await text_of(player, asked("a", "first", "b")) == "second"
    assert await text_of(player, asked("a", "first", "b", "second", "c")) == "first"
    assert await text_of(player, asked("another conversation")) == "first"


async def test_rule_plays_its_turns_round_by_round(tmp_path: Path) -> None:
    player = script(tmp_path)
    prompt = asked("a", "first", "how is the Weather?")
    *said, end = await pieces_of(player, prompt)
    call = CallRequested("scripted_0", "weather-today", '{"city":"Paris"}')
    assert said == [ReasoningDelta("let me look"), call]
    result = [Message(role="assistant"), Message(role="tool", content="sunny", tool_call_id="x")]
    assert await text_of(player, Prompt([*prompt.messages, *result])) == "It is sunny."


async def test_finish_reason_and_estimated_usage_are_reported(tmp_path: Path) -> None:
    *_, end = await pieces_of(script(tmp_path), asked("a", "first", "b"))
    assert isinstance(end, TurnFinished)
    assert end.finish_reason == "length"
    assert end.usage.prompt_tokens > 0 < end.usage.completion_tokens


async def test_pieces_are_paced_by_the_given_sleep(tmp_path: Path) -> None:
    waits = Waits()
    player = script(tmp_path, "turns: [{text: abcdef, pieces: 3, delay_ms: 20}]", waits)
    assert (await pieces_of(player))[:3] == [TextDelta("ab"), TextDelta("cd"), TextDelta("ef")]
    assert waits.seconds == [0.02] * 3


async def test_failure_comes_after_what_was_said_and_only_so_often(tmp_path: Path) -> None:
    player = script(tmp_path, "turns: [{text: half, fail: rate_limited, fail_times: 1}]")
    seen: list[ModelPiece] = []
    with pytest.raises(ModelRateLimited):
        async for pieces in player.stream(asked("a")):
            seen += pieces
    assert seen == [TextDelta("half")]
    assert await text_of(player, asked("a")) == "half"


async def test_json_is_a_script_too(tmp_path: Path) -> None:
    assert await text_of(script(tmp_path, '{"turns": [{"text": "hi"}]}')) == "hi"


async def test_echo_repeats_the_user() -> None:
    player = ScriptPlayer(load_script("echo", Path.cwd()))
    assert await text_of(player, asked("grüß dich")) == "You said: grüß dich"


@pytest.mark.parametrize("name", sorted(path.stem for path in BUILT_IN.glob("*.yaml")))
def test_every_script_of_the_package_is_sound(name: str) -> None:
    assert load_script(name, Path.cwd()).turns


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("turns: []", "turns"),
        ("turns: [{txt: a}]", r"turns\.0\.txt"),
        ("turns: [{fail: loudly}]", r"turns\.0\.fail"),
        ('{rules: [{match: "(", turns: [{}]}], turns: [{}]}', r"rules\.0\.match"),
        ("5", "script"),
        ("turns: [", "line"),
    ],
)
def test_broken_script_stops_the_start_with_file_and_field(
    tmp_path: Path, text: str, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"talk\.yaml.*{field}"):
        script(tmp_path, text)


def test_missing_script_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yaml"):
        load_script("gone.yaml", tmp_path)
