"""A SQLite file system that records what it is told to write, and when it was told to sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os.path import basename

import apsw

from tests.crash_images.disk import ROOT, Recording, Sync, Truncate, Write

Name = str | apsw.URIFilename | None
JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
RECORDED = JOURNALS | apsw.SQLITE_OPEN_MAIN_DB


class RecordingVFS(apsw.VFS):
    """The default while installed. All databases must lie in one folder.

    What is opened from now on is recorded in `recording`, which may be replaced.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        super().__init__("recording-disk", base="unix", makedefault=True)

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        if name is None or not flags[0] & RECORDED:
            return apsw.VFSFile("unix", name, flags)
        return self.recorded_file(name, flags)

    def recorded_file(self, name: Name, flags: list[int]) -> RecordedFile:
        return RecordedFile(self.recording, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.recording.remove(ROOT, basename(filename))
        if syncdir:
            self.recording.add(Sync(ROOT, self.recording.now))


class RecordedFile(apsw.VFSFile):
    def __init__(self, recording: Recording, name: Name, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        # As the unix file system does: the first sync of a journal syncs its folder, too.
        self._syncs_folder = bool(flags[0] & JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__("unix", name, flags)
        self._recording = recording
        found = recording.node(ROOT, basename(path))
        self._node = recording.make(ROOT, basename(path)) if found is None else found

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._recording.add(Write(self._node, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._recording.add(Truncate(self._node, newsize))

    def xSync(self, flags: int) -> None:
        covers = self._recording.now
        super().xSync(flags)
        self._recording.add(Sync(self._node, covers))
        if self._syncs_folder:
            self._syncs_folder = False
            self._recording.add(Sync(ROOT, covers))


@contextmanager
def recorded(recording: Recording) -> Iterator[None]:
    vfs = RecordingVFS(recording)
    try:
        yield
    finally:
        vfs.unregister()
