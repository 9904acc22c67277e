"""One spelling for one JSON value: RFC 8785 and the digests built on it."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sk_agents.engine.log.canonical import approval_digest, canonical_json, digest
from sk_agents.exceptions import InvalidInput

NUMBERS = [
    (0, "0"),
    (0.0, "0"),
    (-0.0, "0"),
    (1.0, "1"),
    (-1, "-1"),
    (4.50, "4.5"),
    (2e-3, "0.002"),
    (1e-6, "0.000001"),
    (1e-7, "1e-7"),
    (-1.5e-7, "-1.5e-7"),
    (0.000000000000000000000000001, "1e-27"),
    (5e-324, "5e-324"),
    (-5e-324, "-5e-324"),
    (1e16, "10000000000000000"),
    (1e20, "100000000000000000000"),
    (999999999999999900000.0, "999999999999999900000"),
    (1e21, "1e+21"),
    (1.5e21, "1.5e+21"),
    (1e23, "1e+23"),
    (9.999999999999997e22, "9.999999999999997e+22"),
    (1e30, "1e+30"),
    (333333333.33333329, "333333333.3333333"),
    (295147905179352830000.0, "295147905179352830000"),
    (424.94, "424.94"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (9007199254740993, "9007199254740993"),
    (-(2**63), "-9223372036854775808"),
    (10**21, "1000000000000000000000"),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS, ids=repr)
def test_number_is_written_as_ecmascript_prints_it(value: float, expected: str) -> None:
    assert canonical_json(value) == expected.encode()


def test_whole_example_of_the_rfc_is_reproduced() -> None:
    example = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_json(example) == expected.encode()


def test_keys_are_sorted_by_utf16_code_units() -> None:
    """U+1F602 is a surrogate pair (D83D DE02), so it sorts before U+FB33, as in the RFC."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f602", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f602", "\ufb33"]
    assert list(json.loads(canonical_json(dict.fromkeys(keys)))) == ordered


def test_surrogate_pair_sorts_before_the_private_use_area() -> None:
    assert canonical_json({"\ue000": 1, "\U00010000": 2}).decode() == '{"\U00010000":2,"\ue000":1}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ('"\\/', '"\\"\\\\/"'),
        ("\x00\x1f", '"\\u0000\\u001f"'),
        ("\x7f\u2028é漢🦊", '"\x7f\u2028é漢🦊"'),
    ],
)
def test_only_what_must_be_escaped_is_escaped(text: str, expected: str) -> None:
    assert canonical_json(text).decode() == expected


def test_empty_containers_and_tuples_are_written() -> None:
    assert canonical_json({"a": [], "b": {}, "c": (1, (2,))}) == b'{"a":[],"b":{},"c":[1,[2]]}'


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: dict[str, Any] = {
    "not a number": float("nan"),
    "infinity": [float("inf")],
    "negative infinity": {"a": -float("inf")},
    "half a surrogate pair": "\ud800",
    "half a pair in a key": {"\udc00": 1},
    "a number as key": {1: 1},
    "bytes": b"ab",
    "a set": {1},
    "an object": object(),
    "a range": range(2),
    "an integer too long to be read back": 10**5000,
    "endless nesting": nested(100_000),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json_value_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        canonical_json(NOT_JSON[name])


texts = st.text(st.characters(codec="utf-8"), max_size=8)
# Beyond 2**53 a double is written with fewer digits than the equal integer has.
floats = st.floats(-(2**53), 2**53)
leaves = st.none() | st.booleans() | st.integers() | floats | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_written_so_that_it_reads_back_the_same(value: float) -> None:
    assert float(json.loads(canonical_json(value))) == value


@given(values)
def test_output_parses_back_to_an_equal_value(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


@given(values)
def test_digest_ignores_key_order_and_white_space(value: Any) -> None:
    spaced = json.loads(json.dumps(reversed_keys(value), indent=3))
    assert digest(spaced) == digest(value)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the leaves are, empty containers among them."""
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in paths(value[key], (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for place, item in enumerate(value) for leaf in paths(item, (*path, place))]
    return [path]


def replaced(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = replaced(value[first], tuple(rest), leaf)
    return copy


@given(values, leaves, st.data())
def test_change_of_one_leaf_changes_the_digest(value: Any, leaf: Any, data: st.DataObject) -> None:
    changed = replaced(value, data.draw(st.sampled_from(paths(value))), leaf)
    assume(changed != value)
    assert digest(changed) != digest(value)


@pytest.mark.parametrize(
    ("one", "other"), [(True, 1), (False, 0), (None, 0), ("1", 1), ([], {}), ("", None)], ids=repr
)
def test_values_that_python_may_confuse_have_their_own_digests(one: Any, other: Any) -> None:
    assert digest({"a": one}) != digest({"a": other})


def test_ids_that_a_double_cannot_tell_apart_have_their_own_digests() -> None:
    assert digest(2**53) != digest(2**53 + 1)


BOUND: dict[str, Any] = {
    "thread_id": "t",
    "run_id": "r",
    "call_id": "c",
    "tool": "files-write",
    "definition_digest": "d",
    "arguments": {"path": "a", "size": 1},
}


@pytest.mark.parametrize(
    ("field", "other"),
    [
        *((field, "other") for field in BOUND if field != "arguments"),
        ("arguments", {"path": "b", "size": 1}),
        ("arguments", {"path": "a", "size": 2}),
        ("arguments", {"path": "a"}),
        ("arguments", {"path": "a", "size": 1, "mode": None}),
    ],
)
def test_approval_digest_changes_with_every_bound_field(field: str, other: Any) -> None:
    assert approval_digest(**BOUND) != approval_digest(**{**BOUND, field: other})


def test_approval_digest_is_the_same_for_reordered_arguments() -> None:
    arguments = {"size": 1, "path": "a"}
    assert approval_digest(**{**BOUND, "arguments": arguments}) == approval_digest(**BOUND)


def test_digest_of_a_known_value_is_stable() -> None:
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
