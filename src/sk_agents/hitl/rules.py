"""The `approvals` block of an agent file, read strictly: a typo must not open a gate."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.pointers import is_possible, steps
from sk_agents.hitl.predicates import Answer, Predicate, together

logger = logging.getLogger(__name__)

Decision = Literal["allow", "ask", "deny"]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )


class Rule(_Strict):
    # A pattern with any other character could match no tool.
    tool: Annotated[str, Field(pattern=r"\A[A-Za-z0-9_\-*?\[\]!]{1,128}\z")]
    when: Annotated[dict[str, Predicate], Field(max_length=32)] = {}
    then: Decision
    reason: Annotated[str, Field(max_length=1000)] | None = None

    @field_validator("when")
    @classmethod
    def _places_are_places(cls, when: dict[str, Predicate]) -> dict[str, Predicate]:
        for place in when:
            steps(place)
        return when

    def is_about(self, tool: str) -> bool:
        return fnmatch.fnmatchcase(tool, self.tool)

    @property
    def allows_everything(self) -> bool:
        """Whether it says of tools of any name, with any arguments, that they run."""
        return self.then == "allow" and not self.when and not self.tool.strip("*?-")

    def applies(self, arguments: Mapping[str, Any], spec: ToolSpec) -> Answer:
        """Whether all its conditions hold for these arguments; `None` if that cannot be said."""
        return together(
            predicate.holds(arguments, path) if is_possible(spec.parameters, path) else None
            for place, predicate in self.when.items()
            for path in [steps(place)]
        )


class Approvals(_Strict):
    """`default` speaks for tools about which nothing else does; `None` is `ask`, not chosen."""

    default: Decision | None = None
    rules: Annotated[tuple[Rule, ...], Field(max_length=500, strict=False)] = ()
    expires_after: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    on_reject: Literal["continue", "cancel"] | None = None


def read_approvals(block: Any, *, path: Path, field: str = "approvals") -> Approvals:
    """The block as it stands in the file; an absent one (`None`) says nothing.

    Raises:
        ConfigurationError: names the file, the field and what is wrong with it.
    """
    try:
        approvals = Approvals() if block is None else Approvals.model_validate(block)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_reasons(error, path, field))) from None
    if approvals.default == "allow":
        logger.warning("%s: %s.default is allow: tools run unasked unless gated", path, field)
    for number, rule in enumerate(approvals.rules):
        if rule.allows_everything:
            place = f"{field}.rules[{number}]"
            logger.warning("%s: %s allows every tool: they run unasked", path, place)
    return approvals


def refuse_strays(
    approvals: Approvals,
    specs: Sequence[ToolSpec],
    *,
    path: Path,
    field: str = "approvals",
    live: tuple[str, ...] = (),
) -> None:
    """Check the rules against the agent's tools: one that can apply to none is a typo.

    Tools whose names begin with one of `live` are not known yet.

    Raises:
        ConfigurationError: a rule's tool or argument does not exist.
    """
    for number, rule in enumerate(approvals.rules):
        place = f"{path}: {field}.rules[{number}]"
        meant = [spec for spec in specs if rule.is_about(spec.name)]
        if not meant and rule.tool.startswith(live):
            continue
        if not meant:
            raise ConfigurationError(f"{place}.tool: no tool is called '{rule.tool}'")
        for name in rule.when:
            if not any(is_possible(spec.parameters, steps(name)) for spec in meant):
                raise ConfigurationError(f"{place}.when: '{rule.tool}' has no argument '{name}'")


def _reasons(error: ValidationError, path: Path, field: str) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        )
        reason = problem["msg"].removeprefix("Value error, ")
        yield f"{path}: {field}{place}: {reason}"
