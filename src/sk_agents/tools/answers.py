"""What a user answers to a question, checked against the schema that the question came with.

The schema is a model's or a server's: it is bounded before anything is checked against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sk_agents.exceptions import ToolError
from sk_agents.tools.mcp.schema import UnusableSchema, check_schema, validator_of
from sk_agents.tools.schema import MOST_PROBLEMS, MOST_TEXT
from sk_agents.tools.schema_check import UNCHECKABLE, SchemaCheck, problem_of

# Fields may be named elsewhere than in `properties`, so that none can be called unknown.
_COMPOSED = {"$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "oneOf", "then"}


def usable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, if answers can be checked against it.

    Raises:
        UnusableSchema: too large, self-referring, or no schema.
    """
    _validator(schema)
    return schema


def check_answer(schema: Mapping[str, Any], answer: Any) -> None:
    """Return iff the answer fits.

    A form with one field may be answered with that field's value alone, and what is not a form
    with the JSON text of a value that fits: people type text.

    Raises:
        ToolError: it does not fit. The text names the field, for whoever answers.
    """
    try:
        validator = _validator(schema)
    except UnusableSchema:
        # Questions with such schemas are not asked any more; older ones must have an answer, too.
        return
    try:
        problems = _problems(schema, validator, answer)
    except UNCHECKABLE:
        raise ToolError("answer: cannot be checked.") from None
    if problems:
        shown = "; ".join(problem[:MOST_TEXT] for problem in problems[:MOST_PROBLEMS])
        raise ToolError(f"The answer does not fit: {shown}.")


def _validator(schema: Mapping[str, Any]) -> Any:
    plain = {name: value for name, value in schema.items() if name != "$id"}
    check_schema(plain)
    return validator_of(plain)


def _problems(schema: Mapping[str, Any], validator: Any, answer: Any) -> list[str]:
    fields = schema.get("properties")
    if not isinstance(fields, Mapping) or schema.keys() & _COMPOSED:
        found = _wrong(validator, answer)
        return found if found and not _fits_as_json(validator, answer) else []
    if not isinstance(answer, Mapping):
        if len(fields) != 1:
            return _wrong(validator, answer) or ["answer: must be a form with its fields"]
        answer = {next(iter(fields)): answer}
    return SchemaCheck({**schema, "properties": fields}, validator, {}).problems(answer)


def _wrong(validator: Any, answer: Any) -> list[str]:
    return [
        problem_of(error) if error.absolute_path else f"answer: {error.message}"
        for error in validator.iter_errors(answer)
    ]


def _fits_as_json(validator: Any, answer: Any) -> bool:
    if not isinstance(answer, str):
        return False
    try:
        return bool(validator.is_valid(json.loads(answer)))
    except ValueError:
        return False
