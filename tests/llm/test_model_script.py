"""The language of scripts: cases, what patterns name, and pieces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sk_agents.engine.models import Message, ToolCall
from sk_agents.engine.turns import CallRequested, Prompt, ReasoningDelta, TextDelta
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.scripted import ModelScript, ScriptPlayer, load_script
from tests.llm.loopback import Waits, pieces_of, text_of

SCRIPT = r"""
rules:
  - match: '(?i)\bmail\b(?:.* to (?P<to>\w+))?'
    turns:
      - thinking: To {to|nobody}.
        calls: [{tool: Mail-send, arguments: {to: '{to|Ada}', copies: [1, '{user}'], urgent: true}}]
      - cases:
          - when: {result: '^Rejected by (?P<who>\w+)'}
            text: "{who} said no to {to|Ada}"
          - when: {result: slow, user: please}
            text: slow, and it was asked for nicely
          - when: {user: please}
            cases:
              - {when: {result: twice}, text: nested}
            text: you are welcome
        text: "sent: {result}; {unknown} {0} {}"
turns: [{text: "{results}|{result}"}]
"""


def player(folder: Path, text: str = SCRIPT, waits: Waits | None = None) -> ScriptPlayer:
    (folder / "talk.yaml").write_text(text)
    return ScriptPlayer(load_script("talk.yaml", folder), (waits or Waits()).timing)


def round_of(said: str, *results: str) -> Prompt:
    calls = tuple(
        ToolCall(id=str(number), plugin_name="Mail", function_name="send", arguments={})
        for number, _ in enumerate(results)
    )
    told = [Message(role="tool", content=r, tool_call_id=str(n)) for n, r in enumerate(results)]
    asked = Message(role="assistant", tool_calls=calls)
    return Prompt([Message(role="user", content=said), asked, *told])


@pytest.mark.parametrize(
    ("said", "result", "answer"),
    [
        ("mail to Bob", "Rejected by eve: no", "eve said no to Bob"),
        ("mail", "Rejected by eve", "eve said no to Ada"),
        ("mail, please", "slow", "slow, and it was asked for nicely"),
        ("mail", "slow", "sent: slow; {unknown} {0} {}"),
        ("mail, please", "ok", "you are welcome"),
        ("mail, please", "ok twice", "nested"),
        ("mail {who}", "{to}", "sent: {to}; {unknown} {0} {}"),
    ],
)
async def test_case_is_chosen_by_message_and_results(
    tmp_path: Path, said: str, result: str, answer: str
) -> None:
    assert await text_of(player(tmp_path), round_of(said, result)) == answer


async def test_one_of_several_results_is_enough(tmp_path: Path) -> None:
    prompt = round_of("mail", "ok", "Rejected by eve", "ok")
    assert await text_of(player(tmp_path), prompt) == "eve said no to Ada"


async def test_what_a_pattern_names_is_filled_into_thoughts_and_arguments(tmp_path: Path) -> None:
    said = "mail to Bob"
    thought, call, _ = await pieces_of(
        player(tmp_path), Prompt([Message(role="user", content=said)])
    )
    assert thought == ReasoningDelta("To Bob.")
    assert isinstance(call, CallRequested)
    assert call.arguments == '{"to":"Bob","copies":[1,"mail to Bob"],"urgent":true}'


async def test_results_are_listed_with_their_tools_and_only_of_the_last_round(
    tmp_path: Path,
) -> None:
    listed = "- `Mail-send`: a\n- `Mail-send`: b|b"
    assert await text_of(player(tmp_path), round_of("x", "a", "b")) == listed
    later = [*round_of("x", "a", "b").messages, Message(role="user", content="y")]
    assert await text_of(player(tmp_path), Prompt(later)) == "|b"


@pytest.mark.parametrize("text", ["a b", "  a\n\n| b |c ", "", "\n", "word"])
async def test_words_put_together_are_the_text(tmp_path: Path, text: str) -> None:
    spoken = player(tmp_path, f"pieces: words\nturns: [{{text: {text!r}}}]".replace("'", '"'))
    pieces = [p.content for p in await pieces_of(spoken) if isinstance(p, TextDelta)]
    assert "".join(pieces) == text
    assert len(pieces) <= len(text.split()) + 1


async def test_pace_of_the_script_holds_where_a_turn_says_nothing(tmp_path: Path) -> None:
    text = "{pieces: 2, delay_ms: 5, turns: [{text: ab}, {text: cd, pieces: 1, delay_ms: 0}]}"
    waits = Waits()
    script = player(tmp_path, text, waits)
    await pieces_of(script)
    second = [Message(role="user", content="x"), Message(role="assistant", content="y")]
    await pieces_of(script, Prompt(second))
    assert waits.seconds == [0.005, 0.005]


async def test_pauses_can_be_stretched_and_left_out(tmp_path: Path) -> None:
    waits = Waits()
    script = player(tmp_path, "{delay_ms: 10, turns: [{text: a}]}", waits)
    await pieces_of(script.slowed(0))
    assert waits.seconds == []
    await pieces_of(script.slowed(2))
    assert waits.seconds == [0.02]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("turns: [{when: {user: a}, text: b}]", r"turns: .*a when belongs to"),
        ("turns: [{cases: [{text: b}]}]", r"turns\.0: .*needs a when"),
        ("turns: [{cases: [{when: {}, text: b}]}]", r"turns\.0\.cases\.0\.when: .*user or result"),
        ("turns: [{cases: [{when: {result: '('}}]}]", r"turns\.0\.cases\.0\.when\.result"),
        ("{pieces: letters, turns: [{}]}", "pieces"),
        ("{delay_ms: -1, turns: [{}]}", "delay_ms"),
    ],
)
def test_condition_that_means_nothing_stops_the_start(
    tmp_path: Path, text: str, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"talk\.yaml: .*{field}"):
        player(tmp_path, text)


def test_script_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page.partition("## Scripts")[2], re.DOTALL)
    script = ModelScript.model_validate(yaml.safe_load(block))
    (rule,) = script.rules
    assert [bool(turn.cases) for turn in rule.turns] == [False, True]
