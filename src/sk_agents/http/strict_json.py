"""What JSON must be before it is used: one meaning, bounded, and possible to keep.

Parsers differ on a key given twice, on NaN, on numbers beyond 64 bits and on NUL: the part that
checks and the part that acts must never read two different things. Lone surrogates and what follows
the value are left to the parser that reads it next, which lets neither pass.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

MAX_DEPTH = 64
# Members of all arrays and objects together.
MAX_VALUES = 10_000
# More marks than the longest text we accept can hold: refused before anything is built of them.
MAX_MARKS = 300_000
MAX_INTEGER = 2**64 - 1
MIN_INTEGER = -(2**63)
# Of what is longer, it takes as long to write it again as to look at it.
PLAINEST = 4_096

# Begins with one set, not with alternatives: searching for that is four times as fast.
_SUSPICIOUS_NUMBER = re.compile(r"[0-9](?:[0-9]{18}|[eE]\+?[0-9]{3})")
# A backslash is escaped by the one before it, so the count of those decides.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")


class Unacceptable(Exception):
    """Says what is wrong without repeating it; `kind` is the error's type on the wire."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def check_json(text: str, max_values: int = MAX_VALUES) -> None:
    """Pass what has one meaning to every parser.

    Raises:
        Unacceptable: not JSON, a key given twice, too deep, too many values, a number or a NUL
            that cannot be kept.
    """
    opened = text.count("[") + text.count("{")
    members = text.count(",")
    if opened <= MAX_DEPTH and members < max_values and is_plainest(text):
        return
    if max(opened, members) > MAX_MARKS * max_values // MAX_VALUES:
        raise _too_many(max_values)
    try:
        value, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
        if _SUSPICIOUS_NUMBER.search(text):
            _CAREFUL_DECODER.raw_decode(text.lstrip(" \t\r\n"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise Unacceptable("json_invalid", f"Invalid JSON at {where}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        # Python reads no integer of more than some thousand digits.
        raise _bad_number() from None
    if opened > MAX_DEPTH or members >= max_values:
        _check_shape(value, max_values)
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        raise Unacceptable("json_nul", "Text must not contain NUL")


def is_plainest(text: str) -> bool:
    """Whether it is written as a program writes it: nothing in it is said twice or can be read in
    two ways if what was read of it is written the same again."""
    if len(text) > PLAINEST or "\\u0000" in text:
        return False
    try:
        return orjson.dumps(orjson.loads(text)) == text.encode()
    except orjson.JSONDecodeError:
        return False


def _check_shape(value: Any, max_values: int) -> None:
    level = [value] if isinstance(value, dict | list) else []
    depth = values = 0
    while level:
        depth += 1
        values += sum(map(len, level))
        if depth > MAX_DEPTH:
            raise _too_deep()
        if values > max_values:
            raise _too_many(max_values)
        level = [
            member
            for holder in level
            for member in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(member, dict | list)
        ]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Unacceptable("json_duplicate_key", "A key is given more than once")
    return members


def _constant(_: str) -> NoReturn:
    raise _bad_number()


def _integer(digits: str) -> int:
    # Longer than any that fits, whatever its sign: not worth the conversion.
    number = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        raise _bad_number()
    return number


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _bad_number()
    return number


def _bad_number() -> Unacceptable:
    return Unacceptable("json_number", "A number is out of range")


def _too_deep() -> Unacceptable:
    return Unacceptable("json_depth", f"Nested deeper than {MAX_DEPTH} levels")


def _too_many(max_values: int) -> Unacceptable:
    return Unacceptable("json_values", f"More than {max_values} values")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_real)
