"""One thread's log file: the truth about it.

A `FileLog` is a cache: what was read once is known by the file's stamp to be still so, and only
what was appended since is read again. It keeps places, not events. Bytes are shown to readers only
once they are on the disk: a reader of what another process wrote waits for that process's lock.
While a line is written and not yet synced, the file has the mode `IN_DOUBT`. If its writer ends so,
by a kill or a refused sync, the operating system may show a line that the disk does not have, and a
sync would not write it again. The next reader writes it once more and syncs that.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import orjson

from sk_agents.engine.events import Event
from sk_agents.engine.models import Entry, EntryKind, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import StateCorrupt, StoreBusy, ThreadNotFound
from sk_agents.persistence.encoding import Record, encode_head, head_from
from sk_agents.persistence.file.disk import FILE_MODE
from sk_agents.persistence.file.key_file import KEY, LineCipher, ThreadKey
from sk_agents.persistence.file.lines import (
    LogLine,
    decode_line,
    encode_line,
    is_torn,
    read_sealed,
    record_of,
    seal,
)
from sk_agents.persistence.file.tree import LOCK_SECONDS, FileTree, Place, gone, locked

if TYPE_CHECKING:
    from sk_agents.persistence.encryption import EncryptingCodec

LOG = "log.jsonl"
IN_DOUBT = FILE_MODE | stat.S_IXUSR

Stamp = tuple[int, int, int]
LogIdentity = tuple[str, str | None]


@dataclass(slots=True)
class KnownLines:
    """What was read and verified, up to `size`. Replaced as a whole, else it only grows.

    `stamp` changes whenever the file does.
    """

    stamp: Stamp | None = None
    size: int = 0
    next_seq: int = 1
    incarnation: str = ""
    head: bytes = b""
    first_seqs: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    cipher: LineCipher | None = None
    commits: dict[str, int] = field(default_factory=dict)
    entries: dict[tuple[EntryKind, str], Entry] = field(default_factory=dict)

    def note(
        self, commit_id: str | None, next_seq: int, entries: Sequence[Entry], head: bytes
    ) -> None:
        """One more line, which starts at `size`."""
        if not self.offsets:
            self.incarnation = orjson.loads(head).get("incarnation", "")
        if commit_id is not None and next_seq > self.next_seq:
            self.commits[commit_id] = len(self.offsets)
        self.offsets.append(self.size)
        self.first_seqs.append(self.next_seq)
        self.next_seq = next_seq
        self.head = head
        for entry in entries:
            self.entries[entry.kind, entry.key] = entry

    def is_behind(self, before: KnownLines) -> bool:
        """Whether this is the log that was known before, and shorter."""
        return self.identity == before.identity and self.next_seq < before.next_seq

    @property
    def identity(self) -> LogIdentity:
        """What a log of a thread that was made again does not share with the deleted one's, whose
        file's number it may have."""
        return self.incarnation, next(iter(self.commits), None)

    def lines_after(self, seq: int, limit: int, max_bytes: int | None) -> range:
        """The numbers of the lines that hold these events, perhaps with one line too many."""
        first = bisect_left(self.first_seqs, seq + 1)
        if first == len(self.first_seqs) or self.first_seqs[first] > seq + 1:
            first = max(first - 1, 0)
        end = bisect_left(self.first_seqs, seq + limit + 1)
        if max_bytes is not None and first < end:
            # The line with the first event is one of them, however long it and the one before are.
            least = bisect_right(self.first_seqs, seq + 1)
            end = min(end, max(least, bisect_left(self.offsets, self.offsets[first] + max_bytes)))
        return range(first, end)


def line_place(thread_id: str, first_seq: int, offset: int, incarnation: str = "") -> str:
    """What a line's checksums cover beside its bytes; the first line holds the incarnation."""
    place = f"{thread_id}\n{first_seq}\n{offset}"
    return f"{place}\n{incarnation}" if incarnation and offset else place


class FileLog:
    def __init__(
        self, tree: FileTree, thread_id: str, folder: Place, codec: EncryptingCodec | None = None
    ) -> None:
        """Without a codec it is in plain text."""
        self.thread_id = thread_id
        self._codec = codec
        self.folder = folder
        self._tree = tree
        self._lock = threading.Lock()
        self.known = KnownLines()

    @property
    def memory(self) -> int:
        """About how many bytes this takes."""
        return 1000 + 200 * len(self.known.commits) + 600 * len(self.known.entries)

    @property
    def head(self) -> Thread:
        """A copy of its own for each caller. Raises StateCorrupt if damage was found since."""
        if not self.known.head:
            raise StateCorrupt(thread_id=self.thread_id)
        return head_from(self.thread_id, orjson.loads(self.known.head))

    def current_stamp(self) -> Stamp:
        """Raises ThreadNotFound."""
        found = self._tree.stat((*self.folder, LOG))
        if found is None:
            raise ThreadNotFound(thread_id=self.thread_id)
        return stamp_of(found)

    def is_current(self) -> bool:
        """Whether the file is as it was read. Raises ThreadNotFound."""
        return self.current_stamp() == self.known.stamp

    def refresh(self) -> None:
        """Know all that is durable now. Raises ThreadNotFound: there is no such log any more;
        StateCorrupt: something in it is damaged."""
        if self.is_current():
            return
        with self._held(), self._opened(os.O_RDWR) as fd, locked(fd, fcntl.LOCK_SH):
            self._take_in(fd)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the log alone, all that was appended being known. Yields what `append` needs. Raises
        ThreadNotFound, StateCorrupt: see `refresh`."""
        with self._held(), self._opened(os.O_RDWR) as fd, locked(fd, fcntl.LOCK_EX):
            found = os.fstat(fd)
            stamp = stamp_of(found)
            if self.current_stamp() != stamp:
                raise ThreadNotFound(thread_id=self.thread_id)
            if stamp != self.known.stamp or _is_in_doubt(found):
                self._take_in(fd)
            yield fd

    def append(
        self, fd: int, commit_id: str | None, head: Thread, entries: Sequence[Entry], body: bytes
    ) -> None:
        """Write one line; durable when this returns.

        Raises:
            OSError: nothing was written.
            CommitOutcomeUnknown: it may or may not be on the disk.
            StoreBroken: the file was taken away.
        """
        known = self.known
        payload = encode_line(commit_id, known.next_seq, head, entries, body)
        place = line_place(self.thread_id, known.next_seq, known.size, known.incarnation)
        if known.cipher is not None:
            payload = known.cipher.seal(place, payload)
        line = seal(place, payload)
        if os.fstat(fd).st_size > known.size:
            # The tail of a writer that was killed: it was never acknowledged. Its sectors must be
            # gone before others are written in their place.
            self._tree.cut(fd, known.size)
            self._tree.make_durable(fd)
        os.fchmod(fd, IN_DOUBT)
        try:
            self._tree.write_at(fd, line, known.size)
        except OSError:
            with suppress(OSError):
                self._tree.cut(fd, known.size)
            raise
        self._tree.make_durable(fd)
        os.fchmod(fd, FILE_MODE)
        self._check_place(fd)
        known.note(commit_id, head.next_seq, entries, encode_head(head))
        known.size += len(line)
        known.stamp = stamp_of(os.fstat(fd))

    def record(self, commit_id: str) -> Record | None:
        """What the commit with this id stored, if there was one."""
        known = self.known
        number = known.commits.get(commit_id)
        if number is None:
            return None
        return record_of(self.thread_id, next(self._lines(known, range(number, number + 1))))

    def events_after(self, seq: int, limit: int, max_bytes: int | None = None) -> list[Event]:
        """Only what was known at the last refresh. Raises StateCorrupt."""
        known = self.known
        events: list[Event] = []
        for line in self._lines(known, known.lines_after(seq, limit, max_bytes)):
            wanted = limit - len(events)
            events.extend(record_of(self.thread_id, line, after=seq, limit=wanted).events)
        return events

    def records(self) -> list[StoredRecord]:
        """Every commit that stored events, as it was known at the last refresh. Raises
        StateCorrupt."""
        known = self.known
        lines = self._lines(known, range(len(known.offsets)))
        return [
            StoredRecord(line.first_seq, line.commit_id or "", line.body)
            for line in lines
            if line.next_seq > line.first_seq
        ]

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """Each line's first event and what it holds, as it was known at the last refresh."""
        known = self.known
        with self._opened(os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as stream:
            for first_seq, offset in zip(known.first_seqs, known.offsets, strict=True):
                payload = self._next_payload(stream, known, first_seq, offset)
                if payload is None:
                    raise StateCorrupt("The log was cut.", thread_id=self.thread_id)
                yield first_seq, payload

    def _lines(self, known: KnownLines, numbers: range) -> Iterator[LogLine]:
        if not numbers:
            return
        with self._opened(os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as stream:
            stream.seek(known.offsets[numbers[0]])
            for number in numbers:
                line = self._next_line(
                    stream, known, known.first_seqs[number], known.offsets[number]
                )
                if line is None:
                    raise StateCorrupt("The log was cut.", thread_id=self.thread_id)
                # The checksum of the first line does not cover it: the thread may be another one.
                if line.head.get("incarnation", "") != known.incarnation:
                    raise StateCorrupt("The log was replaced.", thread_id=self.thread_id)
                yield line

    def _next_line(
        self, stream: BinaryIO, known: KnownLines, first_seq: int, offset: int
    ) -> LogLine | None:
        payload = self._next_payload(stream, known, first_seq, offset)
        return None if payload is None else decode_line(self.thread_id, payload)

    def _next_payload(
        self, stream: BinaryIO, known: KnownLines, first_seq: int, offset: int
    ) -> bytes | None:
        place = line_place(self.thread_id, first_seq, offset, known.incarnation)
        try:
            payload = read_sealed(stream, place)
            if payload is not None and known.cipher is not None:
                payload = known.cipher.opened(place, payload)
        except StateCorrupt as error:
            raise StateCorrupt(str(error), thread_id=self.thread_id, seq=first_seq) from None
        return payload

    def _take_in(self, fd: int) -> None:
        stamp = stamp_of(os.fstat(fd))
        before = self.known
        seen = before.stamp
        if seen is not None and seen[0] == stamp[0] and seen[1] < stamp[1]:
            try:
                return self._read_on(fd, before, stamp)
            except StateCorrupt:
                # The log of a thread that was made again can have a deleted one's inode and be
                # longer: only read from its beginning does it say whether it is damaged.
                pass
        self._read_on(fd, KnownLines(), stamp)
        if self.known.is_behind(before):
            self.known = before
            raise lost_events(self.thread_id, before.next_seq - 1)

    def _read_on(self, fd: int, known: KnownLines, stamp: Stamp) -> None:
        """Take in what follows `known`; what is then known takes its place."""
        is_new = not known.offsets
        is_whole = False
        if is_new and self._codec is not None:
            known.cipher = self._cipher(fd, self._codec)
        try:
            with open(fd, "rb", closefd=False, buffering=1 << 18) as stream:
                stream.seek(known.size)
                while known.size < stamp[1] and self._take_in_line(known, stream):
                    pass
            if is_new or _is_in_doubt(os.fstat(fd)):
                self._sync_last_line(fd, known)
                stamp = stamp_of(os.fstat(fd))
            is_whole = len(known.offsets) > 0
        finally:
            known.stamp = stamp
            self.known = known if is_whole else KnownLines()
        if not is_whole:
            raise StateCorrupt("The log has lost its first line.", thread_id=self.thread_id)

    def _cipher(self, fd: int, codec: EncryptingCodec) -> LineCipher:
        """Raises ThreadNotFound: the thread was taken away before we had its lock, so the key that
        lies there now may be another thread's."""
        self._check_held(fd)
        key = ThreadKey.read(self._tree, self.folder)
        if key is None:
            raise StateCorrupt("The log is not encrypted.", thread_id=self.thread_id)
        if key.identity[0] != self.thread_id:
            raise StateCorrupt("The key is another thread's.", thread_id=self.thread_id)
        return LineCipher.of(codec, key)

    def rewrap_key(self, codec: EncryptingCodec) -> bool:
        """Have the first of the codec's keys wrap this log's; False if it does already. Raises
        ThreadNotFound; StateCorrupt: none of them unwraps it."""
        with self._held(), self._opened(os.O_RDWR) as fd, locked(fd, fcntl.LOCK_EX):
            self._check_held(fd)
            key = ThreadKey.read(self._tree, self.folder)
            if key is None:
                raise StateCorrupt("The log is not encrypted.", thread_id=self.thread_id)
            wrapped = codec.keys.rewrapped(self.thread_id, key.wrapped)
            if wrapped is None:
                return False
            self._tree.write((*self.folder, KEY), ThreadKey(key.identity, wrapped).encoded())
            self._tree.sync_folder(self.folder)
            return True

    def _check_held(self, fd: int) -> None:
        if self.current_stamp()[0] != os.fstat(fd).st_ino:
            raise ThreadNotFound(thread_id=self.thread_id)

    def _sync_last_line(self, fd: int, known: KnownLines) -> None:
        """Make sure that the last line is on the disk; those before were when it was written."""
        if _is_in_doubt(os.fstat(fd)):
            start = known.offsets[-1] if known.offsets else 0
            self._tree.write_at(fd, os.pread(fd, known.size - start, start), start)
            self._tree.make_durable(fd)
            os.fchmod(fd, FILE_MODE)
        else:
            self._tree.make_durable(fd)

    def _check_place(self, fd: int) -> None:
        """Others move the folder only while they hold the lock that we hold."""
        found = self._tree.stat((*self.folder, LOG))
        if found is None or found.st_ino != os.fstat(fd).st_ino:
            raise gone(self._tree.root.joinpath(*self.folder, LOG))

    def _take_in_line(self, known: KnownLines, stream: BinaryIO) -> bool:
        try:
            line = self._next_line(stream, known, known.next_seq, known.size)
        except StateCorrupt:
            stream.seek(known.size)
            if is_torn(stream.read(), known.size):
                return False
            raise
        if line is None:
            return False
        if line.first_seq != known.next_seq or line.next_seq < line.first_seq:
            raise StateCorrupt("The log has a gap.", thread_id=self.thread_id)
        known.note(line.commit_id, line.next_seq, line.entries, orjson.dumps(line.head))
        known.size = stream.tell()
        return True

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(self._tree.opened((*self.folder, LOG), flags))
            except FileNotFoundError:
                raise ThreadNotFound(thread_id=self.thread_id) from None
            yield fd

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise StoreBusy("A commit of this thread takes too long.", thread_id=self.thread_id)
        try:
            yield
        finally:
            self._lock.release()


def lost_events(thread_id: str, seq: int) -> StateCorrupt:
    return StateCorrupt(
        "The log has lost events that were stored in it.", thread_id=thread_id, seq=seq
    )


def _is_in_doubt(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IXUSR)


def named_thread(tree: FileTree, folder: Place) -> str | None:
    """The thread that the log in this folder says it is of; `None` if it does not say. Raises
    FileNotFoundError: there is no log."""
    with tree.opened((*folder, LOG)) as fd, open(fd, "rb", closefd=False) as stream:
        line = stream.readline()
    try:
        record = orjson.loads(line)["record"]
        if isinstance(record, str):
            key = ThreadKey.read(tree, folder)
            return None if key is None else key.identity[0]
        return str(record["state"]["head"]["thread_id"])
    except (orjson.JSONDecodeError, KeyError, TypeError, StateCorrupt):
        return None


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns
