"""The plugin catalog: what the operator decided about tools, for all agents.

It is one JSON file, or a class of the operator's own that is asked about each tool. A tool that the
catalog does not name, or about which it leaves `requires_hitl` out, is one it says nothing about:
that is never the same as `false`. What a class answers is believed only if it is a clear yes or no;
everything else it may do means ask.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.config.class_loader import load_class
from sk_agents.config.public_names import app_config
from sk_agents.config.settings import Settings, variable
from sk_agents.exceptions import (
    ClassUnusable,
    ConfigurationError,
    PluginCatalogDefinitionException,
    PluginFileReadException,
)
from sk_agents.private_files import changeable_by_others
from sk_agents.tools.operator_config import StrictModel, parsed_json, problems_of

MAX_BYTES = 4 * 1024 * 1024
CLASS_VARIABLES = "TA_PLUGIN_CATALOG_MODULE, TA_PLUGIN_CATALOG_CLASS"
# Our own class that reads the file, as the public project's settings name it.
OWN_MODULE, OWN_CLASS = "local_plugin_catalog", "FileBasedPluginCatalog"


class _Strict(StrictModel):
    model_config = ConfigDict(strict=True)


class CatalogGovernance(_Strict):
    requires_hitl: bool | None = None
    cost: Literal["low", "medium", "high"] | None = None
    data_sensitivity: Literal["public", "proprietary", "confidential", "sensitive"] | None = None


class CatalogTool(_Strict):
    tool_id: str
    name: str
    description: str = ""
    governance: CatalogGovernance
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


class PluginCatalog(ABC):
    """The base of an operator's own catalog. `None` says nothing about what was asked for."""

    @abstractmethod
    def get_plugin(self, plugin_id: str) -> Any: ...

    @abstractmethod
    def get_tool(self, tool_id: str) -> Any:
        """An object with `governance.requires_hitl`: a bool, or `None` where that is open."""


class ToolRules(Protocol):
    """What is asked of any catalog."""

    def requires_hitl(self, tool_id: str) -> bool | None: ...

    def refuse_strays(self, names: Iterable[str]) -> None: ...


class ClassCatalog:
    """A catalog class of the operator's own."""

    def __init__(self, catalog: PluginCatalog) -> None:
        self.catalog = catalog

    def requires_hitl(self, tool_id: str) -> bool | None:
        """`None` where the class says nothing. What it raises goes to the caller."""
        tool = self.catalog.get_tool(tool_id)
        if tool is None:
            return None
        if inspect.iscoroutine(tool):
            tool.close()
            return True
        needed = getattr(getattr(tool, "governance", None), "requires_hitl", "nothing")
        return needed if needed is None or isinstance(needed, bool) else True

    def refuse_strays(self, names: Iterable[str]) -> None:
        """Nothing to refuse: what a class knows cannot be listed."""


class FileCatalog:
    """Tools by their id, `<plugin>-<function>`."""

    def __init__(self, path: Path, plugins: Iterable[CatalogPlugin]) -> None:
        self._path = path
        self.plugins = tuple(plugins)
        self._tools = {tool.tool_id: tool for plugin in self.plugins for tool in plugin.tools}

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


def configured_catalog(settings: Settings) -> ToolRules | None:
    """The catalog that the settings name: a class, else a file, else none.

    Raises:
        ConfigurationError: it cannot be used.
    """
    module, name = settings.plugin_catalog_module, settings.plugin_catalog_class
    file = settings.plugin_catalog_file
    if module is None or name is None:
        return load_catalog(file) if file is not None else None
    if name == OWN_CLASS and module.removesuffix(".py").endswith(OWN_MODULE):
        if file is None:
            raise ConfigurationError(f"{OWN_CLASS} needs {variable('plugin_catalog_file')}")
        return load_catalog(file)
    found = load_class(module, name, PluginCatalog, source=CLASS_VARIABLES)  # type: ignore[type-abstract]  # the class found is a concrete one
    try:
        return ClassCatalog(_built(found, settings))
    except (Exception, SystemExit) as error:
        raise ClassUnusable(
            f"{CLASS_VARIABLES}: building '{name}' fails with {type(error).__name__}: {error}"
        ) from error


def _built(found: type[PluginCatalog], settings: Settings) -> PluginCatalog:
    """Classes of the public project take their configuration and ask it by `get(variable)`."""
    known = app_config(settings)
    parameters = inspect.signature(found).parameters
    build: Any = found
    if "app_config" in parameters:
        catalog = build(app_config=known)
    elif any(entry.default is entry.empty for entry in parameters.values()):
        catalog = build(known)
    else:
        catalog = build()
    assert isinstance(catalog, PluginCatalog)
    return catalog


def load_catalog(path: Path) -> FileCatalog:
    """Read the file that `TA_PLUGIN_CATALOG_FILE` names.

    Raises:
        PluginFileReadException: missing or unreadable.
        PluginCatalogDefinitionException: not JSON, a field that does not fit, or a file that every
            user of the machine can change.
    """
    try:
        document = _Document.model_validate_json(json.dumps(_read(path)))
    except ValidationError as error:
        reasons = (
            _placed(path, f"{place.removeprefix('.') or 'document'}: {reason}")
            for place, reason in problems_of(error)
        )
        raise PluginCatalogDefinitionException("; ".join(reasons)) from None
    ids: set[str] = set()
    for number, plugin in enumerate(document.plugins):
        for position, tool in enumerate(plugin.tools):
            if tool.tool_id in ids:
                place = f"plugins[{number}].tools[{position}].tool_id"
                raise _fault(path, f"{place}: '{tool.tool_id}' appears twice")
            ids.add(tool.tool_id)
    return FileCatalog(path, document.plugins)


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            part = changeable_by_others(path.resolve())
        if part is not None:
            # It says which tools run unasked.
            raise ValueError(f"every user of this machine can change '{part}'")
        if len(data) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        return parsed_json(data)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise PluginFileReadException(_placed(path, reason)) from None
    except ValueError as error:
        raise _fault(path, str(error)) from None


def _fault(path: Path, reason: str) -> PluginCatalogDefinitionException:
    return PluginCatalogDefinitionException(_placed(path, reason))


def _placed(path: Path, reason: str) -> str:
    return f"TA_PLUGIN_CATALOG_FILE: {path}: {reason}"
