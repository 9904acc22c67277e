"""A task's instructions: a template that the operator wrote, filled in with what a client sent.

What a client sends is data and never becomes a template. The template runs in a sandbox: it sees
the input and earlier outputs, nothing of Python behind them, and its text is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sized
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from sk_agents.exceptions import ConfigurationError, InvalidInput

logger = logging.getLogger(__name__)

MAX_CHARACTERS = 1_000_000
MAX_BITS = 4_096


class _Sandbox(SandboxedEnvironment):
    # What multiplies can use up all memory in one step.
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _product_size(operator, left, right) > MAX_CHARACTERS:
            raise SecurityError(f"the result of {operator} would be too large")
        return super().call_binop(context, operator, left, right)


def _product_size(operator: str, left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
        return 0 if bits <= MAX_BITS else MAX_CHARACTERS + 1
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, Sized) and isinstance(times, int):
            return len(sequence) * times
    return 0


_SANDBOX = _Sandbox()


class Instructions:
    """A compiled template."""

    def __init__(self, source: str) -> None:
        """
        Raises:
            ConfigurationError: it is not a template.
        """
        try:
            self._template = _SANDBOX.from_string(source)
        except TemplateSyntaxError as error:
            raise ConfigurationError(
                f"is not a template: {error.message} (line {error.lineno})"
            ) from None

    def rendered(self, values: Mapping[str, Any]) -> str:
        """The text for the model.

        Raises:
            InvalidInput: these values cannot be filled in, or the text would be too long.
        """
        pieces: list[str] = []
        left = MAX_CHARACTERS
        try:
            for piece in self._template.generate(values):
                left -= len(piece)
                if left < 0:
                    raise InvalidInput("The task's instructions become too long with this input.")
                pieces.append(piece)
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            # The message may quote the input.
            logger.warning("instructions failed", extra={"error": type(error).__name__})
            raise InvalidInput(
                "The task's instructions cannot be filled in with this input."
            ) from error
        return "".join(pieces)
