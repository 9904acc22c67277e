"""The arguments of a call as a model spells them: text that is not trusted yet."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import InvalidInput, ToolError

MAX_BYTES = 64 * 1024
MAX_DEPTH = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object in `text`; nothing at all counts as an empty one.

    Raises:
        ToolError: anything else. The text tells the model what to send instead.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise ToolError(f"The arguments are larger than {MAX_BYTES} bytes. Send less.")
    if not text.strip():
        return {}
    _refuse_deep_nesting(text)
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
        )
        canonical_json(value)
    except (ValueError, InvalidInput) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ToolError(f"The arguments are not valid JSON: {reason}. Send one object.") from None
    if not isinstance(value, dict):
        raise ToolError("The arguments must be one JSON object with the arguments by name.")
    return value


def _refuse_deep_nesting(text: str) -> None:
    """Look at the brackets first: reading nested values recurses."""
    depth = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise ToolError(f"The arguments are nested more than {MAX_DEPTH} deep. Send less.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"key {ascii(repeated[:64])} appears twice")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value
