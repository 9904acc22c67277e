"""A thread's head as bytes, sealed like a record."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.models import HEAD_VERSION, Thread, ThreadStatus
from sk_agents.exceptions import InvalidInput, SchemaTooNew, StateCorrupt


def encode_head(thread: Thread) -> bytes:
    """Raises InvalidInput if the metadata has no JSON form."""
    if not holds_only_text(thread.metadata):
        canonical_json(thread.metadata)  # orjson would make null of NaN, without a word
    try:
        return orjson.dumps(thread._asdict())
    except orjson.JSONEncodeError as error:
        raise InvalidInput("The metadata cannot be written as JSON.") from error


def holds_only_text(metadata: Mapping[str, Any]) -> bool:
    """As most metadata does: nothing in it can go wrong or be changed."""
    for value in metadata.values():
        if type(value) is not str:
            return False
    return True


def head_checksum(thread_id: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(thread_id.encode()))


def decode_head(thread_id: str, body: bytes, check: int) -> Thread:
    """The head these bytes hold.

    Raises:
        StateCorrupt: they are not what was written for this thread.
        SchemaTooNew: a newer version wrote them.
    """
    if head_checksum(thread_id, body) != check:
        raise StateCorrupt("A stored head does not match its checksum.", thread_id=thread_id)
    return head_from(thread_id, orjson.loads(body))


def head_from(thread_id: str, fields: dict[str, Any]) -> Thread:
    """The head these fields describe; see `decode_head`."""
    version = fields.get("version")
    if isinstance(version, int) and version > HEAD_VERSION:
        raise SchemaTooNew(thread_id=thread_id)
    try:
        return _head(**{**fields, "version": HEAD_VERSION})
    except (TypeError, ValueError) as error:
        raise StateCorrupt("A stored head cannot be read.", thread_id=thread_id) from error


def _head(
    *,
    status: str,
    created_at: str,
    updated_at: str,
    expires_at: str | None,
    **others: Any,
) -> Thread:
    return Thread(
        status=ThreadStatus(status),
        created_at=datetime.fromisoformat(created_at),
        updated_at=datetime.fromisoformat(updated_at),
        expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
        **others,
    )
