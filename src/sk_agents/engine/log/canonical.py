"""One spelling for one JSON value, and the digests built on it.

RFC 8785: members sorted by UTF-16 code units, numbers as ECMAScript prints them, no white space.
One deliberate difference: integers are written in full at any size. A tool argument may be a
64-bit id, and two ids that differ must never share a digest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

from sk_agents.exceptions import InvalidInput


def canonical_json(value: Any) -> bytes:
    """The canonical bytes of a JSON value.

    Raises:
        InvalidInput: not a JSON value: NaN, infinity, a lone surrogate, a key that is no string,
            or one that no reader could take back: nested too deeply, a number of too many digits.
    """
    try:
        return _spelt(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("a text holds half of a surrogate pair") from error
    except ValueError as error:
        raise InvalidInput("a number has too many digits") from error
    except RecursionError as error:
        raise InvalidInput("a value is nested too deeply") from error


def digest(value: Any) -> str:
    """SHA-256 over the canonical form, in hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def approval_digest(
    *,
    thread_id: str,
    run_id: str,
    call_id: str,
    tool: str,
    definition_digest: str,
    arguments: Mapping[str, Any],
    demands: Mapping[str, Any] | None = None,
) -> str:
    """What an approval is bound to: this call of this tool with these arguments, nothing else.

    `demands` say who may allow it, if that is not the requester.
    """
    bound: dict[str, Any] = {
        "thread_id": thread_id,
        "run_id": run_id,
        "call_id": call_id,
        "tool": tool,
        "definition_digest": definition_digest,
        "arguments": arguments,
    }
    return digest(bound if demands is None else bound | {"demands": demands})


def _spelt(value: Any) -> str:
    match value:
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case dict() | Mapping():
            # Most values are texts; those a call of this function is not worth.
            members = [
                f"{encode_basestring(key)}:{encode_basestring(one)}"
                if type(one := value[key]) is str
                else f"{encode_basestring(key)}:{_spelt(one)}"
                for key in _sorted(value)
            ]
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            items = [encode_basestring(i) if type(i) is str else _spelt(i) for i in value]
            return "[" + ",".join(items) + "]"
        case _:
            raise InvalidInput(f"{type(value).__name__} is not a JSON value")


def _sorted(value: Mapping[Any, Any]) -> list[str]:
    try:
        is_ascii = "".join(value).isascii()
    except TypeError:
        raise InvalidInput("an object's key is not a string") from None
    # The order is the same then, and found in a fifth of the time.
    if is_ascii:
        return sorted(value)
    return sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _number(value: float) -> str:
    """ECMAScript's Number::toString; Python's `repr` already finds the shortest digits."""
    if not math.isfinite(value):
        raise InvalidInput("NaN and infinity are not JSON values")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    digits, point = digits[leading:], point - leading
    digits = digits.rstrip("0") or "0"
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    shown = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{shown}e{'+' if power > 0 else '-'}{abs(power)}"
