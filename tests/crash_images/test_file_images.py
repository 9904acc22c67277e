"""Power loss under the file store: whatever the disk kept, what was acknowledged is there."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sk_agents.exceptions import TealError
from sk_agents.persistence.file.disk import FileDisk
from sk_agents.persistence.file.store import FileStore
from sk_agents.testing.commits import USER, append, start_run, thought
from tests.chaos.scale import trials
from tests.crash_images.disk import Recording
from tests.crash_images.file_recorder import HastyDisk, RecordingDisk, after_a_reboot
from tests.crash_images.history import History, state_of
from tests.crash_images.images import Findings, examine_images, quick_folder
from tests.crash_images.workload import work
from tests.patience import seconds

SEEDS = trials(full=6, small=1)
IMAGES = trials(full=1_000, small=60)


async def instances_at_work(seed: int, root: Path, recording: Recording, disk: FileDisk) -> History:
    chance = random.Random(seed)
    history = History(lambda: recording.now)
    async with FileStore(root, single_user=USER, disk=disk) as first:
        async with FileStore(root, single_user=USER, disk=disk) as second:
            await work([first, second], history, chance, turns=5, name="both")
        await work([first], history, chance, turns=6, name="one")
    async with FileStore(root, single_user=USER, disk=disk) as store:
        await work([store], history, chance, turns=3, name="again")
    return history


def examination(history: History) -> Callable[[Path, int], Awaitable[list[str]]]:
    async def examine(root: Path, point: int) -> list[str]:
        try:
            async with FileStore(root, single_user=USER) as store:
                found = await history.problems(store, point)
                await _works_on(store)
            return found + _untrue_files(root)
        except TealError as error:
            return [f"at {point}: {type(error).__name__} {error}"]

    return examine


async def _works_on(store: FileStore) -> None:
    head = (await store.commit(start_run("new", "run-new"))).thread
    await store.commit(append(head, thought("and more", "run-new")))
    assert len(await state_of(store, "new") or ()) == 2


def _untrue_files(root: Path) -> list[str]:
    """Chats whose readable files name interactions that are not there, or cannot be read."""
    problems = []
    for chat in root.glob("chats/*/chat.json"):
        for run_id in json.loads(chat.read_bytes())["interactions"]:
            interaction = chat.with_name("interactions") / f"int_{run_id}.json"
            try:
                json.loads(interaction.read_bytes())
            except (OSError, ValueError) as error:
                problems.append(f"{interaction.relative_to(root)}: {error}")
    return problems


async def examined(
    seed: int,
    count: int,
    disk_of: Callable[[Recording, Path], RecordingDisk],
    *,
    until_found: bool = False,
) -> Findings:
    recording = Recording()
    with quick_folder() as folder:
        root = folder / "store"
        root.mkdir(mode=0o700)
        history = await instances_at_work(seed, root, recording, disk_of(recording, root))
        with after_a_reboot(folder):
            return await examine_images(
                recording, examination(history), count=count, seed=seed, until_found=until_found
            )


@pytest.mark.timeout(seconds(3600))
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_image_of_instances_at_work_has_lost_anything_acknowledged(seed: int) -> None:
    findings = await examined(seed, IMAGES, RecordingDisk)
    assert findings.problems == []


@pytest.mark.parametrize("folders", [False, True])
async def test_images_find_a_disk_that_is_not_told_to_sync(folders: bool) -> None:
    findings = await examined(
        0,
        1_000,
        lambda recording, root: HastyDisk(recording, root, folders=folders),
        until_found=True,
    )
    assert findings.problems, "a sync that was left out went unnoticed"
