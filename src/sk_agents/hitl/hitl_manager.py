"""The one point at which every tool call is inspected before it runs.

Each agent has a `HitlManager` as its `Policy`: the engine asks it about every call, when the call
is proposed, before it starts unless that is at once, and when a reviewer edits it.
`check_for_intervention` asks the same question for code outside the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from sk_agents.engine.calls.proposals import parse_arguments
from sk_agents.engine.models import Review, ToolCall
from sk_agents.engine.ports import Policy
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ToolError
from sk_agents.hitl.policy import ApprovalPolicy

FindSpec = Callable[[str], ToolSpec | None]


def _unknown(_name: str) -> ToolSpec | None:
    return None


class HitlManager:
    """The policy as the engine asks it; `find_spec` finds the tool of a call from outside."""

    def __init__(self, policy: Policy | None = None, find_spec: FindSpec = _unknown) -> None:
        self._policy = policy if policy is not None else ApprovalPolicy()
        self._find_spec = find_spec

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Literal["allow", "ask", "deny"]:
        """What to do with this call."""
        return self._policy.verdict(call, spec)

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        """Who decides about this call, and how; `None` is the requester alone."""
        return self._policy.review(call, spec)

    def check_for_intervention(self, tool_call: Any) -> bool:
        """True iff this call must not run unasked; also for an unknown tool or no readable call.

        Takes a `ToolCall` or anything with its `plugin_name`, `function_name` and `arguments`,
        which may be JSON text, as in semantic-kernel's `FunctionCallContent`.
        """
        call = tool_call if isinstance(tool_call, ToolCall) else _read(tool_call)
        spec = self._find_spec(call.name) if call is not None else None
        if call is None or spec is None:
            return True
        return self.verdict(call, spec) != "allow"


_manager = HitlManager()


def configure(policy: Policy | None = None, find_spec: FindSpec = _unknown) -> None:
    """Set what the function `check_for_intervention` asks; without a policy it is always True."""
    global _manager
    _manager = HitlManager(policy, find_spec)


def check_for_intervention(tool_call: Any) -> bool:
    """True iff this call must not run unasked."""
    return _manager.check_for_intervention(tool_call)


def _read(tool_call: Any) -> ToolCall | None:
    plugin = getattr(tool_call, "plugin_name", None)
    function = getattr(tool_call, "function_name", None)
    arguments = _arguments(getattr(tool_call, "arguments", None))
    if not isinstance(plugin, str | None) or not isinstance(function, str) or arguments is None:
        return None
    return ToolCall(
        id=str(getattr(tool_call, "id", None) or ""),
        plugin_name=plugin or "",
        function_name=function,
        arguments=arguments,
    )


def _arguments(given: Any) -> dict[str, Any] | None:
    """`None` for what two readers might read differently."""
    match given:
        case None:
            return {}
        case str():
            try:
                return parse_arguments(given)
            except ToolError:
                return None
        case Mapping() if all(isinstance(name, str) for name in given):
            return dict(given)
        case _:
            return None
