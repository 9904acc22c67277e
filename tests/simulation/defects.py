"""Builds with one defect put back, to show that the simulation finds it.

Each `defects/<name>.patch` undoes one mend of the package. It is applied to a copy, which then
simulates histories until one of them breaks a promise.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATCHES = Path(__file__).parent / "defects"
HISTORIES = 3_000
# Sets are walked through in the order of their members' hashes: a history is the same only in a
# process whose hashes are.
HASHES = {"PYTHONHASHSEED": "0"}
_RED = re.compile(r"red after (\d+) histories")
_FOUND = re.compile(r"^seed \d+ .*$", re.MULTILINE)


def defects() -> list[str]:
    return sorted(patch.stem for patch in PATCHES.glob("*.patch"))


def broken_copy(defect: str, folder: Path) -> Path:
    """The package and its tests with this defect, below `folder`.

    Raises:
        subprocess.CalledProcessError: the patch does not fit the package any more.
    """
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "ui_dist")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    patch = PATCHES / f"{defect}.patch"
    # Not as a part of a repository that the folder may lie in: git would leave its files alone.
    settings = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(
        ["git", "apply", str(patch)], cwd=folder, check=True, capture_output=True, env=settings
    )
    return folder


def simulated(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `python -m tests.simulation` says of the copy."""
    paths = os.pathsep.join(str(part) for part in (copy / "src", copy))
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=copy,
        env={**os.environ, **HASHES, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )


def red_after(defect: str, folder: Path, *, histories: int = HISTORIES) -> tuple[int | None, str]:
    """How many histories it took to find the defect, `None` if it was not found, and what was
    found."""
    copy = broken_copy(defect, folder / defect)
    done = simulated(copy, "--histories", str(histories), "--until-red")
    found = _RED.search(done.stdout)
    problem = _FOUND.search(done.stdout)
    if found is None or problem is None:
        return None, done.stdout + done.stderr
    return int(found[1]), problem[0]
