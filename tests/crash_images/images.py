"""Image after image of a recording, each opened by the real store and held against the history."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash_images.disk import Choice, Disk, Recording, points_of, write_image

# Memory, where there is one to be had as a folder: thousands of images are written.
MEMORY = Path("/dev/shm")

# Opens what an image left in a folder, and says what is wrong with it.
Examine = Callable[[Path, int], Awaitable[list[str]]]


@dataclass(slots=True)
class Findings:
    images: int = 0
    problems: list[str] = field(default_factory=list)


@contextmanager
def quick_folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="teal-crash-", dir=MEMORY if MEMORY.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


async def examine_images(
    recording: Recording,
    examine: Examine,
    *,
    count: int,
    seed: int,
    safe: dict[str, bytes] | None = None,
    since: int = 0,
    until_found: bool = False,
) -> Findings:
    """About `count` images, spread over all points from `since` on; `safe` is what was there
    before."""
    chance = random.Random(seed)
    others = max(20, recording.now // 4)
    points = [point for point in points_of(recording, chance, others) if point >= since]
    if len(points) > count:
        points = sorted(chance.sample(points, count))
    each = max(1, round(count / len(points)))
    disk = Disk(recording, safe)
    findings = Findings()
    with quick_folder() as folder:
        for point in points:
            disk.advance(point)
            for number in range(each):
                choice = Choice(_kind(number, chance), chance)
                at = folder / str(findings.images)
                at.mkdir()
                write_image(disk.image(choice), at)
                found = await examine(at, point)
                findings.images += 1
                findings.problems += [f"{choice.kind}: {problem}" for problem in found]
                shutil.rmtree(at)
            if until_found and findings.problems:
                break
    return findings


def _kind(number: int, chance: random.Random) -> str:
    """The two ends first; then what is hardest to get right more often."""
    if number < 2 and chance.random() < 0.5:
        return Choice.KINDS[number]
    return chance.choice(Choice.KINDS[2:])
