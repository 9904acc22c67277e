"""The arguments of a call as a model spells them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.calls.proposals import MAX_ARGUMENT_BYTES, parse_arguments
from sk_agents.exceptions import ToolError


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("null", "one JSON object"),
        ("[]", "one JSON object"),
        ('"x"', "one JSON object"),
        ("{", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": 1} tail', "not valid JSON"),
        ('{"a": 1, "a": 2}', "key 'a' appears twice"),
        ('{"x": {"a": 1, "b": 2, "a": 2}}', "key 'a' appears twice"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": -Infinity}', "-Infinity is not a JSON value"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a":' + "[" * 64 + "]" * 64 + "}", "nested more than 64"),
        ("[" * 60_000, "nested more than 64"),
        ('{"a": "' + "x" * MAX_ARGUMENT_BYTES + '"}', "larger than"),
        ('{"a": "' + "\u00e9" * (MAX_ARGUMENT_BYTES // 2) + '"}', "larger than"),
    ],
)
def test_anything_but_one_plain_object_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        parse_arguments(text)


def test_brackets_inside_of_strings_do_not_nest() -> None:
    value = {"a": "[" * 100 + '"' + "{" * 100}
    assert parse_arguments(json.dumps(value)) == value


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())))
def test_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == value


@given(st.text(alphabet='{}[]":,\\ 01eE-+.NaIn\ud800tfu'))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_arguments(text), dict)
    except ToolError as error:
        assert str(error)
