"""Amounts as a person writes them: money and tokens (`0.50 USD`, `100000 tokens`, or both), and
spans of time (`90d`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s+([A-Z]{3}|tokens)")
_SPAN = re.compile(r"(0|[1-9][0-9]{0,9})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# A moment that is further away cannot be told in every calendar.
_LONGEST_SPAN = 100 * 365 * 86400


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


def read_span(text: str) -> int:
    """Seconds. Raises ValueError: it cannot be understood, or is longer than a hundred years."""
    found = _SPAN.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else _LONGEST_SPAN + 1
    if seconds > _LONGEST_SPAN:
        raise ValueError("must be like 90s, 30m, 12h, 2d or 1w")
    return seconds
