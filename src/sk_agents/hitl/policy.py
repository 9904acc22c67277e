"""Which calls may run: rules, then the catalog, then the tool's declaration, then the default.

Every doubt means ask. A rule that cannot be evaluated never decides by itself; it only forbids that
the call runs unasked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from sk_agents.engine.models import Effect, Review, ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.engine.values import dataclass
from sk_agents.hitl.rules import Approvals, Decision

logger = logging.getLogger(__name__)

NeedsApproval = Callable[[str], bool | None]
"""Whether the tool of this name needs approval; `None` if nothing is said about it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` names what decided: `rules[0]`, `catalog`, `declaration`, `default` or `doubt`.

    `review` says who is asked and how; `None` is the requester alone.
    """

    decision: Decision
    by: str
    reason: str | None = None
    review: Review | None = None

    @property
    def strength(self) -> int:
        return _strength(self.review)


def _strength(review: Review | None) -> int:
    """How much it wants of those who decide: others, more than a bare word, a time, nothing."""
    if review is None:
        return 0
    if review.audience.keys:
        return 3
    return 2 if review.demands is not None else 1


def _says_nothing(_tool: str) -> bool | None:
    return None


class ApprovalPolicy:
    """The policy of one agent.

    `attended` is False on surfaces where no person can be asked: there, what would be asked about
    is denied, and a tool that nothing speaks about runs, because the operator listed it.
    """

    def __init__(
        self,
        approvals: Approvals | None = None,
        *,
        catalog: NeedsApproval = _says_nothing,
        declared: NeedsApproval = _says_nothing,
        attended: bool = True,
    ) -> None:
        self.approvals = approvals or Approvals()
        self._catalog = catalog
        self._declared = declared
        self._attended = attended

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Decision:
        return self.explain(call, spec).decision

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return self.explain(call, spec).review

    def explain(self, call: ToolCall, spec: ToolSpec) -> Verdict:
        """The verdict with what decided it."""
        found = self._found(call, spec)
        if found.decision == "ask" and not self._attended:
            return replace(found, decision="deny", reason=found.reason or "no person can be asked")
        return found

    def _found(self, call: ToolCall, spec: ToolSpec) -> Verdict:
        if call.name != spec.name:
            return Verdict("ask", "doubt", "the call is not about this tool")
        doubt: Verdict | None = None
        for number, rule in enumerate(self.approvals.rules):
            if not rule.is_about(spec.name):
                continue
            applies = rule.applies(call.arguments, spec)
            if applies:
                found = Verdict(rule.then, f"rules[{number}]", rule.reason, rule.review)
                break
            if applies is None and (doubt is None or _strength(rule.review) > doubt.strength):
                reason = f"rules[{number}] cannot be evaluated"
                doubt = Verdict("ask", "doubt", reason, rule.review)
        else:
            found = self._without_rules(spec)
        if doubt is None or found.decision == "deny":
            return found
        # A rule that wants others to decide is not got round with arguments that it cannot read,
        # nor with arguments that an earlier rule, which wants less, cannot read.
        is_stronger = doubt.review is not None and doubt.strength >= found.strength
        return doubt if found.decision == "allow" or is_stronger else found

    def _without_rules(self, spec: ToolSpec) -> Verdict:
        for by, needs_approval in (("catalog", self._catalog), ("declaration", self._declared)):
            try:
                needed = needs_approval(spec.name)
            except Exception as error:
                # A catalog may be the operator's own class.
                logger.warning("the %s failed with %s", by, type(error).__name__)
                return Verdict("ask", "doubt", f"the {by} could not be read")
            if needed is not None:
                return Verdict("allow" if needed is False else "ask", by)
        return Verdict(self._default(spec), "default")

    def _default(self, spec: ToolSpec) -> Decision:
        chosen = self.approvals.default
        if chosen is None and not self._attended:
            return "allow"
        if chosen in {None, "ask"} and spec.effect is Effect.READ_ONLY:
            return "allow"
        return chosen or "ask"
