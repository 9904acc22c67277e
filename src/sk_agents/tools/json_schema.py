"""JSON schemas that were written elsewhere: by a server, a service, a model or an SDK.

A schema of a server or a model is bounded before anything is checked against it: its size counts
with every reference replaced by what it points to, so that a small text cannot make checking
endless. No reference is followed out of a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import InvalidInput, ToolError
from sk_agents.tools.parameters import (
    MOST_PROBLEMS,
    MOST_TEXT,
    NUMBER,
    advice,
    unknown_arguments,
)

MOST_BYTES = 64 * 1024
MOST_DEPTH = 64
# Nodes of the schema with its references replaced.
MOST_NODES = 5_000
# They change what a reference means, and so what was counted here would not be what is checked.
_RENAMING = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef")
# What a value or a schema can make a check fail with.
_UNCHECKABLE = (InvalidInput, ValueError, TypeError, ArithmeticError, RecursionError)
# Fields may be named elsewhere than in `properties`, so that none can be called unknown.
_COMPOSED = {"$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "oneOf", "then"}


class UnusableSchema(ValueError):
    """Why nothing is checked against this schema. `problem` is what is wrong in it, if known."""

    def __init__(self, reason: str, problem: str = "") -> None:
        super().__init__(reason)
        self.problem = problem


class SchemaCheck:
    """`schema` is about an object. Of `defaults` those are filled in that the schema accepts.

    Raises UnusableSchema: it is no JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._schema, self._validator = schema, _validator(schema)
        errors = self._validator.iter_errors(defaults)
        broken = {str(error.path[0]) for error in errors if error.path}
        self._defaults = {name: value for name, value in defaults.items() if name not in broken}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with defaults filled in.

        Raises:
            ToolError: they break the schema. The text is for the model.
        """
        filled = {**deepcopy(self._defaults), **deepcopy(dict(arguments))}
        try:
            problems = self.problems(filled)
            numbers = self._numbers(filled) if problems else {}
            if numbers and not self.problems({**filled, **numbers}):
                return {**filled, **numbers}
        except _UNCHECKABLE:
            raise ToolError("The arguments cannot be checked, nothing was run.") from None
        if problems:
            required = self._schema.get("required", ())
            fields = self._schema["properties"]
            raise ToolError(advice(problems, {name: name in required for name in fields}))
        return filled

    def _numbers(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What was written as a text and is a number, where the text does not fit."""
        refused = {
            str(error.absolute_path[0])
            for error in self._validator.iter_errors(arguments)
            if len(error.absolute_path) == 1
        }
        texts = {name: text for name, text in arguments.items() if name in refused}
        return {
            name: json.loads(text)
            for name, text in texts.items()
            if isinstance(text, str) and NUMBER.fullmatch(text)
        }

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """What is wrong with them, each with its place; may raise what is in _UNCHECKABLE."""
        canonical_json(dict(arguments))
        return [*self._unknown(arguments), *self._wrong(arguments)]

    def _unknown(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        further = self._schema.get("additionalProperties")
        if further or self._schema.get("patternProperties"):
            return ()
        if further is None and self._schema.keys() & _COMPOSED:
            return ()
        return unknown_arguments(arguments, self._schema["properties"])

    def _wrong(self, arguments: Mapping[str, Any]) -> Iterator[str]:
        for error in islice(self._validator.iter_errors(arguments), MOST_PROBLEMS + 1):
            if error.absolute_path or error.validator != "additionalProperties":
                yield _problem(error)


class ArgumentSchema:
    """The arguments of a tool, or the fields of a form, as an outsider's schema describes them.

    Raises UnusableSchema: the schema is too large, refers to itself or to somewhere else, is not
    about an object or is no schema at all.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, **_bounded(schema)}
        kind, properties = self.schema["type"], self.schema["properties"]
        if kind != "object" or not isinstance(properties, dict):
            raise UnusableSchema("it is not about an object")
        defaults = {
            name: entry["default"]
            for name, entry in properties.items()
            if isinstance(entry, Mapping) and entry.get("default") is not None
        }
        self.check = SchemaCheck(self.schema, defaults).check


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises UnusableSchema: too large, or it refers to itself or to somewhere else."""
    try:
        size = len(canonical_json(dict(schema)))
    except (InvalidInput, RecursionError):
        raise UnusableSchema("it is no JSON, or nested too deep") from None
    if size > MOST_BYTES:
        raise UnusableSchema(f"it is larger than {MOST_BYTES} bytes")
    _NodeCounter(schema).count(schema, 0, frozenset())


class _NodeCounter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MOST_NODES

    def count(self, node: Any, depth: int, through: frozenset[str]) -> None:
        """`through` are the references that led here."""
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            raise UnusableSchema("it is too large with its references replaced")
        if isinstance(node, list):
            for part in node:
                self.count(part, depth + 1, through)
        elif isinstance(node, Mapping):
            for keyword, part in node.items():
                if keyword in _RENAMING and isinstance(part, str):
                    raise UnusableSchema(f"it uses {keyword}")
                if keyword == "$ref" and isinstance(part, str):
                    if part in through:
                        raise UnusableSchema("it refers to itself")
                    self.count(self._target(part), depth + 1, through | {part})
                else:
                    self.count(part, depth + 1, through)

    def _target(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise UnusableSchema("it refers to something outside of it")
        node: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise UnusableSchema("it refers to something that is not there")
            node = node[name]
        return node


def usable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, if answers can be checked against it; raises UnusableSchema if not."""
    _validator(_bounded(schema))
    return schema


def check_answer(schema: Mapping[str, Any], answer: Any) -> None:
    """Return iff the user's answer fits the schema of the question.

    A form with one field may be answered with that field's value alone, and what is not a form
    with the JSON text of a value that fits: people type text.

    Raises:
        ToolError: it does not fit. The text names the field, for the user.
    """
    try:
        validator = _validator(_bounded(schema))
    except UnusableSchema:
        # Questions with such schemas are not asked any more; older ones must have an answer, too.
        return
    try:
        problems = _answer_problems(schema, validator, answer)
    except _UNCHECKABLE:
        raise ToolError("answer: cannot be checked.") from None
    if problems:
        shown = "; ".join(problem[:MOST_TEXT] for problem in problems[:MOST_PROBLEMS])
        raise ToolError(f"The answer does not fit: {shown}.")


def _answer_problems(schema: Mapping[str, Any], validator: Any, answer: Any) -> list[str]:
    wrong = [
        _problem(error) if error.absolute_path else f"answer: {error.message}"
        for error in validator.iter_errors(answer)
    ]
    fields = schema.get("properties")
    if not isinstance(fields, Mapping) or schema.keys() & _COMPOSED:
        return wrong if wrong and not _fits_as_json(validator, answer) else []
    if not isinstance(answer, Mapping):
        if len(fields) != 1:
            return wrong or ["answer: must be a form with its fields"]
        answer = {next(iter(fields)): answer}
    return SchemaCheck({**_bounded(schema), "properties": fields}, {}).problems(answer)


def _fits_as_json(validator: Any, answer: Any) -> bool:
    if not isinstance(answer, str):
        return False
    try:
        return bool(validator.is_valid(json.loads(answer)))
    except ValueError:
        return False


def _bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    bounded = {name: value for name, value in schema.items() if name != "$id"}
    check_schema(bounded)
    return bounded


def _problem(error: Any) -> str:
    """An error of a `jsonschema` validator with its place."""
    place = ".".join(map(str, error.absolute_path))
    return f"{place}: {error.message}" if place else str(error.message)


def _validator(schema: Mapping[str, Any]) -> Any:
    # Only servers with MCP or remote tools need it. It brings no types.
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415
    import referencing  # noqa: PLC0415

    draft = jsonschema.Draft202012Validator
    try:
        draft.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UnusableSchema("it is no JSON Schema", _problem(error)) from None
    except RecursionError:
        raise UnusableSchema("it is no JSON Schema", "nested too deep") from None
    # Patterns are left to the author of the schema: matching some of them takes without end. The
    # empty registry keeps the library from fetching what a reference names.
    lenient = jsonschema.validators.extend(draft, {"pattern": lambda *_: ()})
    return lenient(schema, registry=referencing.Registry())
