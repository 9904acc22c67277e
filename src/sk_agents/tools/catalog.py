"""The plugin catalog: what the operator decided about tools, in one JSON file for all agents.

A tool that the catalog does not name, or about which it leaves `requires_hitl` out, is one it says
nothing about: that is never the same as `false`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.exceptions import ConfigurationError

MAX_BYTES = 4 * 1024 * 1024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Governance(_Strict):
    requires_hitl: bool | None = None
    cost: Literal["low", "medium", "high"] | None = None
    data_sensitivity: Literal["public", "proprietary", "confidential", "sensitive"] | None = None


class CatalogTool(_Strict):
    tool_id: str
    name: str
    description: str = ""
    governance: Governance
    auth: dict[str, Any] | None = None


class PluginType(BaseModel):
    type_name: Literal["code", "mcp"]


class CatalogPlugin(_Strict):
    plugin_id: str
    name: str
    description: str = ""
    version: str = ""
    owner: str = ""
    plugin_type: PluginType
    tools: tuple[CatalogTool, ...]


class _Document(_Strict):
    plugins: tuple[CatalogPlugin, ...]


class Catalog:
    """Tools by their id, `<plugin>-<function>`."""

    def __init__(self, path: Path, plugins: Iterable[CatalogPlugin]) -> None:
        self._path = path
        self.plugins = tuple(plugins)
        self._tools = {tool.tool_id: tool for plugin in self.plugins for tool in plugin.tools}

    def tool(self, tool_id: str) -> CatalogTool | None:
        return self._tools.get(tool_id)

    def requires_hitl(self, tool_id: str) -> bool | None:
        """`None` where the catalog says nothing."""
        tool = self._tools.get(tool_id)
        return tool.governance.requires_hitl if tool is not None else None

    def refuse_strays(self, names: Iterable[str]) -> None:
        """Check entries for the plugins that are in use: a misspelt function gates nothing.

        Raises:
            ConfigurationError: an entry names a function that its plugin does not have.
        """
        known = set(names)
        plugins = {name.partition("-")[0] for name in known}
        for tool_id in self._tools:
            if tool_id.partition("-")[0] in plugins and tool_id not in known:
                raise ConfigurationError(
                    f"{self._path}: tool_id '{tool_id}' names no function of its plugin"
                )


def load_catalog(path: Path) -> Catalog:
    """Read the file that `TA_PLUGIN_CATALOG_FILE` names.

    Raises:
        ConfigurationError: missing, unreadable, not JSON, or a field that does not fit.
    """
    try:
        document = _Document.model_validate_json(json.dumps(_read(path)))
    except ValidationError as error:
        raise ConfigurationError("; ".join(_reasons(path, error))) from None
    ids: set[str] = set()
    for number, plugin in enumerate(document.plugins):
        for position, tool in enumerate(plugin.tools):
            if tool.tool_id in ids:
                place = f"plugins[{number}].tools[{position}].tool_id"
                raise _fault(path, f"{place}: '{tool.tool_id}' appears twice")
            ids.add(tool.tool_id)
    return Catalog(path, document.plugins)


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _fault(path, f"larger than {MAX_BYTES} bytes")
        return json.loads(data, object_pairs_hook=_object, parse_constant=_constant)
    except OSError as error:
        raise _fault(path, error.strerror or "cannot be read") from None
    except json.JSONDecodeError as error:
        raise _fault(path, f"line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise _fault(path, f"not usable JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"key '{name}' appears twice in one object")
        result[name] = value
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _reasons(path: Path, error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        )
        yield str(_fault(path, f"{place.removeprefix('.') or 'document'}: {problem['msg']}"))


def _fault(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"TA_PLUGIN_CATALOG_FILE: {path}: {reason}")
