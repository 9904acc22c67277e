"""The `approvals` block of an agent file: which calls run, are asked about or are denied.

It is read strictly: a typo must not open a gate. A rule names places inside a call's arguments, by
a plain argument name or a JSON pointer (RFC 6901), and conditions for the values there. A condition
answers yes, no or, with `None`, nothing at all: a value that is absent or of another type than the
rule's own cannot be compared, and no guess is made.
"""

from __future__ import annotations

import fnmatch
import logging
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from sk_agents.config.amounts import read_span
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.models import Audience, OnExpiry, Review
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError, InvalidInput

logger = logging.getLogger(__name__)

MAX_PATTERN = 256
# Matching takes time proportional to pattern times text.
MAX_MATCHED = 8 * 1024
MAX_VISITS = 256
MAX_QUORUM = 20
ABSENT: Any = object()

Answer = bool | None
Decision = Literal["allow", "ask", "deny"]

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_LOCAL = re.compile(r"#/(?:[^~]|~[01])*")
_CHOICES = ("anyOf", "oneOf", "allOf")


def parse_place(place: str) -> tuple[str, ...]:
    """The names to follow, from the outside in.

    Raises:
        ValueError: empty, or no pointer.
    """
    if not place.startswith("/"):
        if not place:
            raise ValueError("an argument's name cannot be empty")
        return (place,)
    if re.search(r"~(?![01])", place):
        raise ValueError("in a pointer, ~ is written ~0 and / is written ~1")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in place[1:].split("/"))


def value_at(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a place, `ABSENT` if nothing is there."""
    value: Any = arguments
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def is_possible(schema: Any, path: Sequence[str]) -> bool:
    """False iff no arguments that fit the schema have anything at this place."""
    return _SchemaSearch(schema).finds(schema, tuple(path))


class _SchemaSearch:
    """Visits each part of the schema once: a foreign one may refer to itself in any way."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: set[tuple[int, int]] = set()

    def finds(self, schema: Any, path: tuple[str, ...]) -> bool:
        # A schema this cannot follow forbids nothing.
        if not path or not isinstance(schema, Mapping) or len(self._seen) > MAX_VISITS:
            return True
        visit = (id(schema), len(path))
        if visit in self._seen:
            return False
        self._seen.add(visit)
        choices = [choice for word in _CHOICES for choice in schema.get(word, ())]
        if "$ref" in schema:
            choices.append(self._referred(schema["$ref"]))
        if choices:
            return any(self.finds(choice, path) for choice in choices)
        return self._finds_step(schema, path[0], path[1:])

    def _finds_step(self, schema: Mapping[str, Any], step: str, rest: tuple[str, ...]) -> bool:
        match schema.get("type"):
            case "object":
                properties = schema.get("properties", {})
                if step in properties:
                    return self.finds(properties[step], rest)
                # A model's own schema lists all its fields; only a free mapping takes others.
                others = schema.get("additionalProperties", not properties)
                return others is not False and self.finds(others, rest)
            case "array":
                return _INDEX.fullmatch(step) is not None and self.finds(schema.get("items"), rest)
            case "string" | "number" | "integer" | "boolean" | "null":
                return False
            case _:
                return True

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not _LOCAL.fullmatch(reference):
            return ABSENT
        return value_at(self._root, parse_place(reference[1:]))


def together(answers: Iterable[Answer]) -> Answer:
    """No if one of them is no, otherwise nothing if one says nothing, otherwise yes."""
    given = set(answers)
    return False if False in given else None if None in given else True


def _json(value: Any) -> Any:
    try:
        canonical_json(value)
    except InvalidInput as error:
        # YAML reads an unquoted date as a date.
        raise ValueError(f"{error}; put it in quotes") from None
    return value


Json = Annotated[Any, AfterValidator(_json)]
Number = Annotated[int | float, Field(allow_inf_nan=False)]
Some = Annotated[list[Json], Field(min_length=1, max_length=1000)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )


class Predicate(_Strict):
    """What a rule says about one argument: all of its conditions must hold."""

    equals: Json = None
    one_of: Some | None = Field(None, alias="in")
    not_in: Some | None = None
    matches: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)] | None = None
    starts_with: Annotated[str, Field(min_length=1)] | None = None
    lt: Number | None = None
    gt: Number | None = None
    le: Number | None = None
    ge: Number | None = None
    exists: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Predicate:
        empty = [n for n in self.model_fields_set if n != "equals" and getattr(self, n) is None]
        if empty or not self.model_fields_set:
            raise ValueError("says nothing: give each condition a value")
        return self

    def holds(self, arguments: Mapping[str, Any], path: Sequence[str]) -> Answer:
        """Whether every condition holds for the value at `path`."""
        value = value_at(arguments, path)
        return together(_HOLDS[name](value, getattr(self, name)) for name in self.model_fields_set)


def _exists(value: Any, expected: bool) -> Answer:
    # Checked arguments hold every optional one, as null if it was not given.
    return (value is not ABSENT and value is not None) is expected


def _kind(value: Any) -> str | None:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number" if math.isfinite(value) else None
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return None


def _one_of(value: Any, listed: Sequence[Any]) -> Answer:
    if _kind(value) not in set(map(_kind, listed)):
        return None
    try:
        return canonical_json(value) in set(map(canonical_json, listed))
    except InvalidInput:
        return None


def _not_in(value: Any, listed: Sequence[Any]) -> Answer:
    answer = _one_of(value, listed)
    return None if answer is None else not answer


def _matches(value: Any, pattern: str) -> Answer:
    if not isinstance(value, str) or len(value) > MAX_MATCHED:
        return None
    return fnmatch.fnmatchcase(value, pattern)


def _starts_with(value: Any, start: str) -> Answer:
    return value.startswith(start) if isinstance(value, str) else None


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Answer]:
    return lambda value, bound: compare(value, bound) if _kind(value) == "number" else None


_HOLDS: Mapping[str, Callable[[Any, Any], Answer]] = {
    "equals": lambda value, expected: _one_of(value, [expected]),
    "one_of": _one_of,
    "not_in": _not_in,
    "matches": _matches,
    "starts_with": _starts_with,
    "lt": _compared(operator.lt),
    "gt": _compared(operator.gt),
    "le": _compared(operator.le),
    "ge": _compared(operator.ge),
    "exists": _exists,
}


Name = Annotated[str, Field(min_length=1, max_length=256)]
People = Annotated[tuple[Name, ...], Field(max_length=100, strict=False)]


def _duration(text: str) -> str:
    if not read_span(text):
        raise ValueError("must be longer than 0")
    return text


class Approvers(_Strict):
    """Who may decide about a call: one of these is enough."""

    roles: People = ()
    groups: People = ()
    users: People = ()

    @model_validator(mode="after")
    def _names_someone(self) -> Approvers:
        if not self.roles and not self.groups and not self.users:
            raise ValueError("names nobody: give roles, groups or users")
        return self


class Escalation(_Strict):
    escalate: Name


class Rule(_Strict):
    """`then: ask` asks the requester; with `approvers`, those. `reason` says why the rule is there,
    `reason_required` that those who decide have to say why."""

    # A pattern with any other character could match no tool.
    tool: Annotated[str, Field(pattern=r"\A[A-Za-z0-9_\-*?\[\]!]{1,128}\z")]
    when: Annotated[dict[str, Predicate], Field(max_length=32)] = {}
    then: Decision
    reason: Annotated[str, Field(max_length=1000)] | None = None
    approvers: Approvers | None = None
    not_requester: bool = False
    quorum: Annotated[int, Field(ge=1, le=MAX_QUORUM)] = 1
    expires: Annotated[str, AfterValidator(_duration)] | None = None
    on_expiry: Literal["deny", "hold"] | Escalation = "deny"
    share_conversation: bool = False
    reason_required: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Rule:
        about_asking = self.model_fields_set & _ABOUT_ASKING
        if self.then != "ask" and about_asking:
            raise ValueError(f"{min(about_asking)} goes with then: ask")
        about_others = self.model_fields_set & _ABOUT_OTHERS
        if self.approvers is None and about_others:
            raise ValueError(f"{min(about_others)} goes with approvers: say who may decide")
        named = self.approvers
        if named is not None and not named.roles and not named.groups:
            if len(set(named.users)) < self.quorum:
                raise ValueError("quorum is larger than the number of users who may decide")
        return self

    @cached_property
    def review(self) -> Review | None:
        """What it demands of those who decide; `None`: nothing but the requester's word."""
        if not self.model_fields_set & _ABOUT_ASKING:
            return None
        on_expiry, group = _at_its_end(self.on_expiry)
        return Review(
            audience=Audience(**dict(self.approvers)) if self.approvers else Audience(),
            quorum=self.quorum,
            not_requester=self.not_requester,
            lifetime=float(read_span(self.expires)) if self.expires is not None else None,
            on_expiry=on_expiry,
            escalate_to=group,
            share_conversation=self.share_conversation,
            reason_required=self.reason_required,
        )

    @field_validator("when")
    @classmethod
    def _places_are_places(cls, when: dict[str, Predicate]) -> dict[str, Predicate]:
        for place in when:
            parse_place(place)
        return when

    def is_about(self, tool: str) -> bool:
        return fnmatch.fnmatchcase(tool, self.tool)

    @property
    def fixed_beginning(self) -> str:
        """What the names of all tools that it is about begin with."""
        return re.split(r"[*?[]", self.tool, maxsplit=1)[0]

    @property
    def allows_everything(self) -> bool:
        """Whether it says of tools of any name, with any arguments, that they run."""
        return self.then == "allow" and not self.when and not self.tool.strip("*?-")

    def hides(self, later: Rule) -> bool:
        """Whether this one, tried first, decides about every call that `later` is about, and lets
        more through."""
        if self.when or self._strictness >= later._strictness:
            return False
        begins = self.fixed_beginning
        takes_all = self.tool == f"{begins}*" and later.fixed_beginning.startswith(begins)
        return takes_all or self.tool == later.tool

    @property
    def _strictness(self) -> tuple[int, bool]:
        return ("allow", "ask", "deny").index(self.then), self.approvers is not None

    def applies(self, arguments: Mapping[str, Any], spec: ToolSpec) -> Answer:
        """Whether all its conditions hold for these arguments; `None` if that cannot be said."""
        return together(
            predicate.holds(arguments, path) if is_possible(spec.parameters, path) else None
            for place, predicate in self.when.items()
            for path in [parse_place(place)]
        )


_ABOUT_OTHERS = frozenset(("not_requester", "quorum", "share_conversation"))
_ABOUT_ASKING = _ABOUT_OTHERS | {"approvers", "expires", "on_expiry", "reason_required"}


def _at_its_end(wanted: Literal["deny", "hold"] | Escalation) -> tuple[OnExpiry, str | None]:
    return ("escalate", wanted.escalate) if isinstance(wanted, Escalation) else (wanted, None)


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
    _refuse_hidden(approvals.rules, f"{path}: {field}")
    return approvals


def _refuse_hidden(rules: Sequence[Rule], place: str) -> None:
    """Raises ConfigurationError: a rule that forbids more than one before it can never apply."""
    for number, rule in enumerate(rules):
        for first, earlier in enumerate(rules[:number]):
            if earlier.hides(rule):
                raise ConfigurationError(
                    f"{place}.rules[{number}] never applies: rules[{first}] before it says "
                    f"'{earlier.then}' of each of these calls; put the stricter rule first"
                )


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
        begins = rule.fixed_beginning
        # `*` and `mcp_*` also mean tools that come later.
        if any(prefix.startswith(begins) and prefix != begins for prefix in live):
            continue
        if not meant and (begins.startswith(live) or not begins):
            continue
        if not meant:
            raise ConfigurationError(f"{place}.tool: no tool is called '{rule.tool}'")
        for name in rule.when:
            if not any(is_possible(spec.parameters, parse_place(name)) for spec in meant):
                raise ConfigurationError(f"{place}.when: '{rule.tool}' has no argument '{name}'")


def _reasons(error: ValidationError, path: Path, field: str) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        )
        reason = problem["msg"].removeprefix("Value error, ")
        yield f"{path}: {field}{place}: {reason}"
