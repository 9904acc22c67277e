"""The key by which a client says: this is the same request as before."""

from __future__ import annotations

import re

from starlette.types import Scope

from sk_agents.exceptions import MalformedRequest

MAX_LENGTH = 255
_KEY = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_LENGTH)


def idempotency_key(scope: Scope) -> str | None:
    """The request's `Idempotency-Key`, if it has one.

    Raises:
        MalformedRequest: two of them, an empty or too long one, or other than visible ASCII.
    """
    keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise MalformedRequest(
            f"An Idempotency-Key is 1 to {MAX_LENGTH} visible ASCII characters, given once."
        )
    key: str = keys[0].decode()
    return key
