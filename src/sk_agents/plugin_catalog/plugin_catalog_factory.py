"""Where code of the public Teal Agents project's users asks for the plugin catalog."""

from __future__ import annotations

from sk_agents.config.class_loader import ConfiguredFactory
from sk_agents.config.public_names import app_config
from sk_agents.config.settings import Settings, variable
from sk_agents.exceptions import ConfigurationError
from sk_agents.plugin_catalog.local_plugin_catalog import FileBasedPluginCatalog
from sk_agents.tools.catalog import ClassCatalog, PluginCatalog, configured_catalog


class PluginCatalogFactory(ConfiguredFactory[PluginCatalog]):
    """The catalog that the settings name. The server itself asks `configured_catalog`."""

    def get_catalog(self) -> PluginCatalog:
        """Raises ConfigurationError: none is named, or it cannot be used."""
        return self.get()

    def _build(self, settings: Settings) -> PluginCatalog:
        found = configured_catalog(settings)
        if found is None:
            raise ConfigurationError(f"{variable('plugin_catalog_file')} names no catalog")
        if isinstance(found, ClassCatalog):
            return found.catalog
        return FileBasedPluginCatalog(app_config(settings))
