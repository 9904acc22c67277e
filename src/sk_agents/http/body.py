"""Reading a request's JSON body, strictly: bounded in bytes, depth and time, no key twice.

What a body must be before a model looks at it is decided by `strict_json`; this module moves the
bytes. It runs for every message a user sends: what is rare is looked for before it is worked on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope

from sk_agents.exceptions import MalformedRequest, SlowRequest, TooLarge, UnsupportedMedia
from sk_agents.http.sse import LIVE_WRITES
from sk_agents.http.strict_json import MAX_VALUES, Unacceptable, check_json

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_BYTES_WITH_IMAGES = 12 * 1024 * 1024
BODY_SECONDS = 30.0
# What is larger takes milliseconds to be read.
LARGE = 256 * 1024
_JSON_TYPE = re.compile(rb"application/(?:json|[a-z0-9!#$&^_.-]+\+json)")
_ABOUT_BODY = frozenset(
    (b"content-encoding", b"content-length", b"content-type", b"transfer-encoding")
)
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
_UTF_8 = (b"utf-8", b'"utf-8"')


def body_of(
    request: Request,
    adapter: TypeAdapter[T],
    *,
    optional: bool = False,
    images: bool = False,
    max_values: int = MAX_VALUES,
) -> Coroutine[Any, Any, T]:
    """The request's body within the server's limits; it may be larger if it may have images.

    The way in which every surface reads bodies. Raises as `read_json`.
    """
    limits = request.app.state.limits
    return read_json(
        request.scope,
        request.receive,
        adapter,
        optional=optional,
        max_bytes=limits.image_body_bytes if images else limits.body_bytes,
        timeout=limits.body_seconds,
        max_values=max_values,
    )


async def checked_body(request: Request) -> tuple[bytes, Any]:
    """The request's body and the JSON in it, for a framework that validates it later.

    Without a body it is `(b"", None)`. Raises as `read_json`.
    """
    limits = request.app.state.limits
    content = await _content(request.scope, request.receive, limits.body_bytes, limits.body_seconds)
    if not content:
        return b"", None
    return content, await _parsed(content, _ANYTHING, MAX_VALUES)


async def read_json(
    scope: Scope,
    receive: Receive,
    adapter: TypeAdapter[T],
    *,
    max_bytes: int = MAX_BYTES,
    timeout: float = BODY_SECONDS,  # noqa: ASYNC109 - it bounds the client, not the caller
    optional: bool = False,
    max_values: int = MAX_VALUES,
) -> T:
    """The body as `adapter` reads it. With `optional` no body at all reads as `{}`.

    Raises:
        UnsupportedMedia: another content type, charset or any content encoding.
        TooLarge: more than `max_bytes`, counted as they arrive.
        SlowRequest: not complete within `timeout` seconds.
        MalformedRequest: not UTF-8, or the connection broke off.
        RequestValidationError: not JSON, nested too deep, a key given twice, a number or text that
            cannot be kept (lone surrogates, NUL), or not what `adapter` accepts.
    """
    content = await _content(scope, receive, max_bytes, timeout)
    return await _parsed(content or b"{}" if optional else content, adapter, max_values)


async def _content(scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> bytes:
    length, is_json = _announced(scope["headers"])
    if length is not None:
        if length > max_bytes:
            raise TooLarge
        if length and not is_json:
            raise UnsupportedMedia
    # On our own server most bodies have arrived by now: a timer would cost more than the reading.
    connection = (scope.get("extensions") or {}).get(LIVE_WRITES)
    if connection is not None and not connection.more_body:
        content = await _read(receive, max_bytes)
    else:
        try:
            async with asyncio.timeout(seconds):
                content = await _read(receive, max_bytes)
        except TimeoutError:
            raise SlowRequest from None
    if length is not None and len(content) != length:
        raise MalformedRequest
    if content and not is_json:
        raise UnsupportedMedia
    return content


async def _parsed(content: bytes, adapter: TypeAdapter[T], max_values: int) -> T:
    if len(content) > LARGE:
        # Other requests go on while this one is read.
        return await asyncio.to_thread(_validated, content, adapter, max_values)
    return _validated(content, adapter, max_values)


def _announced(headers: Sequence[tuple[bytes, bytes]]) -> tuple[int | None, bool]:
    """How long the body says it is, and whether it says it is JSON that we read."""
    length: int | None = None
    content_type: bytes | None = None
    is_plain = True
    for name, value in headers:
        if name not in _ABOUT_BODY:
            continue
        if name == b"content-length":
            if not value.isdigit() or length is not None:
                raise MalformedRequest
            length = int(value[:20])
        elif name == b"content-type":
            is_plain = is_plain and content_type is None
            content_type = value
        elif name == b"content-encoding":
            is_plain = is_plain and value.lower() == b"identity"
        else:
            is_plain = is_plain and value.lower() == b"chunked"
    return length, is_plain and content_type is not None and _is_json(content_type)


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    kind, *parameters = (part.strip() for part in content_type.lower().split(b";"))
    charsets = [value for part in parameters for value in part.split(b"charset=")[1:]]
    return bool(_JSON_TYPE.fullmatch(kind)) and all(charset in _UTF_8 for charset in charsets)


async def _read(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedRequest
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _validated(content: bytes, adapter: TypeAdapter[T], max_values: int) -> T:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    try:
        check_json(text, max_values)
        return adapter.validate_json(content)
    except Unacceptable as error:
        entry = {"loc": ("body",), "msg": str(error), "type": error.kind}
        raise RequestValidationError([entry]) from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**entry, "loc": ("body", *entry["loc"])} for entry in found]
        ) from None
