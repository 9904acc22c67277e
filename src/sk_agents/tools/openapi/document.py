"""An OpenAPI document, read and found its way around in.

Only what stands in the document itself is ever looked at: a reference that leads out of it is an
error, never a fetch.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError

MAX_BYTES = 16 * 1024 * 1024
MOST_HOPS = 32
_VERSION = re.compile(r"3\.[01](\.\d+)?")


@dataclass(frozen=True, slots=True)
class Document:
    """`source` is the file or URL it came from, for messages; `url` only in the second case."""

    content: Mapping[str, Any]
    source: str
    url: str | None = None

    def target(self, reference: object) -> Any:
        """What a `$ref` of this document leads to.

        Raises:
            ConfigurationError: it leads out of the document, or nowhere.
        """
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise self.fault(f"$ref {ascii(str(reference)[:200])} leads out of the document")
        found: Any = self.content
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            raise self.fault(f"$ref '{reference[:200]}' is not a path")
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise self.fault(f"$ref '{reference[:200]}' leads nowhere")
        return found

    def followed(self, value: Any) -> Any:
        """The value itself, or what it refers to, however many references lie between.

        Raises:
            ConfigurationError: as `target`, or they go round in a circle.
        """
        for _ in range(MOST_HOPS):
            if not isinstance(value, Mapping) or "$ref" not in value:
                return value
            value = self.target(value["$ref"])
        raise self.fault("$ref goes round in a circle")

    def mapping(self, value: Any, place: str) -> Mapping[str, Any]:
        """Followed, and a mapping; nothing at all is an empty one.

        Raises:
            ConfigurationError: it is something else.
        """
        found = self.followed(value)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise self.fault(f"{place} must be a mapping")
        return found

    def fault(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self.source}: {reason}")


def read_document(path: Path) -> Document:
    """The document in a JSON or YAML file.

    Raises:
        ConfigurationError: it cannot be read, or is no OpenAPI 3.0 or 3.1 document.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or 'cannot be read'}") from None
    return parsed_document(data, str(path), path=path)


def parsed_document(
    data: bytes, source: str, *, url: str | None = None, path: Path | None = None
) -> Document:
    """The document in these bytes; `path` is where they lie on disk, if they do.

    Raises:
        ConfigurationError: as `read_document`.
    """
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"{source}: larger than {MAX_BYTES} bytes")
    if data.lstrip()[:1] == b"{":
        content = _json(data, source)
    elif data.lstrip()[:1] == b"<":
        raise ConfigurationError(f"{source}: is a web page, not an OpenAPI document")
    else:
        content = read_yaml(path, strict=False) if path is not None else _yaml(data, source)
    if not isinstance(content, Mapping):
        raise ConfigurationError(f"{source}: is not an OpenAPI document")
    document = Document(content, source, url)
    version = str(content.get("openapi", content.get("swagger", "")))
    if not _VERSION.fullmatch(version):
        found = f"'{version[:20]}'" if version else "nothing"
        raise document.fault(f"openapi must be 3.0 or 3.1, and is {found}")
    return document


def _json(data: bytes, source: str) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{source}: line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{source}: not usable JSON: {error}") from None


def _yaml(data: bytes, source: str) -> Any:
    # Our strict reader knows files only.
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            return read_yaml(Path(file.name), strict=False)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace(file.name, source)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
