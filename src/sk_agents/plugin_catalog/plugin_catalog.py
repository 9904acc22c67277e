"""Where catalog classes of the public Teal Agents project look for their base."""

from __future__ import annotations

from sk_agents.tools.catalog import PluginCatalog as PluginCatalog
