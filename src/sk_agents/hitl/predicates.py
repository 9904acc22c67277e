"""What a rule can say about one argument.

A condition answers yes, no or, with `None`, nothing at all: a value that is absent or of another
type than the rule's own cannot be compared, and nobody guesses.
"""

from __future__ import annotations

import fnmatch
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import InvalidInput
from sk_agents.hitl.pointers import ABSENT, at

MAX_PATTERN = 256
# Matching takes time proportional to pattern times text.
MAX_MATCHED = 8 * 1024


Answer = bool | None


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


class Predicate(BaseModel):
    """All of its conditions must hold."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )

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
        value = at(arguments, path)
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
