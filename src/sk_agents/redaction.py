"""Secrets taken out of text: values that are known, and what looks like one.

Whole texts, and streams of pieces: a secret that is spread over several pieces is found, too,
because a stream holds back what may be the beginning of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

from sk_agents.config.settings import Settings

HIDDEN = "[redacted]"
# Shorter ones would hide ordinary words.
SHORTEST = 6
# A text without a gap may be long; a stream holds back no more of it than this.
MOST_HELD = 16 * 1024
# Of a longer text that must be let go, so much of its end stays held back.
LONGEST_SECRET = 512
# An operator's own pattern is looked for in a line, of which a stream holds back so much.
MOST_OF_A_LINE = 1024

_SECRET_VARIABLE = re.compile(
    r"(?i)(?:.*_)?(?:API_?KEY|KEYS?|TOKEN|SECRET|(?:PG)?PASSW(?:OR)?D|PASSPHRASE"
    r"|OTLP(?:_[A-Z]+)?_HEADERS)$|.+_PWD$"
)
_PROXY_VARIABLE = re.compile(r"(?i)(?:https?|all)_proxy")
# Between the user and the last @ of a proxy's URL.
_PROXY_PASSWORD = re.compile(r"[^:/@]*(?:://)?[^:/@]*:(.+)@")
_SECRET_NAME = re.compile(
    r"(?i)(?:.*[_.-])?(?:authorization|cookie|api[_-]?key|token|secret|password|headers?)$|.+[_.-]pwd$"
)
# What an agent with a vault has put in the place of a secret (`engine.run.vault`).
_PLACEHOLDER = re.compile(r"(\[secret-[0-9a-f]{8}\])")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")
# In what people say, "a basic idea" is no token.
_BEARER_IN_PROSE = re.compile(
    r"\b((?i:bearer|basic))\s+(?=\S*(?:[0-9_=+/]|[a-z][A-Z]|\.\S))[A-Za-z0-9._~+/=-]{8,}"
)
_OPEN_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s*\Z")

_BEGIN = "-----BEGIN "
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_MAYBE_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}(?:-{0,5}\Z|PRIVATE KEY-----(?!.*-----END [A-Z0-9 ]{0,40}-----))",
    re.DOTALL,
)
_PROVIDER_KEY = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic and those who do as they do
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r"|gh[opsur]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # signed tokens
    r")"
)
# Between the user and the @ of an address; what was hidden before stays as it is.
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@]{0,256}):(?!\[(?:redacted|secret-))([^\s/@]{1,512})@")
_OPEN_URL = re.compile(r":(?:/(?:/[^\s/@]*)?)?\Z")
MOST_OF_A_LOGIN = 800
_CARD = re.compile(r"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
# What a key, a token or a known value is made of, mostly: a stream waits for the end of it.
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+/=-")
_CARD_TAIL = re.compile(r"[0-9][0-9 -]{0,40}\Z")
# Digests and ids have rows of digits, too: of 24 hexadecimal digits and more, or as UUIDs.
_ID = re.compile(
    r"(?=[0-9]*[A-Fa-f])[0-9A-Fa-f]{24,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
)
_OF_AN_ID = frozenset("0123456789ABCDEFabcdef-")
MOST_OF_AN_ID = 128

KINDS = ("private_keys", "provider_keys", "cards", "url_passwords")


def secret_values(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """The settings that are secrets, and whatever the environment keeps under a secret's name."""
    given = [getattr(settings, name) for name in Settings.model_fields]
    secrets = {value.get_secret_value() for value in given if isinstance(value, SecretStr)}
    secrets |= {value for name, value in environ.items() if _SECRET_VARIABLE.match(name)}
    for name, value in environ.items():
        if _PROXY_VARIABLE.fullmatch(name) and (found := _PROXY_PASSWORD.match(value)):
            secrets |= {found[1], unquote(found[1])}
        elif (password := _url_password(value)) is not None:
            secrets |= {password, unquote(password)}
    # Several keys may be in one variable.
    return secrets | {part.strip() for value in secrets for part in value.split(",")}


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets in text: known values, tokens after `Bearer`, and what looks like a secret
    of one of the `kinds` or matches one of the `patterns`."""

    known: tuple[str, ...] = ()
    kinds: tuple[str, ...] = KINDS
    patterns: tuple[re.Pattern[str], ...] = ()
    bearer: re.Pattern[str] = _BEARER
    # The tools that get back what was taken out; `None`: it is gone.
    vault_tools: tuple[str, ...] | None = None

    @classmethod
    def of(cls, secrets: Iterable[str] = ()) -> Redactor:
        spelled = {form for one in secrets if len(one) >= SHORTEST for form in _spellings(one)}
        # The longest first: one may be the beginning of another.
        return cls(tuple(sorted(spelled, key=len, reverse=True)))

    def for_prose(
        self,
        kinds: Sequence[str] = KINDS,
        patterns: Sequence[str] = (),
        vault_tools: tuple[str, ...] | None = None,
    ) -> Redactor:
        """For what people, models and tools say. Raises re.error."""
        return replace(
            self,
            kinds=tuple(kinds),
            patterns=tuple(map(re.compile, patterns)),
            bearer=_BEARER_IN_PROSE,
            vault_tools=vault_tools,
        )

    @property
    def hidden(self) -> str:
        return HIDDEN

    @property
    def keeps_secrets(self) -> bool:
        return self.vault_tools is not None

    def opens_for(self, tool: str) -> bool:
        return any(fnmatchcase(tool, pattern) for pattern in self.vault_tools or ())

    def text(self, text: str) -> str:
        return self.marked(text, _hide)

    def marked(self, text: str, mark: Callable[[str], str]) -> str:
        """`mark` is for what was found in the text. What this server keeps secret itself is hidden
        from everyone, tools too."""

        def found(match: re.Match[str]) -> str:
            return mark(match[0])

        if "private_keys" in self.kinds and _BEGIN in text:
            text = _PRIVATE_KEY.sub(found, text)
        text = self._without_known(text)
        text = self.bearer.sub(lambda m: f"{m[1]} {mark(m[0][len(m[1]) :].strip())}", text)
        if "provider_keys" in self.kinds:
            text = _PROVIDER_KEY.sub(found, text)
        if "cards" in self.kinds:
            text = _CARD.sub(lambda m: mark(m[0]) if _is_card(m) else m[0], text)
        if "url_passwords" in self.kinds and "://" in text:
            text = _URL_PASSWORD.sub(lambda m: f"{m[1]}:{mark(m[2])}@", text)
        for pattern in self.patterns:
            text = pattern.sub(lambda m: mark(m[0]) if m[0] else "", text)
        return text

    def _without_known(self, text: str) -> str:
        """A known value may be a word as `secret`, which every placeholder has in it."""
        parts = _PLACEHOLDER.split(text)
        for number, part in enumerate(parts[::2]):
            for value in self.known:
                part = part.replace(value, HIDDEN)
            parts[2 * number] = part
        return "".join(parts)

    def value(self, value: Any) -> Any:
        """A JSON value, with every text in it redacted, also the names of its fields."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(name)): self.value(item) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case _:
                return value

    def fact(self, name: str, value: object) -> str | bool | int | float | None:
        """A value under its name; what is neither number nor truth value becomes text."""
        if _SECRET_NAME.match(name):
            return HIDDEN
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.text(value if isinstance(value, str) else repr(value))

    def stream(self, also: Collection[str] = ()) -> RedactedStream:
        if not also:
            return RedactedStream(self)
        known = sorted({*also, *self.known}, key=len, reverse=True)
        return RedactedStream(replace(self, known=tuple(known)))


class RedactedStream:
    """One text that comes in pieces. Joined, what it lets through is the redacted text."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        # Only these may begin outside a word.
        self._spaced = [value for value in redactor.known if not _WORD.issuperset(value)]

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        self._held += piece
        end = self._open_end(self._held)
        if len(self._held) - end > MOST_HELD:
            end = self._forced_end()
        shown, self._held = self._held[:end], self._held[end:]
        return self._redactor.text(shown) if shown else ""

    def _forced_end(self) -> int:
        """So much is held back that it must be let go, but for the end of it: what begins there may
        be a secret. Of a private key nothing is let go, and its middle is forgotten."""
        text, begin = self._held, self._held.find(_BEGIN)
        key = _MAYBE_PRIVATE_KEY.search(text, begin) if begin >= 0 else None
        if key is not None and "private_keys" in self._redactor.kinds:
            self._held = text[: key.end()] + text[max(key.end(), len(text) - LONGEST_SECRET) :]
            return key.start()
        longest = max((LONGEST_SECRET, *map(len, self._redactor.known)))
        end = self._before_secret(text, max(0, len(text) - longest))
        return end if len(text) - end <= MOST_HELD else len(text)

    def end(self) -> str:
        """The rest."""
        rest, self._held = self._held, ""
        return self._redactor.text(rest)

    def _open_end(self, text: str) -> int:
        """Where the first secret may begin that has not ended yet."""
        end = len(text)
        card = _CARD_TAIL.search(text, max(0, len(text) - 42))
        if card is not None:
            end = _first_digit(text, card.start())
        while end and text[end - 1] in _WORD:
            end -= 1
        if end and text[end - 1] == "[":
            # It may begin a placeholder, which is one only as a whole.
            end -= 1
        bearer = _OPEN_BEARER.search(text, max(0, end - 64), end)
        if bearer is not None:
            end = min(end, bearer.start())
        address = _OPEN_URL.search(text, max(0, len(text) - MOST_OF_A_LOGIN))
        if address is not None:
            end = min(end, address.start())
        begin = text.find(_BEGIN)
        if begin >= 0 and (open_key := _MAYBE_PRIVATE_KEY.search(text, begin)) is not None:
            end = min(end, open_key.start())
        for value in self._spaced:
            end = min(end, len(text) - _overlap(text, value))
        if self._redactor.patterns:
            end = min(end, max(text.rfind("\n") + 1, len(text) - MOST_OF_A_LINE))
        return self._before_secret(text, end)

    def _before_secret(self, text: str, end: int) -> int:
        """No later than `end`, and not in the middle of a secret."""
        for value in self._redactor.known:
            at = text.find(value, max(0, end - len(value) + 1), end + len(value) - 1)
            end = at if 0 <= at < end else end
        looked_for = (_PRIVATE_KEY, self._redactor.bearer, _PROVIDER_KEY, _CARD, _URL_PASSWORD)
        for pattern in (*looked_for, *self._redactor.patterns):
            for found in pattern.finditer(text):
                if found.start() < end < found.end():
                    end = found.start()
        return end


def _spellings(secret: str) -> set[str]:
    """The secret as it is, and as it stands in JSON, in JSON within JSON, in what Python prints of
    a value, and in an address: the same where it is made of nothing but letters and digits."""
    found = {secret, repr(secret)[1:-1], quote(secret), quote(secret, safe="")}
    for is_ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        found |= {once, json.dumps(once, ensure_ascii=is_ascii)[1:-1]}
    return found


def _url_password(value: str) -> str | None:
    """The password in an address. One that is the user's name or the scheme, as in examples, is a
    word that would be hidden everywhere."""
    if "://" not in value:
        return None
    try:
        parts = urlsplit(value)
    except ValueError:
        return None
    return parts.password if parts.password not in (parts.username, parts.scheme) else None


def _overlap(text: str, value: str) -> int:
    """How many characters at the end of the text may be the beginning of the value."""
    for size in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:size]):
            return size
    return 0


def _first_digit(text: str, at: int) -> int:
    while at and text[at - 1] in "0123456789 -":
        at -= 1
    return at


def _is_card(found: re.Match[str]) -> bool:
    digits = [int(digit) for digit in found[0] if digit.isdecimal()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and not _is_in_an_id(found)


def _is_in_an_id(found: re.Match[str]) -> bool:
    """Of ten rows of digits one has a valid check digit, and ids as those in our logs have many."""
    text, (start, end) = found.string, found.span()
    first, last = max(0, start - MOST_OF_AN_ID), min(len(text), end + MOST_OF_AN_ID)
    while start > first and text[start - 1] in _OF_AN_ID:
        start -= 1
    while end < last and text[end] in _OF_AN_ID:
        end += 1
    return _ID.fullmatch(text[start:end].strip("-")) is not None


def _hide(secret: str) -> str:
    """What stands for a secret is none: a pattern may find it where the secret was."""
    return secret if _PLACEHOLDER.fullmatch(secret) else HIDDEN
