"""What a sweep over all threads needs to know of each, read again only when its log changed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from sk_agents.engine.models import Entry, EntryKind, Thread
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, StoreBusy, ThreadNotFound
from sk_agents.persistence.file.index import FileIndex
from sk_agents.persistence.file.log import LOG, FileLog, Stamp, stamp_of
from sk_agents.persistence.file.logs import FileLogs
from sk_agents.persistence.file.tree import FileTree

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """`waiting` are the open entries other than runs, which never close and are many."""

    stamp: Stamp
    head: Thread | None = None
    waiting: tuple[Entry, ...] = ()


class FileSummaries:
    def __init__(self, tree: FileTree, index: FileIndex, logs: FileLogs) -> None:
        self._tree = tree
        self._index = index
        self._logs = logs
        self._known: dict[str, Summary] = {}

    def heads(self, user_id: str | None = None, *, runnable: bool = False) -> Iterator[Thread]:
        """All heads, or those of one user, or those with work to do."""
        for head, _ in self._all():
            if user_id in (None, head.user_id) and head.runnable >= runnable:
                yield head._replace(metadata=copy.deepcopy(head.metadata))

    def open_entries(self, kind: EntryKind, user_id: str | None = None) -> Iterator[Entry]:
        """Those that are found by their key, too."""
        for head, waiting in self._all():
            if user_id in (None, head.user_id):
                entries = self._runs(head.thread_id) if kind == "run" else waiting
                yield from (entry for entry in entries if entry.kind == kind and self._leads(entry))

    def _leads(self, entry: Entry) -> bool:
        return self._index.thread_of(entry.kind, entry.key) == entry.thread_id

    def _runs(self, thread_id: str) -> list[Entry]:
        log = self._log(thread_id)
        entries = [] if log is None else list(log.entries.values())
        return [entry for entry in entries if entry.kind == "run" and entry.open]

    def _all(self) -> Iterator[tuple[Thread, tuple[Entry, ...]]]:
        """Of every thread that can be read; the others give their error when they are asked for."""
        threads = dict(self._index.threads())
        for gone in self._known.keys() - threads.keys():
            self._known.pop(gone, None)
        for thread_id, folder in threads.items():
            found = self._tree.stat((*folder, LOG))
            if found is None:
                self._index.forget(thread_id)
                continue
            summary = self._known.get(thread_id)
            if summary is None or summary.stamp != stamp_of(found):
                summary = self._summary(thread_id, stamp_of(found))
                self._known[thread_id] = summary
            if summary.head is not None:
                yield summary.head, summary.waiting

    def _summary(self, thread_id: str, stamp: Stamp) -> Summary:
        log = self._log(thread_id)
        if log is None:
            return Summary(stamp)
        entries = list(log.entries.values())
        waiting = tuple(entry for entry in entries if entry.open and entry.kind != "run")
        return Summary(stamp, log.head, waiting)

    def _log(self, thread_id: str) -> FileLog | None:
        try:
            return self._logs.get(thread_id)
        except ThreadNotFound:
            return None
        except (StateCorrupt, SchemaTooNew, StoreBusy) as error:
            logger.warning(
                "a thread was left out of a listing",
                extra={"thread_id": thread_id, "reason": str(error)},
            )
            return None
