"""What a file system keeps of what was synced."""

from __future__ import annotations

import os
from pathlib import Path

from sk_agents.engine.models import Durability

MOUNTS = Path("/proc/self/mountinfo")
IN_MEMORY = ("tmpfs", "ramfs")


def weaknesses_of(path: Path) -> tuple[str, ...]:
    """Why a synced file at this place may be lost with the machine. Nothing where the system does
    not tell how it is mounted; what a disk does with a sync is not known either."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    for line in mounts:
        about, _, rest = line.partition(" - ")
        kind = rest.partition(" ")[0]
        if about.split()[2:3] == [number] and kind in IN_MEMORY:
            return (f"it is on {kind}, in the machine's memory",)
    return ()


def durability_with(weaknesses: tuple[str, ...]) -> Durability:
    return Durability.D1 if weaknesses else Durability.D2
