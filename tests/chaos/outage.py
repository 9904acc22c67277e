"""A store that cannot be reached while a file exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sk_agents.engine.ports import Store
from sk_agents.exceptions import StoreUnavailable


class Outage:
    def __init__(self, store: Store, switch: Path) -> None:
        self._store = store
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        if self._switch.exists():
            raise StoreUnavailable
        return getattr(self._store, name)
