"""Keeping secrets out of what is written down: known values, known names, known shapes.

Nobody here should log a secret in the first place; a library may, and so may an error's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import SecretStr

from sk_agents.config.settings import Settings

HIDDEN = "[redacted]"
# Shorter ones would hide ordinary words.
SHORTEST = 6
_SECRET_VARIABLE = re.compile(
    r"(?:.*_)?(?:API_?KEY|KEYS?|TOKEN|SECRET|PASSWORD|PWD|OTLP(?:_[A-Z]+)?_HEADERS)$"
)
_SECRET_NAME = re.compile(
    r"(?i)(?:.*[_.-])?(?:authorization|cookie|api[_-]?key|token|secret|password|pwd|headers?)$"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")


def secret_values(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """The settings that are secrets, and whatever the environment keeps under a secret's name."""
    given = [getattr(settings, name) for name in Settings.model_fields]
    secrets = {value.get_secret_value() for value in given if isinstance(value, SecretStr)}
    return secrets | {value for name, value in environ.items() if _SECRET_VARIABLE.match(name)}


class Redactor:
    """Replaces secrets in text. Without any, and without a token in it, text stays as it is."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one may be the beginning of another.
        known = sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _BEARER.sub(rf"\1 {HIDDEN}", text)

    def fact(self, name: str, value: object) -> object:
        """A value under its name; what is neither number nor truth value becomes text."""
        if _SECRET_NAME.match(name):
            return HIDDEN
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.text(value if isinstance(value, str) else repr(value))
