"""The seed's entry point: may this call run unasked?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sk_agents.engine.models import ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.hitl import hitl_manager
from sk_agents.hitl.hitl_manager import HitlManager
from tests.hitl.specs import ARGUMENTS, READ, WRITE, call, policy
from tests.requirements import requirement

SPECS = {spec.name: spec for spec in (READ, WRITE)}
SMALL = policy(
    {
        "rules": [
            {"tool": "Files-write", "when": {"amount": {"le": 5}}, "then": "allow"},
            {"tool": "Files-write", "when": {"amount": {"gt": 99}}, "then": "deny"},
        ]
    }
)


@dataclass
class FunctionCallContent:
    """A call in the shape semantic-kernel gives it."""

    plugin_name: Any = "Files"
    function_name: Any = "write"
    arguments: Any = None
    id: Any = None


@pytest.fixture
def configured() -> Iterator[None]:
    hitl_manager.configure(SMALL, SPECS.get)
    yield
    hitl_manager.configure()


@requirement("S002-hitl-entry-point")
@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(("amount", "intervene"), [(5, False), (6, True), (100, True)])
def test_call_is_intercepted_iff_policy_does_not_allow_it(amount: int, intervene: bool) -> None:
    wanted = call(arguments={**ARGUMENTS, "amount": amount})
    assert hitl_manager.check_for_intervention(wanted) is intervene


@pytest.mark.parametrize("tool", [READ, WRITE])
def test_with_nothing_configured_every_call_is_intercepted(tool: ToolSpec) -> None:
    assert hitl_manager.check_for_intervention(call(tool)) is True


def test_without_rules_only_a_tool_declared_read_only_runs_unasked() -> None:
    manager = HitlManager(find_spec=SPECS.get)
    assert manager.check_for_intervention(call(READ)) is False
    assert manager.check_for_intervention(call(WRITE)) is True


@pytest.mark.parametrize(
    ("arguments", "intervene"),
    [
        ('{"amount": 5}', False),
        ({"amount": 5}, False),
        ('{"amount": 6}', True),
        (None, True),
        ("", True),
        ("not JSON", True),
        ('{"amount": 100, "amount": 5}', True),
        ("[5]", True),
        (5, True),
        ({5: 5}, True),
        ({"amount": float("nan")}, True),
        ({"amount": object()}, True),
    ],
)
def test_call_in_the_shape_of_semantic_kernel_is_understood(
    arguments: Any, intervene: bool
) -> None:
    manager = HitlManager(SMALL, SPECS.get)
    found = manager.check_for_intervention(FunctionCallContent(arguments=arguments))
    assert found is intervene


@pytest.mark.parametrize(
    "tool_call",
    [
        FunctionCallContent(plugin_name="Flies", arguments={"amount": 1}),
        FunctionCallContent(function_name=None, arguments={"amount": 1}),
        FunctionCallContent(plugin_name=5, arguments={"amount": 1}),
        ToolCall(id="", plugin_name="", function_name="write", arguments={"amount": 1}),
        object(),
        None,
        "Files-write",
    ],
)
def test_call_of_an_unknown_tool_or_no_call_at_all_is_intercepted(tool_call: Any) -> None:
    assert HitlManager(SMALL, SPECS.get).check_for_intervention(tool_call) is True


class Recording:
    def __init__(self) -> None:
        self.seen: list[ToolCall] = []

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Any:
        self.seen.append(call)
        return "allow"

    def review(self, call: ToolCall, spec: ToolSpec) -> None:
        return None


@requirement("S002-hitl-complete-call")
def test_policy_sees_the_whole_call() -> None:
    recording = Recording()
    manager = HitlManager(recording, SPECS.get)
    manager.check_for_intervention(call())
    manager.check_for_intervention(FunctionCallContent(id="c1", arguments={"path": "a"}))
    assert recording.seen == [call(), call(arguments={"path": "a"})]
