"""What a tool returned, as text that a model can read and every store can keep."""

from __future__ import annotations

import re

from pydantic_core import to_json

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def text_of(result: object) -> str:
    """Text as it is, everything else as JSON."""
    if isinstance(result, str):
        return str.__str__(result)
    encoded = to_json(result, serialize_unknown=True, inf_nan_mode="strings", bytes_mode="base64")
    return encoded.decode()


def storable(text: str) -> str:
    """NUL and halves of surrogate pairs, which some stores refuse, become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)
