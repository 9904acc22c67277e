"""The few operations by which the file store changes a disk, in one place: tests record them, and
let them fail. Folders and files are given as descriptors, names are looked up in a folder."""

from __future__ import annotations

import os
import shutil

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class FileDisk:
    def open(self, name: str, folder: int, flags: int) -> int:
        return os.open(name, flags, FILE_MODE, dir_fd=folder)

    def make_folder(self, name: str, folder: int) -> None:
        os.mkdir(name, FOLDER_MODE, dir_fd=folder)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Of a file's bytes and size, or of the names in a folder."""
        os.fsync(fd)

    def move(self, name: str, folder: int, to_name: str, to_folder: int) -> None:
        os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)

    def remove(self, name: str, folder: int) -> None:
        os.unlink(name, dir_fd=folder)

    def remove_tree(self, name: str, folder: int) -> None:
        shutil.rmtree(name, dir_fd=folder)
