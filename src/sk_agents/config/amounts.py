"""Amounts of money and tokens as a person writes them: `0.50 USD`, `100000 tokens`, or both."""

from __future__ import annotations

import re
from dataclasses import dataclass

_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s+([A-Z]{3}|tokens)")


@dataclass(frozen=True, slots=True)
class Amounts:
    """`None` means no limit of this kind."""

    cost: float | None = None
    currency: str | None = None
    tokens: int | None = None


def read_amounts(text: object) -> Amounts:
    """Raises ValueError: it cannot be understood. Says what can."""
    cost = currency = tokens = None
    for part in str(text).split(","):
        found = _AMOUNT.fullmatch(part.strip())
        number, unit = found.groups() if found else ("", "")
        if unit == "tokens" and tokens is None and number.isdecimal() and int(number):
            tokens = int(number)
        elif unit not in ("", "tokens") and cost is None and float(number):
            cost, currency = float(number), unit
        else:
            raise ValueError("must be like `0.50 USD`, `100000 tokens` or `5 USD, 100000 tokens`")
    return Amounts(cost, currency, tokens)
