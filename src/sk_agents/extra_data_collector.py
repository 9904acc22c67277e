"""Plugins of the public Teal Agents project import these classes from here."""

from __future__ import annotations

from sk_agents.ska_types import (
    ExtraData,
    ExtraDataCollector,
    ExtraDataElement,
    ExtraDataPartial,
)

__all__ = ["ExtraData", "ExtraDataCollector", "ExtraDataElement", "ExtraDataPartial"]
