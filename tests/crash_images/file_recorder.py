"""A disk under the file store that records what it does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sk_agents.persistence.file import index as file_index
from sk_agents.persistence.file.disk import FileDisk
from tests.crash_images.disk import Recording, Sync, Truncate, Write, adopt


class RecordingDisk(FileDisk):
    """Knows files and folders by their inodes, which a file system in memory does not use twice.

    What lies below the root when this is made is safe.
    """

    def __init__(self, recording: Recording, root: Path) -> None:
        self._recording = recording
        self._nodes: dict[int, int] = {}
        # Names are looked up and changed in one step.
        self._lock = threading.Lock()
        self.adopt(root)

    def adopt(self, root: Path) -> None:
        """Also if other files and folders were put in the place of those that were known."""
        self._nodes.update(adopt(self._recording, root))

    def open(self, name: str, folder: int, flags: int) -> int:
        with self._lock:
            fd = super().open(name, folder, flags)
            inode = os.fstat(fd).st_ino
            if flags & os.O_CREAT and inode not in self._nodes:
                self._nodes[inode] = self._recording.make(self._node(folder), name)
            return fd

    def make_folder(self, name: str, folder: int) -> None:
        with self._lock:
            super().make_folder(name, folder)
            inode = os.stat(name, dir_fd=folder).st_ino
            parent = self._node(folder)
            self._nodes[inode] = self._recording.make(parent, name, is_folder=True)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        written = super().write(fd, data, offset)
        self._recording.add(Write(self._node(fd), offset, data[:written]))
        return written

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._recording.add(Truncate(self._node(fd), size))

    def sync(self, fd: int) -> None:
        covers = self._recording.now
        self._recording.add(Sync(self._node(fd), covers))

    def move(self, name: str, folder: int, to_name: str, to_folder: int) -> None:
        with self._lock:
            super().move(name, folder, to_name, to_folder)
            self._recording.move(self._node(folder), name, self._node(to_folder), to_name)

    def remove(self, name: str, folder: int) -> None:
        with self._lock:
            super().remove(name, folder)
            self._recording.remove(self._node(folder), name)

    def remove_tree(self, name: str, folder: int) -> None:
        with self._lock:
            super().remove_tree(name, folder)
            self._recording.remove(self._node(folder), name)

    def _node(self, fd: int) -> int:
        return self._nodes[os.fstat(fd).st_ino]


class HastyDisk(RecordingDisk):
    """A broken build: one kind of sync is left out."""

    def __init__(self, recording: Recording, root: Path, *, folders: bool) -> None:
        super().__init__(recording, root)
        self._folders = folders

    def sync(self, fd: int) -> None:
        if (self._node(fd) in self._recording.folders) != self._folders:
            super().sync(fd)


@contextmanager
def after_a_reboot(folder: Path) -> Iterator[None]:
    """Stores that are opened here find that the machine was started again since."""
    boot_id = folder / "boot_id"
    boot_id.write_text("another")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_index, "BOOT_ID", boot_id)
        yield
