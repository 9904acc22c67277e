"""The `approvals` block: a mistake in it stops the start and opens nothing."""

import logging
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.rules import MAX_VISITS, is_possible, read_approvals, refuse_strays
from tests.hitl.specs import FILE, READ, WRITE, call, policy

RULE: dict[str, Any] = {"tool": "Files-*", "then": "allow"}


def rule(**changes: Any) -> dict[str, Any]:
    return {"rules": [RULE, {**RULE, **changes}]}


def test_whole_block_is_read() -> None:
    approvals = read_approvals(
        {
            "default": "deny",
            "rules": [{**RULE, "when": {"amount": {"in": [1]}}, "reason": "small"}],
            "expires_after": 3600,
            "on_reject": "cancel",
        },
        path=FILE,
    )
    assert (approvals.default, approvals.expires_after, approvals.on_reject) == (
        "deny",
        3600,
        "cancel",
    )
    assert approvals.rules[0].reason == "small"


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ([], "approvals: Input should be"),
        ("ask", "approvals: Input should be"),
        ({"defualt": "ask"}, "approvals.defualt: Extra inputs are not permitted"),
        ({"default": "yes"}, "approvals.default: Input should be 'allow', 'ask' or 'deny'"),
        ({"default": True}, "approvals.default: Input should be"),
        ({"rules": {"tool": "*"}}, "approvals.rules: Input should be"),
        ({"rules": [{"tool": "*"}]}, "approvals.rules[0].then: Field required"),
        ({"rules": [{"then": "ask"}]}, "approvals.rules[0].tool: Field required"),
        (rule(then="block"), "approvals.rules[1].then: Input should be"),
        (rule(wenn={}), "approvals.rules[1].wenn: Extra inputs"),
        (rule(tool="Files write"), "approvals.rules[1].tool: String should match"),
        (rule(tool="Files-\u0435dit"), "approvals.rules[1].tool: String should match"),
        (rule(tool="Files-*\n"), "approvals.rules[1].tool: String should match"),
        (rule(when={"path": "x"}), "approvals.rules[1].when.path: Input should be"),
        (rule(when={"path": {}}), "approvals.rules[1].when.path: says nothing"),
        (rule(when={"path": {"lt": None}}), "approvals.rules[1].when.path: says nothing"),
        (rule(when={"path": {"equal": 1}}), "approvals.rules[1].when.path.equal: Extra"),
        (rule(when={"path": {"one_of": [1]}}), "approvals.rules[1].when.path.one_of: Extra"),
        (rule(when={"path": {"in": []}}), "approvals.rules[1].when.path.in: List should have"),
        (rule(when={"path": {"in": "ab"}}), "approvals.rules[1].when.path.in: Input should be"),
        (rule(when={"path": {"lt": "5"}}), "approvals.rules[1].when.path.lt"),
        (rule(when={"path": {"lt": True}}), "approvals.rules[1].when.path.lt"),
        (rule(when={"path": {"lt": float("nan")}}), "approvals.rules[1].when.path.lt"),
        (rule(when={"path": {"starts_with": ""}}), "approvals.rules[1].when.path.starts_with"),
        (rule(when={"path": {"matches": "*" * 300}}), "approvals.rules[1].when.path.matches"),
        (rule(when={"path": {"exists": "no"}}), "approvals.rules[1].when.path.exists"),
        (rule(when={"path": {"equals": {1}}}), "put it in quotes"),
        (rule(when={"": {"equals": 1}}), "approvals.rules[1].when: an argument's name"),
        (rule(when={"/a~2": {"equals": 1}}), "approvals.rules[1].when: in a pointer"),
        ({"expires_after": 0}, "approvals.expires_after: Input should be greater"),
        ({"expires_after": "24h"}, "approvals.expires_after: Input should be a valid number"),
        ({"on_reject": "stop"}, "approvals.on_reject: Input should be 'c"),
    ],
)
def test_mistake_stops_the_start_with_file_field_and_reason(block: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_approvals(block, path=FILE)
    assert str(caught.value).startswith("config.yaml: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (rule(tool="Flies-*"), r"config.yaml: approvals.rules\[1\].tool: no tool is called"),
        (rule(when={"paht": {"exists": False}}), r"rules\[1\].when: 'Files-\*' has no argument"),
        (rule(when={"/to/ctiy": {"exists": True}}), "has no argument '/to/ctiy'"),
        (rule(when={"/copies/city": {"exists": True}}), "has no argument '/copies/city'"),
        (rule(when={"/copies/0/ctiy": {"exists": True}}), "has no argument '/copies/0/ctiy'"),
    ],
)
def test_rule_that_can_apply_to_no_tool_stops_the_start(block: Any, reason: str) -> None:
    approvals = read_approvals(block, path=FILE)
    with pytest.raises(ConfigurationError, match=reason):
        refuse_strays(approvals, [READ, WRITE], path=FILE)


def test_rule_about_a_tool_that_is_not_known_yet_is_accepted_and_a_known_ones_is_checked() -> None:
    later = read_approvals(rule(tool="Mcp-anything"), path=FILE)
    refuse_strays(later, [READ, WRITE], path=FILE, live=("Mcp-",))
    with pytest.raises(ConfigurationError, match="no tool is called"):
        refuse_strays(later, [READ, WRITE], path=FILE)
    typo = read_approvals(rule(when={"paht": {"exists": True}}), path=FILE)
    with pytest.raises(ConfigurationError, match="has no argument"):
        refuse_strays(typo, [READ, WRITE], path=FILE, live=("Files-",))


@pytest.mark.parametrize("tool", ["*", "mcp_*", "mcp_todo*", "*-delete_task", "mcp_todo-[ab]*"])
def test_pattern_that_may_mean_tools_of_a_server_is_accepted_before_they_are_known(
    tool: str,
) -> None:
    later = read_approvals(rule(tool=tool, when={"anything": {"exists": True}}), path=FILE)
    refuse_strays(later, [READ, WRITE], path=FILE, live=("mcp_todo-",))


def test_pattern_for_every_tool_is_accepted_where_there_is_none() -> None:
    approvals = read_approvals({"rules": [{**RULE, "tool": "*"}]}, path=FILE)
    refuse_strays(approvals, [], path=FILE)


def test_pattern_for_another_server_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="no tool is called"):
        refuse_strays(
            read_approvals(rule(tool="mcp_tood-*"), path=FILE),
            [READ],
            path=FILE,
            live=("mcp_todo-",),
        )


def test_rule_that_can_apply_is_accepted() -> None:
    when = {"/to/next/city": {"exists": True}, "/labels/anything": {"exists": True}}
    when["/copies/0/city"] = {"exists": True}
    approvals = read_approvals(rule(when=when), path=FILE)
    refuse_strays(approvals, [READ, WRITE], path=FILE)


def test_default_allow_is_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read_approvals({"default": "allow"}, path=FILE)
    assert "config.yaml: approvals.default is allow" in caplog.text


def swapped(word: str, position: int) -> str:
    """The word with two neighbouring letters exchanged, as fingers do."""
    at = position % (len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


SOUND: dict[str, Any] = {
    "default": "ask",
    "rules": [
        {"tool": "Files-write", "when": {"amount": {"not_in": [1, 2]}}, "then": "allow"},
        {"tool": "Files-write", "when": {"force": {"exists": False}}, "then": "allow"},
    ],
}
WORDS = ["Files-write", "amount", "force", "not_in", "exists", "allow", "when", "tool", "then"]


def misspelt(value: Any, word: str, wrong: str) -> Any:
    match value:
        case dict():
            return {
                misspelt(name, word, wrong): misspelt(entry, word, wrong)
                for name, entry in value.items()
            }
        case list():
            return [misspelt(entry, word, wrong) for entry in value]
        case _:
            return wrong if value == word else value


@given(
    word=st.sampled_from([*WORDS, "default", "rules", "ask"]),
    position=st.integers(0, 20),
    arguments=st.fixed_dictionaries(
        {"amount": st.integers(0, 3), "force": st.none() | st.booleans()}
    ),
)
def test_typo_in_a_rule_never_opens_a_gate(
    word: str, position: int, arguments: dict[str, Any]
) -> None:
    """Every word of a sound block, misspelt: no start, or nothing runs that did not before."""
    wrong = swapped(word, position)
    assume(wrong != word)
    wanted = call(WRITE, arguments)
    try:
        mistaken = policy(misspelt(SOUND, word, wrong)).verdict(wanted, WRITE)
    except ConfigurationError:
        return
    assert mistaken == "ask" or policy(SOUND).verdict(wanted, WRITE) == "allow"


@pytest.mark.parametrize("pattern", ["*", "**", "*-*", "?*"])
def test_rule_that_allows_every_tool_is_said_at_the_start(
    caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    rules = [{"tool": "Files-*", "then": "ask"}, {"tool": pattern, "then": "allow"}]
    with caplog.at_level(logging.WARNING):
        read_approvals({"rules": rules}, path=FILE)
    assert "config.yaml: approvals.rules[1] allows every tool" in caplog.text


@pytest.mark.parametrize(
    "rule",
    [
        {"tool": "*", "then": "ask"},
        {"tool": "Files-*", "then": "allow"},
        {"tool": "*", "when": {"path": {"exists": True}}, "then": "allow"},
    ],
)
def test_rule_that_allows_less_is_not_spoken_of(
    caplog: pytest.LogCaptureFixture, rule: dict[str, object]
) -> None:
    with caplog.at_level(logging.WARNING):
        read_approvals({"rules": [rule]}, path=FILE)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("schema", "possible"),
    [
        ({}, True),
        ({"type": "object"}, True),
        ({"type": "object", "additionalProperties": False}, False),
        ({"type": "object", "properties": {"other": {}}}, False),
        ({"type": "object", "properties": {"to": {}}}, True),
        ({"type": "object", "properties": {"to": {"type": "string"}}}, False),
        ({"type": "object", "additionalProperties": {"type": "string"}}, False),
        ({"type": "array", "items": {}}, False),
        ({"type": ["object", "null"]}, True),
        ({"$ref": "https://elsewhere.example/schema"}, True),
        ({"$ref": 5}, True),
        ({"$ref": "#/$defs/to", "$defs": {"to": {"type": "string"}}}, False),
        ({"$ref": "x/$defs/to", "$defs": {"to": {"type": "string"}}}, True),
    ],
)
def test_place_is_impossible_only_where_the_schema_says_so(
    schema: dict[str, Any], possible: bool
) -> None:
    assert is_possible(schema, ("to", "city")) is possible


@pytest.mark.parametrize(("choices", "possible"), [(MAX_VISITS, False), (MAX_VISITS + 1, True)])
def test_schema_with_more_parts_than_are_looked_at_forbids_nothing(
    choices: int, possible: bool
) -> None:
    schema = {"anyOf": [{"type": "string"} for _ in range(choices)]}
    assert is_possible(schema, ("to",)) is possible


ASK_OTHERS = {"then": "ask", "approvers": {"groups": ["finance"]}}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"tool": "*", "then": "allow"}, {"tool": "Files-edit", "then": "deny"}),
        ({"tool": "Files-*", "then": "allow"}, {"tool": "Files-e*", "then": "ask"}),
        ({"tool": "Files-*", "then": "ask"}, {"tool": "Files-edit", "then": "deny"}),
        ({"tool": "Files-edit", "then": "ask"}, {"tool": "Files-edit", **ASK_OTHERS}),
        (
            {"tool": "Files-edit", "then": "allow"},
            {"tool": "Files-edit", "then": "deny", "when": {"path": {"exists": True}}},
        ),
    ],
)
def test_rule_that_a_laxer_one_before_it_hides_stops_the_start(
    first: dict[str, Any], later: dict[str, Any]
) -> None:
    between = {"tool": "Files-read", "then": "deny", "when": {"path": {"equals": "x"}}}
    block = {"rules": [between, first, later]}
    with pytest.raises(ConfigurationError, match=r"rules\[2\] never applies: rules\[1\] before it"):
        read_approvals(block, path=FILE)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"tool": "Files-edit", "then": "allow"}, {"tool": "Files-*", "then": "deny"}),
        ({"tool": "Files-*", "then": "allow"}, {"tool": "Mail-send", "then": "deny"}),
        (
            {"tool": "Files-*", "then": "allow", "when": {"path": {"equals": "x"}}},
            {"tool": "Files-edit", "then": "deny"},
        ),
        # What is hidden forbids no more than what hides it.
        ({"tool": "*", "then": "deny"}, {"tool": "Files-edit", "then": "allow"}),
        ({"tool": "*", "then": "ask"}, {"tool": "Files-edit", "then": "ask"}),
        ({"tool": "Files-?*", "then": "allow"}, {"tool": "Files-*", "then": "deny"}),
    ],
)
def test_rule_that_can_still_apply_or_would_forbid_nothing_more_is_accepted(
    first: dict[str, Any], later: dict[str, Any]
) -> None:
    assert len(read_approvals({"rules": [first, later]}, path=FILE).rules) == 2
