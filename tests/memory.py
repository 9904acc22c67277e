"""Where the tests write: into memory, where there is enough of it as a folder.

Tests sync stores some ten thousand times and leave as many files, over which a disk takes minutes.
No test cuts the power, so none can tell a disk from memory: `tests/crash_images` and
`tests/simulation` have a model of what a disk loses. A `TMPDIR` that the caller has set is kept.
"""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
VARIABLE = "TMPDIR"
# Several times what a whole run has been seen to need at once.
LEAST_BYTES = 1 << 30


def use_memory() -> None:
    """Make memory the place of temporary files, of this process and of those that it starts."""
    if os.environ.get(VARIABLE) or not _has_room():
        return
    os.environ[VARIABLE] = str(MEMORY)
    tempfile.tempdir = None  # pytest has looked it up before


def _has_room() -> bool:
    return os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= LEAST_BYTES
