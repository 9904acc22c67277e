"""The type that an agent's answer must have: a schema for the model, a check of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from sk_agents.exceptions import ConfigurationError, OutputInvalid
from sk_agents.tools.json_schema import UnusableSchema, check_schema

# An answer that is no object is wrapped into one, as the SDK does.
_WRAPPED = "response"


class OutputType:
    """Of a Python type, or of one of the SDK's own output schemas."""

    def __init__(self, wanted: Any, place: str) -> None:
        """Raises ConfigurationError: it has no JSON schema."""
        named = getattr(wanted, "name", None)
        self.name = str(named()) if callable(named) else getattr(wanted, "__name__", str(wanted))
        self._is_wrapped = False
        self._parse: Callable[[str], Any]
        if callable(getattr(wanted, "validate_json", None)):
            self.schema, self._parse = dict(wanted.json_schema()), wanted.validate_json
        else:
            try:
                adapter: TypeAdapter[Any] = TypeAdapter(wanted)
                schema = adapter.json_schema()
            except PydanticUserError as error:
                raise ConfigurationError(
                    f"{place}output_type has no JSON schema: {type(error).__name__}"
                ) from None
            self._is_wrapped = schema.get("type") != "object"
            self.schema, self._parse = self._closed(schema), adapter.validate_json
            if self._is_wrapped:
                self._parse = lambda text: adapter.validate_python(_unwrapped(text))
        try:
            check_schema(self.schema)
        except UnusableSchema as error:
            raise ConfigurationError(f"{place}output_type: {error}") from None

    def parsed(self, text: str) -> Any:
        """The answer as the type. Raises OutputInvalid."""
        try:
            return self._parse(text)
        except ValueError as error:
            count = error.error_count() if isinstance(error, ValidationError) else 1
            raise OutputInvalid(
                f"The model's answer is no {self.name}: {count} of its values do not fit."
            ) from None
        except Exception as error:  # the SDK has errors of its own, and so may validators have
            raise OutputInvalid(f"The model's answer is no {self.name}.") from error

    def _closed(self, schema: dict[str, Any]) -> dict[str, Any]:
        closed: dict[str, Any] = _strict(schema)
        if not self._is_wrapped:
            return closed
        definitions = closed.pop("$defs", None)
        wrapped: dict[str, Any] = {
            "title": "response",
            "type": "object",
            "properties": {_WRAPPED: closed},
            "required": [_WRAPPED],
            "additionalProperties": False,
        }
        return wrapped if definitions is None else {**wrapped, "$defs": definitions}


def _unwrapped(text: str) -> Any:
    value = TypeAdapter(dict[str, Any]).validate_json(text)
    if value.keys() != {_WRAPPED}:
        raise ValueError(f"it must have {_WRAPPED} and nothing else")
    return value[_WRAPPED]


def _strict(schema: Any) -> Any:
    """Closed as providers demand it before they hold a model to it: all named fields, no others.

    Fields with defaults are then always given. A type with free keys stays open.
    """
    if isinstance(schema, list):
        return [_strict(entry) for entry in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"} and isinstance(value, Mapping):
            closed[key] = {name: _strict(entry) for name, entry in value.items()}
        elif key != "default":
            closed[key] = _strict(value)
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, Mapping):
        closed["required"] = list(properties)
        closed.setdefault("additionalProperties", False)
    return closed
