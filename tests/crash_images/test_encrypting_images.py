"""Power loss while a store of files is encrypted, or its keys are wrapped by another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from sk_agents.exceptions import TealError
from sk_agents.persistence.codec import PLAIN, PlainCodec
from sk_agents.persistence.encryption import EncryptingCodec, new_key
from sk_agents.persistence.file.disk import FileDisk
from sk_agents.persistence.file.encrypting import encrypt, rekey
from sk_agents.persistence.file.store import FileStore
from tests.chaos.scale import trials
from tests.crash_images.disk import Recording, Sync
from tests.crash_images.file_recorder import HastyDisk, RecordingDisk, after_a_reboot
from tests.crash_images.history import History, state_of
from tests.crash_images.images import Findings, examine_images, quick_folder
from tests.patience import seconds
from tests.stores.encrypted import codec, fill

THREADS = 3
IMAGES = trials(full=1_000, small=120)
OLD, NEW = new_key(), new_key()
NO_FILE = -1

DiskOf = Callable[[Recording, Path], RecordingDisk]
# Changes the whole store in this folder, over this disk or its own.
Change = Callable[[Path, FileDisk | None], None]


def ignored(done: int, total: int) -> None: ...


def encrypted(root: Path, disk: FileDisk | None) -> None:
    encrypt(root, codec(NEW), ignored, disk)


def rekeyed(root: Path, disk: FileDisk | None) -> None:
    rekey(root, codec(NEW, OLD), ignored, disk)


async def filled(root: Path, written_with: PlainCodec | EncryptingCodec) -> History:
    """A store that is safe as a whole, and what is in it."""
    history = History(lambda: 0)
    async with FileStore(root, codec=written_with) as store:
        await fill(store, THREADS)
        for number in range(THREADS):
            history.had(f"t{number}", await state_of(store, f"t{number}"))
    return history


def examination(
    history: History, change: Change, ended: int
) -> Callable[[Path, int], Awaitable[list[str]]]:
    async def examine(root: Path, point: int) -> list[str]:
        try:
            if point < ended:
                change(root, None)
            async with FileStore(root, codec=codec(NEW)) as store:
                return await history.problems(store, point)
        except TealError as error:
            return [f"at {point}: {type(error).__name__} {error}"]

    return examine


async def examined(
    change: Change,
    written_with: PlainCodec | EncryptingCodec,
    disk_of: DiskOf,
    count: int,
    *,
    until_found: bool = False,
) -> Findings:
    recording = Recording()
    with quick_folder() as folder:
        root = folder / "store"
        root.mkdir(mode=0o700)
        history = await filled(root, written_with)
        disk = disk_of(recording, root)
        began = recording.now
        change(root, disk)
        ended = recording.now
        # Moments around a sync are looked at: also the one at which the change is told as done.
        recording.add(Sync(NO_FILE, ended))
        examine = examination(history, change, ended)
        with after_a_reboot(folder):
            return await examine_images(
                recording, examine, count=count, seed=0, since=began, until_found=until_found
            )


CHANGES = [
    pytest.param(encrypted, PLAIN, id="encrypted"),
    pytest.param(rekeyed, codec(OLD), id="rekeyed"),
]


@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize(("change", "written_with"), CHANGES)
async def test_change_of_a_whole_store_is_there_or_goes_on_and_loses_nothing(
    change: Change, written_with: PlainCodec | EncryptingCodec
) -> None:
    findings = await examined(change, written_with, RecordingDisk, IMAGES)
    assert findings.images > IMAGES / 2
    assert findings.problems == []


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.parametrize(("change", "written_with"), CHANGES)
async def test_images_find_a_change_that_is_not_synced(
    change: Change, written_with: PlainCodec | EncryptingCodec, folders: bool
) -> None:
    findings = await examined(
        change, written_with, partial(HastyDisk, folders=folders), 400, until_found=True
    )
    assert findings.problems, "a sync that was left out went unnoticed"
