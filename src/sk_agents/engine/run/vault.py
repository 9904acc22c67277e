"""Secrets that only tools get back: everyone else, the model too, sees a placeholder.

What a placeholder stands for is kept in the event that first held it, in a store that is encrypted.
It is put back into the arguments of a call when its tool runs, and nowhere else; in what the tool
returns it is the same placeholder again. Calls, approvals and digests are about placeholders: what
one stands for never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.models import ToolCall
from sk_agents.engine.ports import Ids, Redaction, RedactionStream, Toolbox
from sk_agents.exceptions import ToolError

PLACEHOLDER = re.compile(r"\[secret-[0-9a-f]{8}\]")
# A shorter one is not looked for by itself: it would be found in ordinary words.
SHORTEST = 6


class VaultRedaction:
    """A `Redaction` that gives each secret a placeholder, the one it had before if it had one.

    `new` is what no event holds yet, by placeholder.
    """

    keeps_secrets = True

    def __init__(self, redaction: Redaction, known: Mapping[str, str], ids: Ids) -> None:
        self.new: dict[str, str] = {}
        self._redaction = redaction
        self._ids = ids
        self._known = known
        self._marks = {secret: mark for mark, secret in known.items()}

    def text(self, text: str) -> str:
        # Also where nothing around it says any more that it is one.
        marks = {secret: self._marks[secret] for secret in self._sought()}
        return self._redaction.marked(_replaced(text, marks), self._mark)

    def value(self, value: Any) -> Any:
        return changed(value, self.text)

    @property
    def hidden(self) -> str:
        return self._redaction.hidden

    def stream(self, also: Collection[str] = ()) -> RedactionStream:
        """A reader who watches along sees marks instead of placeholders."""
        return self._redaction.stream([*also, *self._sought()])

    def marked(self, text: str, mark: Callable[[str], str]) -> str:
        return self._redaction.marked(text, mark)

    def opens_for(self, tool: str) -> bool:
        return self._redaction.opens_for(tool)

    def _sought(self) -> list[str]:
        """The longest first: one may be the beginning of another."""
        return sorted((one for one in self._marks if len(one) >= SHORTEST), key=len, reverse=True)

    def _mark(self, secret: str) -> str:
        if PLACEHOLDER.fullmatch(secret):
            # A pattern has found it where the secret was.
            return secret
        # One that is a part of it: what is kept is what a tool is to get.
        secret = PLACEHOLDER.sub(self._true, secret)
        if secret not in self._marks:
            taken = set(self._marks.values())
            while (mark := f"[secret-{self._ids.new().replace('-', '')[-8:]}]") in taken:
                pass
            self._marks[secret] = mark
            self.new[mark] = secret
        return self._marks[secret]

    def _true(self, found: re.Match[str]) -> str:
        mark = found[0]
        return self._known.get(mark) or self.new.get(mark, mark)


def keeping(redaction: Redaction | None, known: Mapping[str, str], ids: Ids) -> Redaction | None:
    """For what is about to be stored in a thread with these secrets."""
    if redaction is None or not redaction.keeps_secrets:
        return redaction
    return VaultRedaction(redaction, known, ids)


def new_secrets(redaction: Redaction | None) -> dict[str, str] | None:
    """What the event must keep of what was taken out of it."""
    return (redaction.new or None) if isinstance(redaction, VaultRedaction) else None


def checked(
    redaction: Redaction | None, toolbox: Toolbox, call: ToolCall, secrets: Mapping[str, str]
) -> tuple[ToolCall, ToolCall]:
    """The call as it is kept, and as its tool gets it: both checked, with defaults filled in.

    Where a placeholder was written it stays, whatever the tool makes of what it stands for: a card
    that is taken for a number is no text that could be found again.

    Raises:
        ToolError: the arguments break the tool's schema. The text has no secrets.
    """
    meant = _opened(redaction, call, secrets)
    try:
        arguments = dict(toolbox.check(meant))
    except ToolError as error:
        raise ToolError(closed(str(error), call, secrets)) from error
    true_call = call.model_copy(update={"arguments": arguments})
    if meant.arguments == call.arguments:
        return true_call, true_call
    kept = closed(_as_written(call.arguments, arguments), call, secrets)
    return call.model_copy(update={"arguments": kept}), true_call


def opened(
    redaction: Redaction | None, toolbox: Toolbox, call: ToolCall, secrets: Mapping[str, str]
) -> ToolCall:
    """A call that was kept, as its tool gets it: what rules and previews look at, too."""
    meant = _opened(redaction, call, secrets)
    if meant.arguments == call.arguments:
        return call
    try:
        return call.model_copy(update={"arguments": dict(toolbox.check(meant))})
    except ToolError:
        # The tool is another one by now, and says so itself.
        return meant


def _opened(redaction: Redaction | None, call: ToolCall, secrets: Mapping[str, str]) -> ToolCall:
    if not secrets or redaction is None or not redaction.keeps_secrets:
        return call
    if not redaction.opens_for(call.name):
        return call
    arguments = changed(
        call.arguments,
        lambda text: PLACEHOLDER.sub(lambda found: secrets.get(found[0], found[0]), text),
    )
    return call.model_copy(update={"arguments": arguments})


def _as_written(written: Any, made: Any) -> Any:
    """What a tool's check has made of arguments, but for the texts with placeholders in them."""
    match written, made:
        case str(), _ if PLACEHOLDER.search(written):
            return written
        case Mapping(), Mapping():
            return {name: _as_written(written.get(name), item) for name, item in made.items()}
        case list(), list() if len(written) == len(made):
            return [_as_written(*pair) for pair in zip(written, made, strict=True)]
        case _:
            return made


def closed(value: Any, call: ToolCall, secrets: Mapping[str, str]) -> Any:
    """What was made of the opened call, with the placeholders of the call in it again."""
    if not secrets:
        return value
    named = set(PLACEHOLDER.findall(canonical_json(call.arguments).decode())) & secrets.keys()
    marks = {secrets[mark]: mark for mark in named}
    return changed(value, lambda text: _replaced(text, marks)) if named else value


def _replaced(text: str, marks: Mapping[str, str]) -> str:
    """With a placeholder for each of these secrets, the longest first. All at once: one may be a
    word that a placeholder has in it."""
    if not any(secret in text for secret in marks):
        return text
    secrets = map(re.escape, sorted(marks, key=len, reverse=True))
    either = re.compile("|".join((PLACEHOLDER.pattern, *secrets)))
    return either.sub(lambda found: marks.get(found[0], found[0]), text)


def changed(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed, also the names of its fields."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(str(name)): changed(item, change) for name, item in value.items()}
        case list() | tuple():
            return [changed(item, change) for item in value]
        case _:
            return value
