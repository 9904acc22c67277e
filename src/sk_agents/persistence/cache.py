"""A cache of what was used last, bounded in bytes. For any number of threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class ByteBoundedCache(Generic[T]):
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._items: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: str, item: T, size: int) -> None:
        """Keep it and drop what was not used for longest; the newest one always stays."""
        with self._lock:
            self._drop(key)
            self._items[key] = item, size
            self.bytes += size
            while self.bytes > self._max_bytes and len(self._items) > 1:
                self._drop(next(iter(self._items)))

    def drop(self, key: str) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: str) -> None:
        found = self._items.pop(key, None)
        if found is not None:
            self.bytes -= found[1]
