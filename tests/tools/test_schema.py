"""Arguments: the schema a model sees, and the check of what it sends."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, computed_field

from sk_agents.exceptions import ToolError
from sk_agents.tools.parameters import Parameters, parameters_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = Field(1, ge=1)
    sender: str = Field("", alias="from")
    received: str = Field("", validation_alias="in", serialization_alias="out")

    @computed_field
    def shown(self) -> str:
        return f"{self.street} {self.number}"


def parameters(function: Callable[..., Any]) -> Parameters:
    return parameters_of(function, bound=True, origin="here")


def example(  # type: ignore[no-untyped-def]  # one parameter has no type
    text: Annotated[str, "What to write"],
    count: int,
    ratio: float,
    colour: Colour,
    mode: Literal["fast", "slow"],
    address: Address,
    others: list[Address],
    labels: dict[str, int],
    when: datetime,
    price: Decimal,
    note: str | None,
    old: Optional[int] = None,  # noqa: UP045  # the spelling of older plugins
    size: Annotated[int, Field(ge=1, description="How big")] = 3,
    favourite: Colour = Colour.BLUE,
    since: datetime = datetime(2024, 1, 2, tzinfo=UTC),
    sloppy: str = None,  # type: ignore[assignment]  # published plugins do this
    untyped=1,
) -> None: ...


EXAMPLE = parameters(example)
GOOD: dict[str, Any] = {
    "text": "hello",
    "count": 2,
    "ratio": 1,
    "colour": "red",
    "mode": "fast",
    "address": {"street": "Main", "from": "me", "in": "today"},
    "others": [],
    "labels": {"a": 1},
    "when": "2024-05-06T07:08:09+02:00",
    "price": "1.50",
    "note": None,
}


def test_schema_tells_types_descriptions_defaults_and_what_is_required() -> None:
    properties = EXAMPLE.schema["properties"]
    assert properties["text"] == {"type": "string", "description": "What to write"}
    assert properties["mode"] == {"type": "string", "enum": ["fast", "slow"]}
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["size"]["description"] == "How big"
    assert properties["size"]["default"] == 3
    assert properties["favourite"]["default"] == "blue"
    assert properties["since"]["default"] == "2024-01-02T00:00:00Z"
    assert properties["when"] == {"type": "string", "format": "date-time"}
    assert EXAMPLE.schema["required"] == list(GOOD)
    assert EXAMPLE.schema["additionalProperties"] is False
    assert EXAMPLE.schema["$defs"]["Address"]["properties"]["street"] == {"type": "string"}


def test_choices_are_sorted_whichever_order_was_written_first() -> None:
    def one(mode: Optional[Literal["b", "a"]]) -> None: ...  # noqa: UP045  # cached by `typing`
    def two(mode: Optional[Literal["a", "b"]]) -> None: ...  # noqa: UP045  # cached by `typing`

    assert parameters(one).schema == parameters(two).schema


def test_defaults_are_filled_in() -> None:
    checked = EXAMPLE.check(GOOD)
    assert checked["old"] is None
    assert checked["sloppy"] is None
    assert (checked["size"], checked["favourite"], checked["untyped"]) == (3, "blue", 1)
    assert checked["address"]["number"] == 1


def test_function_gets_python_values() -> None:
    values = EXAMPLE.values(EXAMPLE.check(GOOD))
    assert values["colour"] is Colour.RED
    assert values["price"] == Decimal("1.50")
    assert values["since"] == datetime(2024, 1, 2, tzinfo=UTC)
    assert isinstance(values["address"], Address)
    assert (values["address"].sender, values["address"].received) == ("me", "today")


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"count": "two"}, "count: Input should be a valid integer"),
        ({"count": "2.5"}, "count: Input should be a valid integer"),
        ({"count": " 2"}, "count: Input should be a valid integer"),
        ({"count": "9" * 5000}, "count: Input should be a valid integer"),
        ({"count": 2.5}, "count: Input should be a valid integer"),
        ({"count": True}, "count: Input should be a valid integer"),
        ({"text": 5}, "text: Input should be a valid string"),
        ({"text": None}, "text: Input should be a valid string"),
        ({"mode": "medium"}, "mode: Input should be 'fast' or 'slow'"),
        ({"colour": "green"}, "colour: Input should be 'red' or 'blue'"),
        ({"address": {"number": 0}}, "address.street: Field required"),
        ({"address": {"street": "x", "number": 0}}, "address.number: Input should be greater"),
        ({"others": [{"street": 1}]}, "others[0].street: Input should be a valid string"),
        ({"size": 0}, "size: Input should be greater"),
        ({"when": "tomorrow"}, "when: Input should be a valid datetime"),
        ({"coutn": 1}, "'coutn': is unknown; did you mean count?"),
        ({"x" * 100_000: 1}, "is unknown"),
        ({"text": "\ud800"}, "text: Invalid JSON"),
        ({"ratio": float("nan")}, "ratio: is not a JSON value"),
        ({"labels": {"a": object()}}, "labels: is not a JSON value"),
    ],
)
def test_bad_arguments_are_refused_with_what_to_fix(change: dict[str, Any], advice: str) -> None:
    with pytest.raises(ToolError) as caught:
        EXAMPLE.check({**GOOD, **change})
    assert advice in str(caught.value)
    assert "nothing was run" in str(caught.value)
    assert len(str(caught.value)) < 4000


def test_number_written_as_a_text_is_the_number_where_no_text_fits() -> None:
    checked = EXAMPLE.check({**GOOD, "count": "2", "text": "5"})
    assert (checked["count"], checked["text"]) == (2, "5")


def test_missing_arguments_are_all_named() -> None:
    with pytest.raises(ToolError) as caught:
        EXAMPLE.check({})
    assert "- text: is missing" in str(caught.value)
    assert "- and more" in str(caught.value)
    assert "text (required), count (required)" in str(caught.value)


def test_parameter_may_have_any_name_python_allows() -> None:
    def odd(copy: int, _private: str, model_config: str, schema: str = "s") -> None: ...

    given = {"copy": 1, "_private": "a", "model_config": "b"}
    assert parameters(odd).check(given) == {**given, "schema": "s"}


def test_value_that_changes_each_time_it_is_read_is_refused() -> None:
    def grows(text: Annotated[str, AfterValidator(lambda text: text + "!")]) -> None: ...

    with pytest.raises(ToolError, match="exactly as they would run"):
        parameters(grows).check({"text": "a"})


def test_validator_that_breaks_is_the_tools_failure_and_shows_no_detail() -> None:
    def broken(_text: str) -> str:
        raise KeyError("secret")

    def takes(text: Annotated[str, AfterValidator(broken)]) -> None: ...

    with pytest.raises(ToolError, match="text: cannot be checked") as caught:
        parameters(takes).check({"text": "a"})
    assert "secret" not in str(caught.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ADDRESSES = st.fixed_dictionaries(
    {"street": st.text()}, optional={"number": st.integers(1), "from": st.text(), "in": st.text()}
)
FITTING = st.fixed_dictionaries(
    {
        "text": st.text(),
        "count": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "colour": st.sampled_from(["red", "blue"]),
        "mode": st.sampled_from(["fast", "slow"]),
        "address": ADDRESSES,
        "others": st.lists(ADDRESSES, max_size=2),
        "labels": st.dictionaries(st.text(), st.integers(), max_size=3),
        "when": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
        "price": st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
        "note": st.none() | st.text(),
    },
    optional={"size": st.integers(1), "untyped": JSON},
)


@given(FITTING)
def test_checked_arguments_check_to_themselves(arguments: dict[str, Any]) -> None:
    checked = EXAMPLE.check(arguments)
    assert EXAMPLE.check(checked) == checked


@given(st.dictionaries(st.sampled_from([*GOOD, "size", "extra"]), JSON))
def test_any_arguments_are_checked_or_refused_in_words(arguments: dict[str, Any]) -> None:
    try:
        checked = EXAMPLE.check({**GOOD, **arguments})
    except ToolError as error:
        assert str(error)
    else:
        assert EXAMPLE.check(checked) == checked
