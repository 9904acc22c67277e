"""Schemas that a server wrote: what is usable of them."""

from typing import Any

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}},
    },
}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (TREE, "refers to itself"),
        ({"type": "object", "$ref": "https://example.com/x"}, "outside"),
        ({"type": "object", "$ref": "other.json"}, "outside"),
        ({"type": "object", "$ref": "#/$defs/none"}, "not there"),
        ({"type": "object", "properties": {"$defs": {"$ref": "#"}}}, "refers to itself"),
        ({"type": "object", "properties": {"a": {"$id": "x"}}}, r"uses \$id"),
        ({"type": "object", "$dynamicRef": "#a"}, r"uses \$dynamicRef"),
        ({"type": "string"}, "not about an object"),
        ({"type": "object", "properties": []}, "not about an object"),
        ({"type": "object", "required": "x"}, "no JSON Schema"),
        ({"description": "x" * 70_000}, "larger than"),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(3000)}}, "too large|larger"),
    ],
)
def test_unusable_schema_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(UnusableSchema, match=why):
        ArgumentSchema(schema)


def test_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(UnusableSchema):
        ArgumentSchema(schema)


def test_schema_without_a_word_takes_no_arguments() -> None:
    empty = ArgumentSchema({})
    assert empty.check({}) == {}
    with pytest.raises(ToolError, match="unknown"):
        empty.check({"a": 1})


def test_defaults_that_break_their_own_schema_are_not_filled_in() -> None:
    properties = {"a": {"type": "integer", "default": "x"}, "b": {"default": 2}}
    assert ArgumentSchema({"properties": properties}).check({}) == {"b": 2}


def test_further_arguments_are_taken_where_the_schema_says_so() -> None:
    assert ArgumentSchema({"additionalProperties": True}).check({"a": 1}) == {"a": 1}


BY_NAME = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
BY_NUMBER = {"properties": {"number": {"type": "integer"}}, "required": ["number"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [BY_NAME, BY_NUMBER]},
        {"oneOf": [BY_NAME, BY_NUMBER]},
        {"$ref": "#/$defs/by_number", "$defs": {"by_number": BY_NUMBER}},
    ],
)
def test_arguments_are_taken_that_a_part_of_the_schema_names(schema: dict[str, Any]) -> None:
    check = ArgumentSchema({"type": "object", **schema}).check
    assert check({"number": 1}) == {"number": 1}
    with pytest.raises(ToolError, match="nothing was run"):
        check({"number": "one"})
    closed = ArgumentSchema({"type": "object", **schema, "additionalProperties": False}).check
    with pytest.raises(ToolError, match="'number': is unknown"):
        closed({"number": 1})


def test_pattern_is_left_to_the_server() -> None:
    """It could take for ever."""
    slow = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    text = "a" * 64 + "!"
    assert ArgumentSchema(slow).check({"a": text}) == {"a": text}


def test_what_is_returned_is_returned_again_for_itself() -> None:
    schema = {"properties": {"a": {"type": "array", "default": [1]}}}
    checked = ArgumentSchema(schema).check({})
    assert ArgumentSchema(schema).check(checked) == checked
    checked["a"].append(2)
    assert ArgumentSchema(schema).check({}) == {"a": [1]}


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        ({"type": "integer"}, "12", 12),
        ({"type": "number", "minimum": 0}, "1.5", 1.5),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "-3", -3),
        ({"type": "string"}, "12", "12"),
        ({"type": ["string", "integer"]}, "12", "12"),
    ],
)
def test_number_that_was_written_as_a_text_is_taken_where_no_text_fits(
    kind: dict[str, Any], given: str, taken: object
) -> None:
    schema = ArgumentSchema({"properties": {"a": kind}})
    assert schema.check({"a": given}) == {"a": taken}


@pytest.mark.parametrize("given", ["1.5", "0x10", "12 ", "many", "1e999"])
def test_text_that_is_not_the_number_asked_for_is_refused(given: str) -> None:
    schema = ArgumentSchema({"properties": {"a": {"type": "integer"}}})
    with pytest.raises(ToolError, match=r"nothing was run"):
        schema.check({"a": given})
