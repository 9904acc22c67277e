"""How many cores this process may use: of the machine, its affinity and its control group."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """At least one."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:
        allowed = os.cpu_count() or 1
    return max(1, min([allowed, *quotas(_ROOT, Path("/proc/self/cgroup"))]))


def quotas(root: Path, membership: Path) -> Iterator[int]:
    """Cores by the CPU time that the group, and each group around it, may use; a part counts."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "cpu", "cpu,cpuacct"):
            base = root if not controllers else root / controllers
            group = base / name.lstrip("/")
            # In a container the group's own name leads nowhere: what is mounted is its root.
            for place in (group, *group.parents):
                yield from _quota(place)
                if place in (base, root):
                    break


def _quota(group: Path) -> Iterator[int]:
    try:
        if (group / "cpu.max").exists():
            limit, period = (group / "cpu.max").read_text().split()
        else:
            limit = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        if limit not in ("max", "-1"):
            yield max(1, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return
