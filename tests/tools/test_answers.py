"""Answers to questions, checked against the schema that a model or a server wrote."""

from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.tools.json_schema import check_answer
from tests.tools.builtin_box import box
from tests.tools.calls import call

ONE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
LOOP = {"type": "object", "properties": {}, "allOf": [{"$ref": "#"}]}
FAR = {"$ref": "http://127.0.0.1:9/x.json"}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({}, "anything"),
        ({"type": "string"}, "text"),
        ({"type": "integer"}, 7),
        ({"type": "integer"}, "7"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]"),
        ({"enum": ["red", "blue"]}, "red"),
        (ONE, {"name": "Ada"}),
        (ONE, "Ada"),
        (TWO, {"a": 1}),
        ({"type": "object"}, {"free": True}),
        ({"anyOf": [ONE, {"type": "null"}], "properties": {}}, {"name": "Ada"}),
        ({**ONE, "additionalProperties": True}, {"name": "Ada", "more": 1}),
        ({"$id": "https://example.com/x", **ONE}, {"name": "Ada"}),
        # Nobody could answer these: they are not asked any more.
        (LOOP, "anything"),
        (FAR, "anything"),
    ],
)
def test_answer_that_fits_is_taken(schema: dict[str, Any], answer: Any) -> None:
    check_answer(schema, answer)


@pytest.mark.parametrize(
    ("schema", "answer", "named"),
    [
        ({"type": "integer"}, "seven", "answer: 'seven' is not of type 'integer'"),
        ({"type": "integer"}, True, "answer"),
        ({"enum": ["red", "blue"]}, "green", "answer"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], "1: 'x' is not of type"),
        (ONE, {"name": 7}, "name: 7 is not of type 'string'"),
        (ONE, {}, "'name' is a required property"),
        (ONE, {"nmae": "Ada"}, "'nmae': is unknown; did you mean name?"),
        (ONE, 7, "name: 7 is not of type 'string'"),
        (TWO, "Ada", "answer"),
        (ONE, {"name": float("nan")}, "answer"),
        ({"type": "object", "properties": {"a": ONE}}, {"a": {"name": 1}}, "a.name: 1 is not"),
    ],
)
def test_answer_that_does_not_fit_is_refused_by_the_field_s_name(
    schema: dict[str, Any], answer: Any, named: str
) -> None:
    with pytest.raises(ToolError) as refused:
        check_answer(schema, answer)
    assert named in str(refused.value)


def test_explanation_of_many_problems_is_short() -> None:
    many = {f"field{number}": "x" * 10_000 for number in range(100)}
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in many}}
    with pytest.raises(ToolError) as refused:
        check_answer(schema, many)
    assert len(str(refused.value)) < 3_000


@pytest.mark.parametrize("schema", [LOOP, FAR, {"type": "nothing"}, {"description": "x" * 70_000}])
def test_question_with_a_schema_nobody_can_follow_is_not_asked(
    tmp_path: Path, schema: dict[str, Any]
) -> None:
    asking = box(tmp_path, "ask_user")
    with pytest.raises(ToolError, match="schema"):
        asking.check(call("User-ask_user", {"question": "?", "schema": schema}))
