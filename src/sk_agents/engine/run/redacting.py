"""What a person sent, with secrets taken out before it is stored."""

from __future__ import annotations

import asyncio
from binascii import a2b_base64, b2a_base64
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sk_agents.engine.commands import DecideApproval, EditRun, StartRun
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.log.state import TITLE
from sk_agents.engine.models import Attachment, NewThread, Part, UserInput
from sk_agents.engine.ports import Redaction
from sk_agents.engine.run.vault import PLACEHOLDER
from sk_agents.exceptions import InvalidInput

# Characters of a file that are looked through at a time.
FILE_PIECE = 65_536


def redacted_start(redaction: Redaction | None, command: StartRun) -> StartRun:
    """With the thread that it may make, whose title comes from the message, too."""
    if redaction is None:
        return command
    message = redacted_input(redaction, command.message)
    if message == command.message:
        return command
    title = command.title and _title(command.title, message)
    return replace(command, message=message, title=title, new=_thread(command.new, message))


def redacted_edit(redaction: Redaction | None, command: EditRun) -> EditRun:
    if redaction is None or command.message is None:
        return command
    return replace(command, message=redacted_input(redaction, command.message))


def redacted_decision(
    redaction: Redaction | None, secrets: Collection[str], command: DecideApproval
) -> DecideApproval:
    """With why a person decides so, which the model reads of a no. `secrets` are those that the
    thread keeps. An answer and edited arguments stay: they are what a tool gets."""
    if redaction is None or command.message is None:
        return command
    stream = redaction.stream(secrets)
    return replace(command, message=stream.feed(command.message) + stream.end())


def redacted_input(redaction: Redaction, message: UserInput) -> UserInput:
    """Images stay as they are: there is no text to look in. Of a file that is no text, only the
    text is kept: secrets cannot be taken out of the original."""
    return UserInput(
        parts=tuple(_part(redaction, part) for part in message.parts),
        context={name: redaction.text(value) for name, value in message.context.items()},
    )


def redacted_shown(redaction: Redaction | None, shown: Mapping[str, Any]) -> dict[str, Any]:
    """What a person is shown of a call; it says so if something was taken out."""
    if redaction is None:
        return dict(shown)
    hidden: dict[str, Any] = redaction.value(shown)
    is_whole = hidden == dict(shown)
    if is_whole and redaction.keeps_secrets:
        is_whole = not PLACEHOLDER.search(canonical_json(shown).decode())
    return hidden if is_whole else {**hidden, "redacted": True}


def edited_as_meant(
    redaction: Redaction | None, arguments: Mapping[str, Any], edited: dict[str, Any]
) -> dict[str, Any]:
    """The arguments as a reviewer edited them, who was not shown the secrets in them: what was left
    as it was shown is what the model wrote.

    Raises:
        InvalidInput: a text was changed beside the mark of a secret, which would run as it stands.
    """
    shown = redaction.value(arguments) if redaction is not None else arguments
    if redaction is None or shown == arguments:
        return edited
    meant: dict[str, Any] = _put_back(edited, shown, arguments)
    mark = redaction.hidden.encode()
    if mark in canonical_json(meant) and mark not in canonical_json(arguments):
        raise InvalidInput(
            f"{redaction.hidden} stands for a secret that is not shown. Leave the whole text as it "
            "is, and the tool gets what the model wrote; or write another one."
        )
    return meant


def _put_back(edited: Any, shown: Any, true: Any) -> Any:
    if type(edited) is type(shown) and edited == shown:
        return true
    match edited, shown, true:
        case dict(), dict(), dict() if len(shown) == len(true):
            names = dict(zip(shown, true, strict=True))
            return {
                names.get(name, name): _put_back(item, shown[name], true[names[name]])
                if name in names
                else item
                for name, item in edited.items()
            }
        case list(), list(), list() if len(edited) == len(shown):
            return [_put_back(*items) for items in zip(edited, shown, true, strict=True)]
        case list(), list(), list():
            # Some were added or left out.
            known = list(zip(shown, true, strict=True))
            return [next((was for one, was in known if one == item), item) for item in edited]
        case _:
            return edited


async def redacted_attachment(redaction: Redaction, attachment: Attachment) -> Attachment:
    """Its name, where a link leads, and what is in a file that is a text. Other bytes stay."""
    name = redaction.text(attachment.name) if attachment.name is not None else None
    if attachment.is_link:
        return replace(attachment, name=name, uri=redaction.text(attachment.uri))
    if attachment.is_picture:
        return replace(attachment, name=name)
    head, _, encoded = attachment.uri.partition(",")
    try:
        text = a2b_base64(encoded).decode()
    except ValueError:
        return replace(attachment, name=name)
    hidden = (await _redacted_file(redaction, text)).encode()
    uri = f"{head},{b2a_base64(hidden, newline=False).decode()}"
    return replace(attachment, name=name, uri=uri, size=len(hidden))


async def _redacted_file(redaction: Redaction, text: str) -> str:
    """In pieces, with a pause after each: a file of megabytes must not hold up other runs."""
    stream, found = redaction.stream(), []
    for start in range(0, len(text), FILE_PIECE):
        found.append(stream.feed(text[start : start + FILE_PIECE]))
        await asyncio.sleep(0)
    return "".join((*found, stream.end()))


def _part(redaction: Redaction, part: Part) -> Part:
    if part.kind == "image":
        return part
    name = redaction.text(part.name) if part.name is not None else None
    content = redaction.text(part.content)
    return replace(part, content=content, name=name, original=None, pages=None)


def _thread(new: NewThread | None, message: UserInput) -> NewThread | None:
    if new is None or TITLE not in new.metadata:
        return new
    title = _title(str(new.metadata[TITLE]), message)
    return replace(new, metadata={**new.metadata, TITLE: title})


def _title(title: str, message: UserInput) -> str:
    """Cut again from the message: the first cut may have left half a secret."""
    return " ".join(message.text.split())[: len(title)].strip()
