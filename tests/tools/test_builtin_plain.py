"""Arithmetic, the time and questions."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.basic_tools import ClockTools, calculated
from sk_agents.tools.builtin.function_tool import FunctionTool
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.tools.builtin_box import box
from tests.tools.calls import CONTEXT, result


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(2 + 3) * 4", "20"),
        ("7 // 2 + 7 % 2 - -1", "5"),
        ("2 ** 64 + 1", "18446744073709551617"),
        ("1 / 4", "0.25"),
        ("sqrt(16) + max(1, 2, 3)", "7.0"),
        ("round(pi, 4)", "3.1416"),
        ("factorial(20)", "2432902008176640000"),
        ("sum(1, 2, 3)", "6"),
        (" 1 + 1 ", "2"),
        ("9" * 900 + " % 7", str(int("9" * 900) % 7)),
        ("2 ** -1", "0.5"),
        ("1e308 * 10", "inf"),
        ("1 ** 10000000", "1"),
    ],
)
def test_expression_has_its_value(expression: str, value: str) -> None:
    assert calculated(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "open('/etc/passwd')",
        "[x for x in (1,)]",
        "lambda: 1",
        "1 if True else 2",
        "'a' * 3",
        "True + 1",
        "x",
        "1 < 2",
        "1 << 100000",
        "f'{1}'",
        "max(*[1])",
        "round(1, ndigits=1)",
        "9 ** 9 ** 9",
        "10 ** 10000000",
        "factorial(100000)",
        "comb(10 ** 9, 5)",
        "sqrt(-1)",
        "(-8) ** 0.5",
        "1 / 0",
        "10.0 ** 400",
        "lcm(" + ",".join(str(2**k + 1) for k in range(1, 100)) + ")",
        "1 +",
        "",
        "(" * 400,
        "-" * 900 + "1",
        "1" + "+1" * 490,
        "9" * 900 + "**3",
        "1" * 1001,
        "1j",
    ],
)
def test_anything_else_is_refused_in_words(expression: str) -> None:
    with pytest.raises(ToolError) as caught:
        calculated(expression)
    assert str(caught.value).endswith(".")


@given(st.text(alphabet="0123456789+-*/%(). eπmaxsqrtfl,", max_size=60))
def test_no_text_makes_it_fail_otherwise(expression: str) -> None:
    try:
        assert calculated(expression)
    except ToolError:
        pass


@pytest.fixture
def clock() -> Iterator[AgentToolbox]:
    tools = ClockTools(lambda: datetime(2030, 1, 1, 23, 30, tzinfo=UTC))
    yield AgentToolbox(FunctionTool(function, WorkerThreads()) for function in tools.functions())


async def test_time_is_told_in_the_zone_asked_for(clock: AgentToolbox) -> None:
    assert (await result(clock, "Clock-current_time")).content == (
        "Tuesday 2030-01-01T23:30:00+00:00 (UTC)"
    )
    oslo = await result(clock, "Clock-current_time", {"zone": "Europe/Oslo"})
    assert oslo.content == "Wednesday 2030-01-02T00:30:00+01:00 (Europe/Oslo)"


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "/etc/passwd", "", "x" * 5000])
async def test_zone_that_does_not_exist_is_told(clock: AgentToolbox, zone: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        await result(clock, "Clock-current_time", {"zone": zone})


@pytest.mark.parametrize(
    ("answer", "shown"), [("blue", "blue"), ({"size": 3}, '{"size":3}'), (0, "0")]
)
async def test_answer_of_the_user_is_the_result(tmp_path: Path, answer: Any, shown: str) -> None:
    asked = box(tmp_path, "ask_user")
    context = replace(CONTEXT, answer=answer)
    arguments = {"question": "Which colour?", "choices": ["blue", "red"]}
    assert (await result(asked, "User-ask_user", arguments, context)).content == shown
    assert [spec.question for spec in asked.specs()] == [True]


async def test_question_that_nobody_answered_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="There is no answer"):
        await result(box(tmp_path, "ask_user"), "User-ask_user", {"question": "Well?"})
