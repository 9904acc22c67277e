"""Arguments checked against a JSON schema that somebody else wrote, in words for the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from itertools import islice
from typing import Any

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import InvalidInput, ToolError
from sk_agents.tools.schema import MOST_PROBLEMS, MOST_TEXT

# What a value or a schema can make a check fail with.
UNCHECKABLE = (InvalidInput, ValueError, TypeError, ArithmeticError, RecursionError)


def problem_of(error: Any) -> str:
    """An error of a `jsonschema` validator with its place."""
    place = ".".join(map(str, error.absolute_path))
    return f"{place}: {error.message}" if place else str(error.message)


class SchemaCheck:
    """`schema` is about an object, `validator` a `jsonschema` validator of it.

    Of `defaults` those are filled in that the schema itself accepts.
    """

    def __init__(
        self, schema: Mapping[str, Any], validator: Any, defaults: Mapping[str, Any]
    ) -> None:
        self._schema = schema
        self._validator = validator
        broken = {str(error.path[0]) for error in validator.iter_errors(defaults) if error.path}
        self._defaults = {name: value for name, value in defaults.items() if name not in broken}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with defaults filled in.

        Raises:
            ToolError: they break the schema. The text is for the model.
        """
        filled = {**deepcopy(self._defaults), **deepcopy(dict(arguments))}
        try:
            problems = self.problems(filled)
        except UNCHECKABLE:
            raise ToolError("The arguments cannot be checked, nothing was run.") from None
        if problems:
            raise ToolError(self._advice(problems))
        return filled

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """What is wrong with them, each with its place; may raise what is in UNCHECKABLE."""
        canonical_json(dict(arguments))
        return [*self._unknown(arguments), *self._wrong(arguments)]

    def _unknown(self, arguments: Mapping[str, Any]) -> Iterator[str]:
        if self._schema.get("additionalProperties") or self._schema.get("patternProperties"):
            return
        known = self._schema["properties"]
        unknown = (name for name in arguments if name not in known)
        for name in islice(unknown, MOST_PROBLEMS + 1):
            near = get_close_matches(name[:64], known, n=1)
            yield f"{ascii(name[:64])}: is unknown" + (f"; is it {near[0]}?" if near else "")

    def _wrong(self, arguments: Mapping[str, Any]) -> Iterator[str]:
        for error in islice(self._validator.iter_errors(arguments), MOST_PROBLEMS + 1):
            if error.absolute_path or error.validator != "additionalProperties":
                yield problem_of(error)

    def _advice(self, problems: list[str]) -> str:
        listed = [f"- {problem[:MOST_TEXT]}" for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            listed.append("- and more")
        required = self._schema.get("required", ())
        names = [
            f"{name} (required)" if name in required else name
            for name in self._schema["properties"]
        ]
        expected = ", ".join(names) or "none"
        return "\n".join(
            ["The arguments are not valid, nothing was run:", *listed, f"Arguments: {expected}."]
        )
