"""Pictures, files and long results that a thread's log holds once, however often they are said.

The first event with a content carries it, with its digest; later ones refer to it by the digest. So
a message that is edited or answered again does not bring its pictures along again, and neither does
a tool that returns what it returned before. A content belongs to one thread and goes with it: it is
encrypted with the thread's key, and no thread can find out what another one holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sk_agents.engine.events import Event, LateResult, RunQueued, RunStarted, ToolFinished
from sk_agents.engine.models import BLOB, Attachment, Part

# Shorter ones are not worth a reference.
SMALLEST = 1024
# The same for the text of a tool's result, of which nearly all are shorter.
SMALLEST_RESULT = 16 * 1024
REFERENCE_LENGTH = len(BLOB) + 2 * hashlib.sha256().digest_size
# The events that can hold any.
CARRIERS = frozenset((RunStarted, RunQueued, ToolFinished, LateResult))

Change = Callable[[str, str | None], tuple[str, str | None]]
"""From a content and its digest to others."""


def with_references(events: tuple[Event, ...], known: Mapping[str, str]) -> tuple[Event, ...]:
    """The events as they are stored in a thread that holds these contents, by digest."""
    if not any(map(_has_contents, events)):
        return events
    kept = set(known)

    def referred(content: str, digest: str | None) -> tuple[str, str | None]:
        if len(content) < SMALLEST:
            return content, None
        digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
        if digest in kept:
            return BLOB + digest, None
        kept.add(digest)
        return content, digest

    return tuple(_changed(event, referred) for event in events)


def with_contents(event: Event, known: dict[str, str]) -> Event:
    """The event as it was meant; the contents that it brings are added to those that are known.

    What it refers to may be missing, in a part of a log or after a bad import: it stays a
    reference then.
    """
    if not _has_contents(event):
        return event

    def found(content: str, digest: str | None) -> tuple[str, str | None]:
        if _refers(content):
            return known.get(content.removeprefix(BLOB), content), digest
        if digest is not None:
            known.setdefault(digest, content)
        return content, digest

    return _changed(event, found)


def carried(event: Event, known: Mapping[str, str], taken: set[str]) -> Event:
    """The event for a document that may leave others out: it brings what it refers to if none of
    those that are `taken` already did."""

    def content_of(content: str, digest: str | None) -> tuple[str, str | None]:
        if _refers(content):
            digest = content.removeprefix(BLOB)
            if digest in taken or digest not in known:
                return content, None
            content = known[digest]
        if digest is not None:
            taken.add(digest)
        return content, digest

    return _changed(event, content_of)


def _refers(content: str) -> bool:
    """A long text that begins like a reference is none."""
    return content.startswith(BLOB) and len(content) == REFERENCE_LENGTH


def is_reference(event: Event) -> bool:
    """Whether it stands for a result that an earlier event brings. A tool may print what looks
    like a reference: that has no digest."""
    return (
        isinstance(event, ToolFinished | LateResult)
        and event.digest is not None
        and event.result == BLOB + event.digest
    )


def _has_contents(event: Event) -> bool:
    """Whether it holds anything but short text; hardly any does, and each is asked twice."""
    if type(event) not in CARRIERS:
        return False
    match event:
        case RunStarted() | RunQueued() if event.message is not None:
            for part in event.message.parts:
                if part.kind != "text":
                    return True
            return False
        case ToolFinished() | LateResult():
            is_long = len(event.result) >= SMALLEST_RESULT
            return bool(event.attachments) or is_long or event.digest is not None
        case _:
            return False


def _changed(event: Event, change: Change) -> Event:
    if not _has_contents(event):
        return event
    match event:
        case RunStarted() | RunQueued() if event.message is not None:
            parts = tuple(_part(part, change) for part in event.message.parts)
            message = replace(event.message, parts=parts)
            return event.model_copy(update={"message": message})
        case ToolFinished() | LateResult():
            changes = _result_changes(event, change)
            if event.attachments:
                attachments = tuple(_attachment(one, change) for one in event.attachments)
                changes["attachments"] = attachments
            return event.model_copy(update=changes)
        case _:
            return event


def _result_changes(event: ToolFinished | LateResult, change: Change) -> dict[str, Any]:
    """A reference to a text keeps its digest: without one it is the text itself."""
    if event.digest is None and len(event.result) < SMALLEST_RESULT:
        return {}
    result, digest = change(event.result, event.digest)
    if digest is None and (result != event.result or is_reference(event)):
        digest = result.removeprefix(BLOB)
    return {"result": result, "digest": digest}


def _part(part: Part, change: Change) -> Part:
    if part.kind == "text":
        return part
    content, digest = change(part.content, part.digest)
    original = part.original and _attachment(part.original, change)
    return replace(part, content=content, digest=digest, original=original)


def _attachment(attachment: Attachment, change: Change) -> Attachment:
    if attachment.is_link:
        return attachment
    uri, digest = change(attachment.uri, attachment.digest)
    return replace(attachment, uri=uri, digest=digest)
