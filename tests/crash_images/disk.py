"""A disk that forgets: from recorded operations to every kind of image that may be left of them.

Until a file is synced, each 512-byte sector that was written to it may have arrived or not, in any
order; until a folder is synced, each name that was made, moved or removed in it may be so or not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
ROOT = 0


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Of a file or a folder; covers what was recorded before the sync began."""

    node: int
    covers: int


@dataclass(frozen=True, slots=True)
class Link:
    folder: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Unlink:
    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """One step, as file systems with a journal make it; durable with the folder it leads to."""

    folder: int
    name: str
    to_folder: int
    to_name: str
    node: int


# Every file by its path, and `None` for every folder.
Image = Mapping[Path, bytes | None]
Operation = Write | Truncate | Sync | Link | Unlink | Move


@dataclass(slots=True)
class Recording:
    """Operations in the order in which they were done, from any thread."""

    operations: list[Operation] = field(default_factory=list)
    folders: set[int] = field(default_factory=lambda: {ROOT})
    _names: dict[tuple[int, str], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_node: int = ROOT

    @property
    def now(self) -> int:
        return len(self.operations)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    def node(self, folder: int, name: str) -> int | None:
        return self._names.get((folder, name))

    def make(self, folder: int, name: str, *, is_folder: bool = False) -> int:
        """A new node under this name."""
        with self._lock:
            self._last_node += 1
            node = self._last_node
            self._names[folder, name] = node
            if is_folder:
                self.folders.add(node)
            self.operations.append(Link(folder, name, node))
            return node

    def had(self, name: str) -> int:
        """The node of a file that was there, and safe, before the recording began."""
        self._last_node += 1
        self._names[ROOT, name] = self._last_node
        return self._last_node

    def remove(self, folder: int, name: str) -> None:
        with self._lock:
            self._names.pop((folder, name), None)
            self.operations.append(Unlink(folder, name))

    def move(self, folder: int, name: str, to_folder: int, to_name: str) -> None:
        with self._lock:
            node = self._names.pop((folder, name))
            self._names[to_folder, to_name] = node
            self.operations.append(Move(folder, name, to_folder, to_name, node))


class Choice:
    """Which of the operations that were not synced arrived. One of the `kinds`, by chance."""

    KINDS = ("nothing", "all", "prefix", "some", "torn")

    def __init__(self, kind: str, chance: random.Random) -> None:
        self.kind = kind
        self._chance = chance
        self._rate = chance.choice((0.1, 0.5, 0.9))

    def arrived(self, count: int) -> Sequence[bool]:
        """Of so many operations, in their order."""
        match self.kind:
            case "nothing":
                return [False] * count
            case "all":
                return [True] * count
            case "prefix":
                last = self._chance.randint(0, count)
                return [number < last for number in range(count)]
        return [self._chance.random() < self._rate for _ in range(count)]

    def pieces(self, write: Write) -> Iterator[tuple[int, bytes]]:
        """What arrived of a write that is no whole: some of its sectors."""
        if self.kind != "torn":
            yield write.offset, write.data
            return
        start = write.offset
        end = start + len(write.data)
        while start < end:
            stop = min(end, (start // SECTOR + 1) * SECTOR)
            if self._chance.random() < 0.5:
                yield start, write.data[start - write.offset : stop - write.offset]
            start = stop

    def has_grown(self) -> bool:
        """Whether a file has the size of its last write, though its bytes did not arrive."""
        return self.kind == "torn" and self._chance.random() < 0.3


class Disk:
    """What is safe, and what is not yet, after so many operations of a recording."""

    def __init__(self, recording: Recording, safe: Mapping[str, bytes] | None = None) -> None:
        self._recording = recording
        self._done = 0
        self._contents: dict[int, bytearray] = {}
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._unsafe: list[tuple[int, Operation]] = []
        for name, data in (safe or {}).items():
            node = recording.node(ROOT, name)
            assert node is not None, "the recording must know the files that were there before"
            self._contents[node] = bytearray(data)
            self._names[ROOT][name] = node

    def advance(self, point: int) -> None:
        """To the moment before the operation of this number."""
        for number in range(self._done, point):
            operation = self._recording.operations[number]
            if isinstance(operation, Sync):
                self._sync(operation)
            else:
                self._unsafe.append((number, operation))
        self._done = max(self._done, point)

    def image(self, choice: Choice) -> Image:
        contents = {node: bytearray(data) for node, data in self._contents.items()}
        names = {folder: dict(entries) for folder, entries in self._names.items()}
        arrived = choice.arrived(len(self._unsafe))
        for (_, operation), is_there in zip(self._unsafe, arrived, strict=True):
            if isinstance(operation, Write):
                if is_there:
                    for offset, data in choice.pieces(operation):
                        _write(contents, operation.node, offset, data)
                if choice.has_grown():
                    _write(contents, operation.node, operation.offset + len(operation.data), b"")
            elif is_there:
                _apply(operation, contents, names)
        return dict(self._tree(ROOT, Path(), contents, names))

    def _sync(self, sync: Sync) -> None:
        left = []
        for number, operation in self._unsafe:
            if number < sync.covers and _syncs(sync.node, operation):
                _apply(operation, self._contents, self._names)
            else:
                left.append((number, operation))
        self._unsafe = left

    def _tree(
        self,
        folder: int,
        at: Path,
        contents: Mapping[int, bytearray],
        names: Mapping[int, Mapping[str, int]],
    ) -> Iterator[tuple[Path, bytes | None]]:
        for name, node in names.get(folder, {}).items():
            if node in self._recording.folders:
                yield at / name, None
                yield from self._tree(node, at / name, contents, names)
            else:
                yield at / name, bytes(contents.get(node, b""))


def adopt(recording: Recording, root: Path) -> dict[int, int]:
    """Record what lies below `root` as safe. Returns the node of each inode, the root's too."""
    nodes = {root.stat().st_ino: ROOT}
    for path in sorted(root.rglob("*")):
        folder = nodes[path.parent.stat().st_ino]
        is_folder = path.is_dir()
        node = nodes[path.stat().st_ino] = recording.make(folder, path.name, is_folder=is_folder)
        if not is_folder:
            recording.add(Write(node, 0, path.read_bytes()))
            recording.add(Sync(node, recording.now))
    for node in recording.folders & {*nodes.values()}:
        recording.add(Sync(node, recording.now))
    return nodes


def write_image(image: Image, folder: Path) -> None:
    for path, data in image.items():
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)


def points_of(recording: Recording, chance: random.Random, others: int) -> list[int]:
    """Before and after every sync, and as many moments between."""
    syncs = [n for n, done in enumerate(recording.operations) if isinstance(done, Sync)]
    around = {point for sync in syncs for point in (sync, sync + 1)}
    between = {chance.randint(0, recording.now) for _ in range(others)}
    return sorted(around | between)


def _syncs(node: int, operation: Operation) -> bool:
    match operation:
        case Write() | Truncate():
            return operation.node == node
        case Link() | Unlink():
            return operation.folder == node
        case Move():
            return operation.to_folder == node
    return False


def _apply(
    operation: Operation, contents: dict[int, bytearray], names: dict[int, dict[str, int]]
) -> None:
    match operation:
        case Write(node, offset, data):
            _write(contents, node, offset, data)
        case Truncate(node, size):
            del contents.setdefault(node, bytearray())[size:]
        case Link(folder, name, node):
            # It may have been moved on by a step that is safe already.
            if not _is_linked(node, names.values()):
                names.setdefault(folder, {})[name] = node
        case Unlink(folder, name):
            names.setdefault(folder, {}).pop(name, None)
        case Move(folder, name, to_folder, to_name, node):
            entries = names.setdefault(folder, {})
            if entries.get(name) == node:
                del entries[name]
            names.setdefault(to_folder, {})[to_name] = node


def _is_linked(node: int, folders: Iterable[Mapping[str, int]]) -> bool:
    return any(node in entries.values() for entries in folders)


def _write(contents: dict[int, bytearray], node: int, offset: int, data: bytes) -> None:
    content = contents.setdefault(node, bytearray())
    end = offset + len(data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[offset:end] = data
