"""Which calls run, which are asked about, which are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolSpec
from sk_agents.hitl.policy import ApprovalPolicy, Verdict
from sk_agents.hitl.rules import ABSENT, MAX_MATCHED, value_at
from tests.hitl.specs import ARGUMENTS, READ, WRITE, call, policy, ruled, spec
from tests.requirements import requirement

TOOL = WRITE.name


@requirement("S004-10.1-unknown-tool")
@pytest.mark.parametrize(
    ("effect", "decision"),
    [(Effect.READ_ONLY, "allow"), (Effect.IDEMPOTENT, "ask"), (Effect.AT_MOST_ONCE, "ask")],
)
def test_tool_nothing_speaks_about_asks_unless_it_only_reads(effect: Effect, decision: str) -> None:
    tool = spec(effect=effect)
    assert policy().explain(call(tool), tool) == Verdict(decision, "default")  # type: ignore[arg-type]  # one of three


@requirement("S002-hitl-policy")
def test_rules_come_before_catalog_before_declaration_before_default() -> None:
    speaking: dict[str, Any] = {"catalog": {TOOL: True}, "declared": {TOOL: False}}
    rule = {"rules": [{"tool": TOOL, "then": "deny", "reason": "not on Sundays"}]}
    assert policy(rule, **speaking).explain(call(), WRITE) == Verdict(
        "deny", "rules[0]", "not on Sundays"
    )
    assert policy(**speaking).explain(call(), WRITE) == Verdict("ask", "catalog")
    assert policy(declared={TOOL: False}).explain(call(), WRITE) == Verdict("allow", "declaration")
    assert policy().explain(call(), WRITE) == Verdict("ask", "default")


@pytest.mark.parametrize(("needed", "decision"), [(True, "ask"), (False, "allow"), (None, "ask")])
def test_catalog_and_declaration_gate_free_or_say_nothing(
    needed: bool | None, decision: str
) -> None:
    assert policy(catalog={TOOL: needed}).verdict(call(), WRITE) == decision
    assert policy(declared={TOOL: needed}).verdict(call(), WRITE) == decision


@pytest.mark.parametrize("answer", ["no", 0, [], "False"])
def test_only_false_itself_frees_a_tool(answer: Any) -> None:
    assert policy(catalog=lambda tool: answer).verdict(call(READ), READ) == "ask"


def test_catalog_that_fails_means_ask() -> None:
    def broken(tool: str) -> bool | None:
        raise RuntimeError("secret")

    found = policy({"default": "allow"}, catalog=broken).explain(call(READ), READ)
    assert found == Verdict("ask", "doubt", "the catalog could not be read")


def test_first_rule_that_applies_wins() -> None:
    rules = [
        {"tool": "Files-*", "when": {"path": {"starts_with": "/etc/"}}, "then": "deny"},
        {"tool": "Files-write", "when": {"amount": {"lt": 10}}, "then": "allow"},
        {"tool": "*", "then": "ask"},
    ]
    asked = policy({"rules": rules, "default": "allow"})
    assert asked.explain(call(), WRITE).by == "rules[1]"
    etc = call(arguments={**ARGUMENTS, "path": "/etc/passwd"})
    assert asked.explain(etc, WRITE) == Verdict("deny", "rules[0]")
    many = call(arguments={**ARGUMENTS, "amount": 10})
    assert asked.explain(many, WRITE) == Verdict("ask", "rules[2]")


@pytest.mark.parametrize(
    ("default", "read", "write"),
    [("ask", "allow", "ask"), ("allow", "allow", "allow"), ("deny", "deny", "deny")],
)
def test_default_speaks_for_the_rest(default: str, read: str, write: str) -> None:
    chosen = policy({"default": default})
    assert (chosen.verdict(call(READ), READ), chosen.verdict(call(), WRITE)) == (read, write)


def test_call_of_another_tool_than_the_spec_is_asked_about() -> None:
    assert policy({"default": "allow"}).verdict(call(WRITE), READ) == "ask"


@pytest.mark.parametrize(
    ("options", "decision"),
    [
        ({}, "allow"),
        ({"block": {"default": "ask"}}, "deny"),
        ({"block": {"rules": [{"tool": "*", "then": "ask"}]}}, "deny"),
        ({"block": {"rules": [{"tool": "*", "then": "deny"}]}}, "deny"),
        ({"block": {"rules": [{"tool": "*", "then": "allow"}]}}, "allow"),
        ({"catalog": {TOOL: True}}, "deny"),
        ({"declared": {TOOL: True}}, "deny"),
        ({"catalog": {TOOL: False}}, "allow"),
    ],
)
def test_where_nobody_can_be_asked_a_gated_call_is_denied_and_the_rest_runs(
    options: dict[str, Any], decision: str
) -> None:
    assert policy(**options, attended=False).verdict(call(), WRITE) == decision


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"path": {"equals": "/tmp/a"}}, True),
        ({"path": {"equals": "/tmp/A"}}, False),
        ({"amount": {"equals": 5.0}}, True),
        ({"path": {"in": ["/tmp/a", "/tmp/b"]}}, True),
        ({"path": {"not_in": ["/tmp/a"]}}, False),
        ({"path": {"not_in": ["/tmp/b"]}}, True),
        ({"path": {"matches": "/tmp/*"}}, True),
        ({"path": {"matches": "/TMP/*"}}, False),
        ({"path": {"starts_with": "/tmp/"}}, True),
        ({"amount": {"lt": 5}}, False),
        ({"amount": {"le": 5, "gt": 4.5}}, True),
        ({"amount": {"le": 5, "gt": 5}}, False),
        ({"amount": {"ge": 6}}, False),
        ({"force": {"exists": False}}, True),
        ({"amount": {"exists": True}}, True),
        ({"/labels/missing": {"exists": True}}, False),
        ({"/labels/missing": {"exists": False}}, True),
        ({"force": {"equals": None}}, True),
        ({"/to/city": {"equals": "Oslo"}}, True),
        ({"/copies/0/city": {"equals": "Rome"}}, True),
        ({"/labels/a~1b": {"equals": "x"}}, True),
        ({"path": {"starts_with": "/tmp/"}, "amount": {"gt": 100}}, False),
    ],
)
def test_predicate_says_yes_or_no(when: dict[str, Any], holds: bool) -> None:
    assert ruled(when).explain(call(), WRITE).by == ("rules[0]" if holds else "default")


@pytest.mark.parametrize(
    "when",
    [
        {"amount": {"equals": "5"}},
        {"amount": {"in": ["5", "6"]}},
        {"amount": {"not_in": ["5"]}},
        {"force": {"not_in": [True]}},
        {"amount": {"starts_with": "5"}},
        {"amount": {"matches": "5"}},
        {"path": {"lt": 5}},
        {"force": {"lt": 5}},
        {"/copies/7/city": {"equals": "Rome"}},
        {"/copies/00/city": {"equals": "Rome"}},
        {"/to/next/city": {"not_in": ["Rome"]}},
        {"typo": {"exists": False}},
        {"/to/typo": {"exists": False}},
        {"/to/next/typo": {"exists": False}},
        {"/path/x": {"exists": False}},
        {"path": {"starts_with": "/tmp/"}, "typo": {"equals": 1}},
    ],
)
@pytest.mark.parametrize("then", ["allow", "ask", "deny"])
def test_predicate_that_cannot_be_evaluated_never_lets_a_call_run(
    when: dict[str, Any], then: str
) -> None:
    found = ruled(when, then, default="allow").explain(call(READ), READ)
    assert (found.decision, found.by) == ("ask", "doubt")


@pytest.mark.parametrize("word", ["equals", "in", "not_in"])
def test_value_that_json_cannot_hold_is_asked_about(word: str) -> None:
    expected: Any = {"x": 1} if word == "equals" else [{"x": 1}]
    odd = call(READ, {**ARGUMENTS, "labels": {"x": float("nan")}})
    found = ruled({"labels": {word: expected}}, "allow", default="allow").explain(odd, READ)
    assert (found.decision, found.by) == ("ask", "doubt")


@pytest.mark.parametrize(
    ("reason", "told"), [("money moves", "money moves"), (None, "no person can be asked")]
)
def test_denied_call_says_why_nobody_was_asked(reason: str | None, told: str) -> None:
    rule = {"tool": "*", "then": "ask", **({"reason": reason} if reason else {})}
    found = policy({"rules": [rule]}, attended=False).explain(call(), WRITE)
    assert (found.decision, found.reason) == ("deny", told)


def test_doubt_about_one_rule_does_not_weaken_a_later_one() -> None:
    rules = [
        {"tool": "*", "when": {"amount": {"equals": "5"}}, "then": "allow"},
        {"tool": "*", "then": "deny"},
    ]
    assert policy({"rules": rules}).verdict(call(), WRITE) == "deny"


def test_person_is_told_why_they_are_asked_and_not_of_a_doubt_that_wants_no_more() -> None:
    rules = [
        {"tool": "*", "when": {"amount": {"equals": "5"}}, "then": "ask"},
        {"tool": "*", "then": "ask", "reason": "money moves"},
    ]
    assert policy({"rules": rules}).explain(call(), WRITE) == Verdict(
        "ask", "rules[1]", "money moves"
    )


def test_text_too_long_to_match_is_asked_about() -> None:
    long = call(READ, {**ARGUMENTS, "path": "x" * 100_000})
    assert ruled({"path": {"matches": "*"}}).verdict(long, READ) == "ask"


def test_schema_that_refers_to_itself_is_searched_once() -> None:
    loop = {"$ref": "#/$defs/a"}
    schema = {"type": "object", "properties": {"odd": loop}, "$defs": {"a": {"anyOf": [loop] * 9}}}
    tool = ToolSpec("Files-odd", "", schema)
    asked = ruled({"/odd/x/y/z": {"exists": True}}, default="allow")
    assert asked.explain(call(tool), tool).by == "doubt"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLACES = st.sampled_from(["path", "amount", "/to/city", "/copies/0", "gone", "/labels/x"])
CONDITIONS = st.one_of(
    st.fixed_dictionaries({"equals": st.sampled_from([1, "x", None, [1], {"a": 1}])}),
    st.fixed_dictionaries({"in": st.just([1, "x"])}),
    st.fixed_dictionaries({"not_in": st.just([1, "x"])}),
    st.fixed_dictionaries({"matches": st.just("x*")}),
    st.fixed_dictionaries({"starts_with": st.just("x")}),
    st.fixed_dictionaries({"lt": st.just(3), "ge": st.just(1)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
)


@given(
    when=st.dictionaries(PLACES, CONDITIONS, max_size=3),
    arguments=st.dictionaries(st.sampled_from(["path", "amount", "to", "copies"]), VALUES),
)
def test_policy_answers_for_any_arguments_and_a_gated_tool_stays_gated(
    when: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert ruled(when, "deny").verdict(call(arguments=arguments), WRITE) in {"ask", "deny"}
    assert ruled(when, "ask").verdict(call(arguments=arguments), WRITE) == "ask"


def test_policy_of_which_nothing_is_said_asks_before_a_tool_acts() -> None:
    assert ApprovalPolicy().verdict(call(), WRITE) == "ask"


@pytest.mark.parametrize("then", ["allow", "deny"])
def test_rule_about_another_tool_decides_nothing(then: str) -> None:
    asked = policy({"rules": [{"tool": "Mail-*", "then": then}]})
    assert asked.explain(call(), WRITE) == Verdict("ask", "default")


@pytest.mark.parametrize(("length", "by"), [(MAX_MATCHED, "rules[0]"), (MAX_MATCHED + 1, "doubt")])
def test_text_is_matched_up_to_its_bound(length: int, by: str) -> None:
    long = call(READ, {**ARGUMENTS, "path": "x" * length})
    assert ruled({"path": {"matches": "x*"}}).explain(long, READ).by == by


@pytest.mark.parametrize("step", ["-1", "00", "2", "city", "0x"])
def test_only_an_index_that_the_list_has_leads_into_it(step: str) -> None:
    assert value_at({"copies": ["a", "b"]}, ("copies", step)) is ABSENT


def test_characters_of_a_text_are_no_places() -> None:
    assert value_at({"path": "abc"}, ("path", "0")) is ABSENT
    assert value_at({"path": ["abc"]}, ("path", "0")) == "abc"
