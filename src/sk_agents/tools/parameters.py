"""From a function's signature to a JSON schema, and the check of arguments against it.

The object that `Parameters.check` returns is the one that is shown, hashed and run. So it must mean
the same when it is read again: what does not come back as itself is refused.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ConfigurationError, InvalidInput, ToolError

logger = logging.getLogger(__name__)

# No more of them are looked for than are shown: each hint takes its time.
MOST_PROBLEMS = 10
MOST_TEXT = 200
_REQUIRED: Any = object()
# Types whose values are their own JSON: the adapter would return what it is given, in 10 us.
_PLAIN = (str, int, bool)
_as_json = json.JSONEncoder(allow_nan=False).encode
# As JSON writes one, and no longer than an honest one is.
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")


class _SchemaWriter(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title that only repeats its field's name costs tokens in every prompt."""
        return False

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """`typing` takes one order of a `Literal` for another, so the choices are sorted.

        Otherwise a definition's digest would depend on what else was imported before.
        """
        written = super().literal_schema(schema)
        if "enum" in written:
            written["enum"] = sorted(written["enum"], key=canonical_json)
        return written


@dataclass(frozen=True, slots=True)
class _Parameter:
    adapter: TypeAdapter[Any]
    description: str | None = None
    default: Any = _REQUIRED
    """As JSON."""
    plain: type | None = None
    """What it is annotated with, if that is one of `_PLAIN`."""

    def value(self, given: Any) -> Any:
        """What the function gets. Strict, so that nothing is guessed, and by JSON's rules; only a
        number that was written as a text is taken for what it says, where no text fits."""
        if type(given) is self.plain:
            return given
        try:
            return self._strict(_as_json(given))
        except ValidationError:
            if not isinstance(given, str) or not NUMBER.fullmatch(given):
                raise
            try:
                return self._strict(given)
            except ValidationError:
                pass
            raise

    def _strict(self, text: str) -> Any:
        return self.adapter.validate_json(text, strict=True, by_alias=True, by_name=True)

    def shown(self, value: Any) -> Any:
        """The value as JSON that `value` takes back."""
        if type(value) is self.plain:
            return value
        return self.adapter.dump_python(
            value, mode="json", by_alias=False, round_trip=True, warnings="error"
        )


@dataclass(frozen=True)
class Parameters:
    """The parameters of one function. `context` names the one that gets the `ToolContext`."""

    _known: Mapping[str, _Parameter]
    context: str | None = None
    schema: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", _schema(self._known))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, validated, with defaults filled in.

        Raises:
            ToolError: unknown, missing or wrong arguments. The text tells the model what to fix.
        """
        shown, spelt = self._shown(self.values(arguments))
        # What was given and is shown as given needs no second look: it would find the same.
        if spelt != _spelt(arguments) and self._shown(self.values(shown))[1] != spelt:
            raise ToolError("These arguments cannot be shown exactly as they would run.")
        return shown

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The function's own arguments by name.

        Raises:
            ToolError: as for `check`.
        """
        problems: list[str] = []
        if not arguments.keys() <= self._known.keys():
            problems.extend(unknown_arguments(arguments, self._known))
        values = {}
        for name, parameter in self._known.items():
            given = arguments.get(name, parameter.default)
            if given is _REQUIRED:
                problems.append(f"{name}: is missing")
                continue
            try:
                values[name] = parameter.value(given)
            except ValidationError as error:
                problems.extend(_reasons(name, error))
            except (TypeError, ValueError, RecursionError):
                problems.append(f"{name}: is not a JSON value")
            except Exception as error:
                # A validator of the plugin's own failed.
                logger.warning("checking an argument failed with %s", type(error).__name__)
                problems.append(f"{name}: cannot be checked")
        if problems:
            known = {name: entry.default is _REQUIRED for name, entry in self._known.items()}
            raise ToolError(advice(problems, known))
        return values

    def _shown(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The values as JSON, and that in its one spelling."""
        try:
            shown = {name: self._known[name].shown(value) for name, value in values.items()}
            return shown, canonical_json(shown)
        except InvalidInput as error:
            raise ToolError(f"The arguments cannot be written as JSON: {error}.") from None
        except Exception as error:
            # A serializer of the plugin's own failed.
            logger.warning("writing arguments failed with %s", type(error).__name__)
            raise ToolError("The arguments cannot be written as JSON.") from error


def _spelt(arguments: Mapping[str, Any]) -> bytes | None:
    try:
        return canonical_json(arguments)
    except InvalidInput:
        return None


def parameters_of(function: Callable[..., Any], *, bound: bool, origin: str) -> Parameters:
    """The parameters of a plugin's method; `bound` says that its first one is filled already.

    Raises:
        ConfigurationError: a parameter that no model could fill, or a type without JSON schema.
    """
    try:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
    except Exception as error:
        # Annotations are the plugin's own code.
        raise ConfigurationError(
            f"{origin}: its annotations fail with {type(error).__name__}: {error}"
        ) from error
    known: dict[str, _Parameter] = {}
    context = None
    for name, parameter in [*signature.parameters.items()][not bound :]:
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise ConfigurationError(f"{origin}: parameter '{name}' cannot be given by name")
        annotation = hints.get(name, Any)
        if annotation is ToolContext:
            context = name
        else:
            known[name] = _parameter(annotation, parameter.default, f"{origin}: parameter '{name}'")
    try:
        parameters = Parameters(known, context)
    except PydanticUserError as error:
        raise ConfigurationError(f"{origin}: no JSON schema: {error.message}") from None
    if _has_sets(parameters.schema):
        raise ConfigurationError(f"{origin}: a set has no order to show; use a list")
    return parameters


def _parameter(annotation: Any, default: Any, origin: str) -> _Parameter:
    description = _description(annotation)
    if default is None:
        # `text: str = None` is how many people write an optional parameter.
        annotation = annotation | None
    try:
        adapter = TypeAdapter(annotation)
    except PydanticUserError as error:
        raise ConfigurationError(f"{origin} has no JSON schema: {error.message}") from None
    plain = next((kind for kind in _PLAIN if annotation is kind), None)
    parameter = _Parameter(adapter, description, plain=plain)
    if default is inspect.Parameter.empty:
        return parameter
    try:
        shown = parameter.shown(default)
        canonical_json(parameter.shown(parameter.value(shown)))
    except Exception as error:
        # The type's own validators and serializers run here.
        raise ConfigurationError(f"{origin} has a default that does not fit its type") from error
    return _Parameter(adapter, description, shown, plain)


def _description(annotation: Any) -> str | None:
    """`Annotated[str, "what it is"]`, as semantic-kernel reads it."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((entry for entry in get_args(annotation) if isinstance(entry, str)), None)


def _schema(known: Mapping[str, _Parameter]) -> dict[str, Any]:
    mode: Literal["validation"] = "validation"
    schemas, shared = TypeAdapter.json_schemas(
        [(name, mode, parameter.adapter) for name, parameter in known.items()],
        schema_generator=_SchemaWriter,
    )
    properties = {
        name: _property(schemas[name, mode], parameter) for name, parameter in known.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, entry in known.items() if entry.default is _REQUIRED],
        "additionalProperties": False,
        **({"$defs": shared["$defs"]} if "$defs" in shared else {}),
    }


def _property(schema: JsonSchemaValue, parameter: _Parameter) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if parameter.description is not None:
        added["description"] = parameter.description
    if parameter.default is not _REQUIRED:
        added["default"] = parameter.default
    return {**schema, **added}


def _has_sets(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return schema.get("uniqueItems") is True or any(map(_has_sets, schema.values()))
    return isinstance(schema, list) and any(map(_has_sets, schema))


def unknown_arguments(arguments: Iterable[str], known: Iterable[str]) -> Iterable[str]:
    """What is wrong with arguments that are not known, with a hint at a similar name."""
    for name in islice((name for name in arguments if name not in known), MOST_PROBLEMS + 1):
        near = get_close_matches(name[:64], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield f"{ascii(name[:64])}: is unknown{hint}"


def advice(problems: Sequence[str], known: Mapping[str, bool]) -> str:
    """What the model reads; `known` are the arguments there are, with whether each is required."""
    listed = [f"- {problem[:MOST_TEXT]}" for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        listed.append("- and more")
    names = [f"{name} (required)" if required else name for name, required in known.items()]
    expected = f"Arguments: {', '.join(names) or 'none'}."
    return "\n".join(["The arguments are not valid, nothing was run:", *listed, expected])


def _reasons(name: str, error: ValidationError) -> Iterable[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        )
        yield f"{name}{place}: {problem['msg']}"
