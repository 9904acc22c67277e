"""Rules that let others than the requester decide, and the review that a call gets from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Audience, Review, ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.hitl.rules import Approvals, read_approvals

PAY = ToolSpec(
    "Bank-pay",
    "Pay.",
    {"type": "object", "properties": {"amount": {}, "to": {"type": "string"}}},
)
FINANCE = {"groups": ["finance"]}


def approvals(*rules: dict[str, Any]) -> Approvals:
    block = {"rules": [{"tool": "Bank-*", "then": "ask", **rule} for rule in rules]}
    return read_approvals(block, path=Path("agent.yaml"))


def review_of(arguments: dict[str, Any], *rules: dict[str, Any]) -> Review | None:
    call = ToolCall(id="c", plugin_name="Bank", function_name="pay", arguments=arguments)
    return ApprovalPolicy(approvals(*rules)).review(call, PAY)


def test_rule_says_who_decides_how_many_and_how_long() -> None:
    found = review_of(
        {},
        {
            "approvers": {"roles": ["approver"], "groups": ["finance"], "users": ["bob"]},
            "not_requester": True,
            "quorum": 2,
            "expires": "30m",
            "on_expiry": {"escalate": "board"},
            "share_conversation": True,
        },
    )
    assert found == Review(
        audience=Audience(roles=("approver",), groups=("finance",), users=("bob",)),
        quorum=2,
        not_requester=True,
        lifetime=1800.0,
        on_expiry="escalate",
        escalate_to="board",
        share_conversation=True,
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("12h", 43200), ("2d", 172800), ("1w", 604800)],
)
def test_time_is_written_with_its_unit(text: str, seconds: float) -> None:
    found = review_of({}, {"expires": text})
    assert found is not None and found.lifetime == seconds
    assert found.demands is None


def test_reason_is_demanded_of_the_requester_and_of_others() -> None:
    own = review_of({}, {"reason_required": True})
    others = review_of({}, {"reason_required": True, "approvers": FINANCE})
    assert own is not None and own.demands == {"reason_required": True}
    assert not own.asks_others
    assert others is not None and others.asks_others
    assert others.demands is not None and others.demands["reason_required"] is True
    with pytest.raises(ConfigurationError, match="reason_required goes with then: ask"):
        approvals({"then": "allow", "reason_required": True})


def test_of_two_rules_in_doubt_the_one_with_a_time_is_kept() -> None:
    unreadable = {"when": {"amount": {"equals": "5"}}}
    found = review_of({"amount": 5}, unreadable, {**unreadable, "expires": "1h"})
    assert found is not None and found.lifetime == 3600


def test_rule_that_only_asks_demands_nothing() -> None:
    assert review_of({}, {}) is None


def test_rule_that_does_not_apply_demands_nothing() -> None:
    large = {"when": {"amount": {"gt": 1000}}, "approvers": FINANCE}
    assert review_of({"amount": 10}, large) is None
    assert review_of({"amount": 1001}, large) is not None


@pytest.mark.parametrize("later", [{"then": "allow"}, {"then": "ask"}, {}])
def test_arguments_that_a_rule_cannot_read_do_not_get_round_its_approvers(
    later: dict[str, Any],
) -> None:
    large = {"when": {"amount": {"gt": 1000}}, "approvers": FINANCE}
    unclear = {"when": {"to": {"equals": 1}}, "then": "allow"}
    found = review_of({"amount": "a million", "to": "eve"}, unclear, large, later)
    assert found is not None and found.audience.groups == ("finance",)


@pytest.mark.parametrize("second", [{}, {"approvers": {"groups": ["board"]}}])
def test_of_two_rules_that_cannot_be_read_the_first_with_approvers_says_who_decides(
    second: dict[str, Any],
) -> None:
    large = {"when": {"amount": {"gt": 1000}}}
    found = review_of({"amount": "x"}, {**large, "approvers": FINANCE}, {**large, **second})
    assert found is not None and found.audience.groups == ("finance",)


@pytest.mark.parametrize(
    "less", [{"expires": "30m"}, {"reason_required": True}, {"on_expiry": {"escalate": "board"}}]
)
@pytest.mark.parametrize("when", [{}, {"when": {"amount": {"gt": 1000}}}])
def test_arguments_that_a_rule_without_approvers_cannot_read_do_not_keep_others_from_deciding(
    less: dict[str, Any], when: dict[str, Any]
) -> None:
    unread = {"when": {"to": {"starts_with": "a"}}, **less}
    found = review_of({"amount": "x" if when else 5}, unread, {**when, "approvers": FINANCE})
    assert found is not None and found.audience.groups == ("finance",)


@pytest.mark.parametrize(
    ("unread", "later", "wanted"),
    [
        ({"reason_required": True}, {"expires": "30m"}, "first"),
        ({"expires": "30m"}, {"reason_required": True}, "later"),
        ({"expires": "30m"}, {}, "first"),
        ({"expires": "30m"}, {"expires": "1h"}, "first"),
    ],
)
def test_of_a_rule_that_cannot_be_read_and_one_that_applies_the_stricter_decides(
    unread: dict[str, Any], later: dict[str, Any], wanted: str
) -> None:
    first = {"when": {"to": {"starts_with": "a"}}, **unread}
    expected = review_of({}, unread if wanted == "first" else later)
    assert review_of({"amount": 5}, first, later) == expected


@pytest.mark.parametrize(
    "approvers",
    [
        {"roles": ["approver"]},
        {"roles": ["approver"], "users": ["bob"]},
        {"groups": ["finance"], "users": ["bob"]},
        {"users": ["bob", "eve"]},
    ],
)
def test_two_may_be_demanded_of_a_role_a_group_or_two_users(approvers: dict[str, Any]) -> None:
    found = review_of({}, {"approvers": approvers, "quorum": 2})
    assert found is not None and found.quorum == 2


def test_rule_that_denies_wins_over_a_doubt() -> None:
    large = {"when": {"amount": {"gt": 1000}}, "approvers": FINANCE}
    policy = ApprovalPolicy(approvals(large, {"then": "deny"}))
    call = ToolCall(id="c", plugin_name="Bank", function_name="pay", arguments={"amount": "x"})
    assert policy.verdict(call, PAY) == "deny"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"approvers": {}}, "names nobody"),
        ({"approvers": {"group": ["x"]}}, "Extra inputs"),
        ({"approvers": FINANCE, "quorum": 0}, "greater than or equal to 1"),
        ({"approvers": FINANCE, "quorum": 21}, "less than or equal to 20"),
        ({"approvers": FINANCE, "quorum": True}, "valid integer"),
        ({"approvers": {"users": ["bob", "bob"]}, "quorum": 2}, "larger than the number"),
        ({"quorum": 2}, "goes with approvers"),
        ({"not_requester": True}, "goes with approvers"),
        ({"share_conversation": True}, "goes with approvers"),
        ({"approvers": FINANCE, "then": "allow"}, "goes with then: ask"),
        ({"expires": "1h", "then": "deny"}, "goes with then: ask"),
        ({"expires": "30"}, "must be like"),
        ({"expires": "0m"}, "longer than 0"),
        ({"on_expiry": "escalate"}, "deny"),
        ({"on_expiry": {"escalate": ""}}, "at least 1"),
    ],
)
def test_rule_that_makes_no_sense_stops_the_start(rule: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        approvals(rule)
