"""What the operator's files about tools have in common: strict models and JSON, headers, references
to the environment (`${VARIABLE}`), and the place of a value that does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.exceptions import ConfigurationError

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


def problems_of(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Each place, such as `.tools[0].name`, with what is wrong there."""
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        yield "".join(parts), problem["msg"].removeprefix("Value error, ")


def parsed_json(data: bytes) -> Any:
    """Raises ValueError: not JSON, or a key twice in one object; the text is for the operator."""
    try:
        return json.loads(data, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not usable JSON: {error}") from None


def filled_value(text: str, place: str, environ: Mapping[str, str]) -> str:
    """The text with its references replaced. Raises ConfigurationError: one is not set."""
    for variable in _REFERENCE.findall(text):
        if not environ.get(variable):
            raise ConfigurationError(f"{place}: the environment variable {variable} is not set")
    return _REFERENCE.sub(lambda match: environ[match[1]].strip(), text)


def filled_headers(
    headers: Mapping[str, str], place: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """As `filled_value`, for headers. Raises ConfigurationError also for what no header can be."""
    filled = {}
    for name, value in headers.items():
        filled[name] = filled_value(value, f"{place}headers.{name}", environ)
        if not _HEADER_VALUE.fullmatch(filled[name]):
            raise ConfigurationError(f"{place}headers.{name}: its value is no header text")
    return filled


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"key '{name}' appears twice in one object")
        result[name] = value
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
