"""Small tools that touch nothing: arithmetic, the time, a question to the user.

An arithmetic expression is read as a syntax tree and computed node by node: nothing is executed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.base_tool import text_of
from sk_agents.tools.builtin.function_tool import BuiltinFunction
from sk_agents.tools.json_schema import usable

_Schema = Annotated[dict[str, Any], AfterValidator(usable)]
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")

Number = int | float

MOST_CHARACTERS = 1000
MOST_NODES = 300
MOST_BITS = 8192
MOST_FACTORIAL = 500

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_NAMES: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "log", "log2", "log10", "hypot")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: getattr(math, name) for name in ("atan2", "sinh", "cosh", "tanh", "cbrt")},
    **{name: getattr(math, name) for name in ("degrees", "radians", "floor", "ceil", "trunc")},
    **{name: getattr(math, name) for name in ("gcd", "lcm", "isqrt")},
    **{"abs": abs, "round": round, "min": min, "max": max, "sum": lambda *values: sum(values)},
}
# Their results grow faster than their arguments.
_GROWING: Mapping[str, Callable[..., int]] = {
    "factorial": math.factorial,
    "comb": math.comb,
    "perm": math.perm,
}


class MathTools:
    def functions(self) -> Iterator[BuiltinFunction]:
        yield BuiltinFunction("Math", self.calculate, Effect.READ_ONLY, asks=None, timeout=10)

    async def calculate(
        self, expression: Annotated[str, "An arithmetic expression, such as (2 + 3) * 4"]
    ) -> str:
        """Compute an arithmetic expression exactly. Use it instead of computing by heart."""
        return calculated(expression)


class ClockTools:
    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    def functions(self) -> Iterator[BuiltinFunction]:
        yield BuiltinFunction("Clock", self.current_time, Effect.READ_ONLY, asks=None, timeout=10)

    def current_time(
        self, zone: Annotated[str, "An IANA time zone, such as Europe/Oslo"] = "UTC"
    ) -> str:
        """Tell the date, the weekday and the time."""
        try:
            if not _ZONE.fullmatch(zone):
                raise ValueError
            place = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ToolError(
                f"There is no time zone {ascii(zone[:64])}. Zones are named like Europe/Oslo."
            ) from None
        now = self._now().astimezone(place)
        return f"{now:%A} {now.isoformat(timespec='seconds')} ({zone})"


class UserTools:
    def functions(self) -> Iterator[BuiltinFunction]:
        # It asks by itself; where no user can be asked, it must not even be tried.
        yield BuiltinFunction("User", self.ask_user, Effect.READ_ONLY, is_question=True)

    async def ask_user(
        self,
        question: Annotated[str, "What to ask, in full sentences"],
        choices: Annotated[list[str] | None, "The answers to choose from"] = None,
        schema: Annotated[_Schema | None, "A JSON schema of the answer"] = None,
        *,
        context: ToolContext,
    ) -> str:
        """Ask the user and wait for the answer. Only for what you cannot find out yourself."""
        if context.answer is None:
            raise ToolError("There is no answer: the user could not be asked.")
        return text_of(context.answer)


def calculated(expression: str) -> str:
    """The value of an arithmetic expression, as text.

    Raises:
        ToolError: it is no such expression, too large, or has no value.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ToolError(f"The expression is longer than {MOST_CHARACTERS} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        nodes = sum(1 for _ in ast.walk(tree))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ToolError("This is not an arithmetic expression, such as (2 + 3) * 4.") from None
    if nodes > MOST_NODES:
        raise ToolError("The expression has too many parts.")
    try:
        value = _value(tree.body)
    except ZeroDivisionError:
        raise ToolError("Division by zero.") from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ToolError(f"This has no value: {error}.") from None
    return repr(value)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            return _combined(type(kind), _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _called(name, [_value(argument) for argument in arguments])
        case _:
            raise ToolError(
                "Only numbers, + - * / // % **, parentheses, pi, e, tau and these functions can "
                f"be used: {', '.join(sorted({*_FUNCTIONS, *_GROWING}))}."
            )


def _combined(kind: type[ast.operator], left: Number, right: Number) -> Number:
    if kind is ast.Pow and isinstance(left, int) and isinstance(right, int) and right > 0:
        # Before it is computed: the size of a power is known from its parts.
        if left.bit_length() * right > MOST_BITS and abs(left) > 1:
            raise ToolError("The result has too many digits.")
    result = _OPERATORS[kind](left, right)
    if isinstance(result, complex):
        raise ToolError("The result is not a real number.")
    return _bounded(result)


def _called(name: str, values: list[Number]) -> Number:
    if name in _GROWING:
        if any(not isinstance(value, int) or value > MOST_FACTORIAL for value in values):
            raise ToolError(f"{name} takes whole numbers up to {MOST_FACTORIAL}.")
        return _bounded(_GROWING[name](*values))
    if name not in _FUNCTIONS:
        known = ", ".join(sorted({*_FUNCTIONS, *_GROWING}))
        raise ToolError(f"There is no function {ascii(name)}; there are: {known}.")
    result: Number = _FUNCTIONS[name](*values)
    return _bounded(result)


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ToolError("The result has too many digits.")
    return value
