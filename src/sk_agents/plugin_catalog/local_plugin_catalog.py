"""The JSON catalog as a class, to derive from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sk_agents.plugin_catalog.models import Plugin, PluginTool
from sk_agents.tools.catalog import PluginCatalog, load_catalog


class FileBasedPluginCatalog(PluginCatalog):
    """Reads the file that `TA_PLUGIN_CATALOG_FILE` names.

    Raises:
        PluginFileReadException: it cannot be read.
        PluginCatalogDefinitionException: it is not a catalog.
    """

    def __init__(self, app_config: Mapping[str, str | None]) -> None:
        self.app_config = app_config
        self.catalog_path = Path(app_config.get("TA_PLUGIN_CATALOG_FILE") or "")
        plugins = load_catalog(self.catalog_path).plugins
        self._plugins = {
            entry.plugin_id: Plugin.model_validate(entry.model_dump()) for entry in plugins
        }
        self._tools = {
            tool.tool_id: tool for plugin in self._plugins.values() for tool in plugin.tools
        }

    def get_plugin(self, plugin_id: str) -> Plugin | None:
        return self._plugins.get(plugin_id)

    def get_tool(self, tool_id: str) -> PluginTool | None:
        return self._tools.get(tool_id)
