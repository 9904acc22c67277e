"""An answer as the type that the configuration asks for.

The prompt has the type's schema. If its answer does not fit, a second model turns the answer
into the type; that model only rewrites, so it gets neither tools nor the conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from sk_agents.engine.models import Message, Usage
from sk_agents.engine.ports import Model
from sk_agents.engine.turns import Prompt, TextDelta, TurnFinished
from sk_agents.exceptions import ConfigurationError, ModelError, ModelInterrupted
from sk_agents.skagents.models import InvokeFailure
from sk_agents.skagents.turn import run_failure

TRANSFORM_SECONDS = 120.0
DEMAND = (
    "\n\nAnswer with one JSON document and nothing else: no explanation, no code fence. "
    "It must fit this JSON schema:\n"
)
TASK = (
    "You are given a text. Return what it says as one JSON document that fits the JSON schema "
    "below, and nothing else. Keep the wording of the text; add nothing, leave nothing out.\n"
)
FENCE = re.compile(r"```[a-z]*\s*\n(.*)\n\s*```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The answer as the type, and the tokens used to make it fit."""

    value: BaseModel
    usage: Usage


class StructuredOutput:
    def __init__(
        self, output_type: type[BaseModel], transformer: Model | None, *, is_held: bool = True
    ) -> None:
        """`is_held`: the provider can hold the agent's own model to a schema.

        Raises:
            ConfigurationError: the type has no JSON schema.
        """
        self._type = output_type
        self._transformer = transformer
        self._is_held = is_held
        self._schema = _schema(output_type)
        self._schema_text = json.dumps(self._schema, ensure_ascii=False)

    @property
    def response_schema(self) -> dict[str, Any] | None:
        return self._schema if self._is_held else None

    @property
    def demand(self) -> str:
        """Added to the message whose answer must be of the type."""
        return DEMAND + self._schema_text

    async def fit(self, text: str) -> Fitted | InvokeFailure:
        value = self._parsed(text)
        if value is not None:
            return Fitted(value, Usage())
        if self._transformer is None:
            return _does_not_fit(self._type)
        try:
            async with asyncio.timeout(TRANSFORM_SECONDS):
                rewritten, usage = await _reply(self._transformer, self._prompt(text))
        except ModelError as error:
            return run_failure(error.code, str(error))
        except TimeoutError:
            return run_failure("run_timeout", "Turning the answer into its type took too long.")
        value = self._parsed(rewritten)
        return _does_not_fit(self._type) if value is None else Fitted(value, usage)

    def _parsed(self, text: str) -> BaseModel | None:
        fenced = FENCE.fullmatch(text.strip())
        try:
            return self._type.model_validate_json(fenced[1] if fenced else text)
        except ValidationError:
            return None

    def _prompt(self, text: str) -> Prompt:
        task = Message(role="system", content=TASK + self._schema_text)
        return Prompt([task, Message(role="user", content=text)], response_schema=self._schema)


async def _reply(model: Model, prompt: Prompt) -> tuple[str, Usage]:
    texts: list[str] = []
    async with aclosing(model.stream(prompt)) as stream:
        async for pieces in stream:
            for piece in pieces:
                match piece:
                    case TextDelta():
                        texts.append(piece.content)
                    case TurnFinished():
                        return "".join(texts), piece.usage
    raise ModelInterrupted


def _schema(output_type: type[BaseModel]) -> dict[str, Any]:
    try:
        return output_type.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"'{output_type.__name__}' has no JSON schema: {type(error).__name__}"
        ) from error


def _does_not_fit(output_type: type[BaseModel]) -> InvokeFailure:
    message = f"The model's answer could not be turned into {output_type.__name__}."
    return InvokeFailure("output_invalid", message, 502)
