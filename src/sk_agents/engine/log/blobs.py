"""Pictures and files that a thread's log holds once, however often they are said.

The first event with a content carries it, with its digest; later ones refer to it by the digest. So
a message that is edited or answered again does not bring its pictures along again, and neither does
a tool that returns what it returned before. A content belongs to one thread and goes with it: it is
encrypted with the thread's key, and no thread can find out what another one holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from sk_agents.engine.events import Event, LateResult, RunQueued, RunStarted, ToolFinished
from sk_agents.engine.models import BLOB, Attachment, Part

# Shorter ones are not worth a reference.
SMALLEST = 1024
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

    def found(content: str, digest: str | None) -> tuple[str, str | None]:
        if content.startswith(BLOB):
            return known.get(content.removeprefix(BLOB), content), digest
        if digest is not None:
            known.setdefault(digest, content)
        return content, digest

    return _changed(event, found)


def carried(event: Event, known: Mapping[str, str], taken: set[str]) -> Event:
    """The event for a document that may leave others out: it brings what it refers to if none of
    those that are `taken` already did."""

    def content_of(content: str, digest: str | None) -> tuple[str, str | None]:
        if content.startswith(BLOB):
            digest = content.removeprefix(BLOB)
            if digest in taken or digest not in known:
                return content, None
            content = known[digest]
        if digest is not None:
            taken.add(digest)
        return content, digest

    return _changed(event, content_of)


def _has_contents(event: Event) -> bool:
    """Whether it holds anything but text; hardly any does, and each is asked twice."""
    if type(event) not in CARRIERS:
        return False
    match event:
        case RunStarted() | RunQueued() if event.message is not None:
            return any(part.kind != "text" for part in event.message.parts)
        case ToolFinished() | LateResult():
            return bool(event.attachments)
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
        case ToolFinished() | LateResult() if event.attachments:
            attachments = tuple(_attachment(one, change) for one in event.attachments)
            return event.model_copy(update={"attachments": attachments})
        case _:
            return event


def _part(part: Part, change: Change) -> Part:
    if part.kind == "text":
        return part
    content, digest = change(part.content, part.digest)
    return replace(part, content=content, digest=digest)


def _attachment(attachment: Attachment, change: Change) -> Attachment:
    if attachment.is_link:
        return attachment
    uri, digest = change(attachment.uri, attachment.digest)
    return replace(attachment, uri=uri, digest=digest)
