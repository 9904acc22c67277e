"""Programs of the distribution that tests need: found, or installed where that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

INSTALL_SECONDS = 300


@cache
def program(names: tuple[str, ...], packages: tuple[str, ...]) -> str | None:
    """Where one of these programs is; `None` where there is none and none can be had."""
    return _found(names) or _installed(names, packages)


def _found(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def _installed(names: tuple[str, ...], packages: tuple[str, ...]) -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    # One of several test processes installs, the others wait for it.
    with (Path(tempfile.gettempdir()) / "teal-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := _found(names):
            return found
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        environment = {**os.environ, "PATH": path, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-qy", "--no-install-recommends", *packages],
        ):
            try:
                subprocess.run(
                    command,
                    env=environment,
                    check=True,
                    timeout=INSTALL_SECONDS,
                    capture_output=True,
                )
            except (subprocess.SubprocessError, OSError):
                return None
        return _found(names)
