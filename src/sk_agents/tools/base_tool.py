"""One tool, whatever it comes from: the base class of every kind, and results as text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic_core import to_json

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import Preview, ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ConfigurationError, InvalidInput
from sk_agents.tools.declarations import DEFAULT_TIMEOUT

ToolStream = AsyncGenerator[ToolChunk | ToolResult]
"""What a running tool gives out: any number of chunks, then its result."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Tool(ABC):
    """A tool checks when it is made, at start-up, what can be checked then."""

    spec: ToolSpec
    origin: str
    """Where it was defined, for messages to the operator."""
    requires_approval: bool | None = None

    @abstractmethod
    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they will run. What it returns, it returns again for itself.

        Raises:
            ToolError: they break the schema. The text is for the model.
        """

    async def sign_in(self, user_id: str) -> str | None:
        """Where this user must sign in before it can run; `None` if nowhere."""
        return None

    async def preview(self, arguments: dict[str, Any], context: ToolContext) -> Preview | None:
        """What a call with checked arguments would change as things are now; `None` if the
        arguments say it all.

        Raises:
            ToolError: the call would fail. The text is for the person who decides.
        """
        return None

    @abstractmethod
    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        """Run with checked arguments, which are the tool's to keep; the result comes last.

        Raises:
            ToolInterrupted: it was begun and broke off; what it did is not known.
            ToolError: the text is for the model. Anything else is the tool's failure.
        """


def tool_spec(
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    origin: str,
    effect: Effect = Effect.AT_MOST_ONCE,
    timeout: float = DEFAULT_TIMEOUT,
    requires_authorization: bool = False,
    title: str = "",
) -> ToolSpec:
    """The spec with the digest of everything that a model or a reviewer reads about the tool.

    Raises:
        ConfigurationError: no provider would take the name, or the schema is no JSON.
    """
    if not TOOL_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{origin}: {ascii(name[:100])} cannot be a tool's name: 1 to 64 of A-Z a-z 0-9 _ -"
        )
    try:
        definition = digest(
            {"name": name, "description": description, "schema": parameters, "effect": effect}
        )
    except InvalidInput as error:
        raise ConfigurationError(f"{origin}: its definition is no JSON: {error}") from None
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        effect=effect,
        definition_digest=definition,
        timeout=timeout,
        requires_authorization=requires_authorization,
        title=title,
    )


def text_of(result: object) -> str:
    """Text as it is, everything else as JSON."""
    if isinstance(result, str):
        return str.__str__(result)
    encoded = to_json(result, serialize_unknown=True, inf_nan_mode="strings", bytes_mode="base64")
    return encoded.decode()


def storable(text: str) -> str:
    """NUL and halves of surrogate pairs, which some stores refuse, become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)
