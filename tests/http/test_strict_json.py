"""What is written as a program writes it need not be looked at twice."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.http import strict_json
from sk_agents.http.strict_json import Unacceptable, check_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SPELLINGS = st.sampled_from(
    [
        lambda value: json.dumps(value),
        lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        lambda value: json.dumps(value, separators=(",", ":")).replace("1", "\\u0000"),
        lambda value: f'{{"a":{json.dumps(value, separators=(",", ":"))},"a":1}}',
        lambda value: json.dumps(value, separators=(",", ":"))[:-1],
    ]
)


def verdict(text: str) -> str | None:
    try:
        check_json(text)
    except Unacceptable as error:
        return error.kind
    return None


@given(value=VALUES, spell=SPELLINGS)
def test_the_quick_look_says_what_the_whole_one_says(value: Any, spell: Any) -> None:
    text = spell(value)
    quick = verdict(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "PLAINEST", -1)
        assert verdict(text) == quick


def test_what_a_program_writes_is_looked_at_quickly() -> None:
    document = {"items": [{"content": "Grüße", "n": [1, 2.5, None, True, -(2**63)]}]}
    assert strict_json.is_plainest(orjson.dumps(document).decode())


@pytest.mark.parametrize(
    "text", ['"\\u0000"', '{"a":1,"a":1}', "NaN", "1e999", "12345678901234567890123"]
)
def test_what_parsers_read_differently_is_looked_at_closely(text: str) -> None:
    assert not strict_json.is_plainest(text)
