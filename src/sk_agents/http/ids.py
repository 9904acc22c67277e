"""Ids that clients send: of chats, of tasks, of a request, and the key of a repeated request.

One thing has one spelling: ids are plain ASCII and matched whole, so that neither a trailing
newline nor a full-width digit, a path or a pattern of some store can be one. Anything else is
refused before it is looked up.
"""

from __future__ import annotations

import re
import secrets
from itertools import count

from starlette.types import Scope

from sk_agents.exceptions import InvalidInput, MalformedRequest

CORRELATION_HEADER = "X-Correlation-Id"
RAW_CORRELATION_HEADER = CORRELATION_HEADER.lower().encode()
MAX_KEY_LENGTH = 255

CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_KEY = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_KEY_LENGTH)
# What a client sends ends up in headers and logs.
_CORRELATION_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_STATE_KEY = "correlation_id"
# Unlike any other process's, and with a counter unlike any other request's.
_PROCESS = secrets.token_hex(10)
_requests = count(1)


def chat_id(text: str) -> str:
    """`text`, if it can be the id of a chat.

    Raises:
        InvalidInput: it cannot.
    """
    if not CHAT_ID.fullmatch(text):
        raise InvalidInput("An id is 1 to 64 letters, digits, '_' or '-'.")
    return text


def canonical_uuid(text: str) -> str:
    """The canonical form, in lower case, of a UUID with hyphens and nothing around it.

    Raises:
        InvalidInput: it is none.
    """
    if not _UUID.fullmatch(text):
        raise InvalidInput("An id is a UUID with hyphens.")
    return text.lower()


def idempotency_key(scope: Scope) -> str | None:
    """The request's `Idempotency-Key`, if it has one: it says that this is the same request again.

    Raises:
        MalformedRequest: two of them, an empty or too long one, or other than visible ASCII.
    """
    keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise MalformedRequest(
            f"An Idempotency-Key is 1 to {MAX_KEY_LENGTH} visible ASCII characters, given once."
        )
    key: str = keys[0].decode()
    return key


def correlation_id_of(scope: Scope) -> str:
    """The request's id, which finds it in the logs: the client's own if it is harmless, else ours.

    It is chosen at the first call and stays the same.
    """
    state = scope.setdefault("state", {})
    if _STATE_KEY not in state:
        state[_STATE_KEY] = _incoming(scope) or f"{_PROCESS}{next(_requests):012x}"
    known: str = state[_STATE_KEY]
    return known


def _incoming(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == RAW_CORRELATION_HEADER:
            return value.decode() if _CORRELATION_ID.fullmatch(value) else None
    return None
