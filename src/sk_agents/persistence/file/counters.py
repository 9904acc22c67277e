"""Counters that all processes of a host share: one journal, one lock. Never synced.

A line of the journal holds the counters that one step has changed, as they are after it. A process
reads only the lines it has not read yet. Once most lines are out of date, a process writes the
journal again as one line and puts it in the old one's place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import orjson

from sk_agents.engine.ports import Clock, Count
from sk_agents.persistence.counters import Counter, Counters
from sk_agents.persistence.file.tree import FileTree, Place

COUNTERS: Place = ("counters",)
JOURNAL: Place = (*COUNTERS, "journal.jsonl")
LOCK: Place = (*COUNTERS, "lock")
# The journal is written again when it has so many lines more than there are counters.
SPARE_LINES = 1_000


class FileCounters:
    def __init__(self, tree: FileTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        # Two threads of one process must not read the same lines into `_counters`.
        self._reading = threading.Lock()
        self._counters = Counters()
        self._file = (0, 0)
        self._end = self._lines = 0

    def count(self, additions: Sequence[Count]) -> Sequence[int]:
        with self._current() as (fd, now):
            sums, changed = self._counters.count(additions, now)
            if changed:
                self._append(fd, changed.items())
            return sums

    def sums(self, prefix: str) -> Mapping[str, int]:
        with self._current() as (_, now):
            return self._counters.sums(prefix, now)

    @contextmanager
    def _current(self) -> Iterator[tuple[int, float]]:
        """The journal, locked and read to its end; the time."""
        flags = os.O_RDWR | os.O_CREAT
        with self._reading, self._tree.locked(LOCK):
            now = self._clock.now().timestamp()
            with self._tree.opened(JOURNAL, flags) as fd:
                try:
                    self._read(fd, now)
                    yield fd, now
                except OSError:
                    # What is in memory may be ahead of the journal: read it again.
                    self._forget_all()
                    raise
            if self._lines > len(self._counters) + SPARE_LINES:
                self._write_again(now)

    def _read(self, fd: int, now: float) -> None:
        """Take over the lines that are new; all of them if this is another file."""
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._end:
            self._forget_all()
            self._file = (found.st_dev, found.st_ino)
        unread = os.pread(fd, found.st_size - self._end, self._end)
        whole = unread[: unread.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._counters.update(_counters_of(line), now)
            self._lines += 1
        self._end += len(whole)
        if len(whole) < len(unread):  # a writer was killed in the middle
            self._tree.cut(fd, self._end)

    def _append(self, fd: int, changed: Iterable[tuple[str, Counter]]) -> None:
        line = _line_of(changed)
        self._tree.write_at(fd, line, self._end)
        self._end += len(line)
        self._lines += 1

    def _write_again(self, now: float) -> None:
        self._tree.write(JOURNAL, _line_of(self._counters.items(now)), durable=False)
        self._forget_all()

    def _forget_all(self) -> None:
        self._counters = Counters()
        self._file = (0, 0)
        self._end = self._lines = 0


def _line_of(counters: Iterable[tuple[str, Counter]]) -> bytes:
    return orjson.dumps([[key, found.sum, found.forget_at] for key, found in counters]) + b"\n"


def _counters_of(line: bytes) -> list[tuple[str, Counter]]:
    """What is damaged says nothing: the journal is never synced."""
    with suppress(ValueError, TypeError):
        return [
            (str(key), Counter(int(total), float(forget_at)))
            for key, total, forget_at in orjson.loads(line)
        ]
    return []
