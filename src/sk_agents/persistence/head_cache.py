"""The heads the writer has just written, so that the next commit need not read them again.

Valid as long as no other connection writes the file, which SQLite tells by `data_version`.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy

import apsw

from sk_agents.engine.models import Thread
from sk_agents.persistence.head import holds_only_text
from sk_agents.persistence.sqlite import rows

MAX_HEADS = 2_048


class HeadCache:
    """Used by the writer's thread alone."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, tuple[int, Thread]] = OrderedDict()
        self._data_version = -1

    def begin(self, db: apsw.Connection) -> None:
        """Call first in every transaction: forgets all if somebody else has written."""
        version = db.pragma("data_version")
        if version != self._data_version:
            self._data_version = version
            self._heads.clear()

    def get(self, db: apsw.Connection, thread_id: str) -> tuple[int, Thread] | None:
        return self._heads.get(thread_id) or rows.head(db, thread_id)

    def put(self, no: int, thread: Thread) -> None:
        if thread.metadata:
            # Callers hold the head that was returned to them; what they do to it stays theirs.
            metadata = dict(thread.metadata)
            own = metadata if holds_only_text(metadata) else deepcopy(metadata)
            thread = thread._replace(metadata=own)
        self._heads[thread.thread_id] = (no, thread)
        self._heads.move_to_end(thread.thread_id)
        if len(self._heads) > MAX_HEADS:
            self._heads.popitem(last=False)

    def drop(self, thread_id: str) -> None:
        self._heads.pop(thread_id, None)

    def clear(self) -> None:
        """Call when a transaction was rolled back."""
        self._heads.clear()
