"""Builds the class that `TA_PERSISTENCE_MODULE` and `TA_PERSISTENCE_CLASS` name."""

from __future__ import annotations

from sk_agents.config.class_loader import ConfiguredFactory, build_configured
from sk_agents.config.settings import Settings
from sk_agents.persistence.in_memory_persistence_manager import InMemoryPersistenceManager
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager

SOURCE = "TA_PERSISTENCE_MODULE, TA_PERSISTENCE_CLASS"


class PersistenceFactory(ConfiguredFactory[TaskPersistenceManager]):
    """With nothing configured, the in-memory manager.

    A server that is asked for no class of its own never comes here and keeps its tasks in SQLite.
    """

    def get_persistence_manager(self) -> TaskPersistenceManager:
        """Raises LoadError: the configured class cannot be loaded or built."""
        return self.get()

    def _build(self, settings: Settings) -> TaskPersistenceManager:
        module, name = settings.persistence_module, settings.persistence_class
        if module is None or name is None:
            return InMemoryPersistenceManager()
        base = TaskPersistenceManager
        return build_configured(module, name, base, settings, source=SOURCE)  # type: ignore[type-abstract]  # a base to check against
