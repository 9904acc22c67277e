"""Programs of the distribution that tests need: found, or installed where that is possible.

As root on Debian they are installed with `apt-get`. The first lines of a test run say so;
`TEAL_TEST_INSTALL=0` declines.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

VARIABLE = "TEAL_TEST_INSTALL"
INSTALL_SECONDS = 300

# The shell without a window takes half the work of the whole browser.
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BUBBLEWRAP = ("bwrap",)
# Only root has the folder of system programs in its path.
NGINX = ("nginx", "/usr/sbin/nginx")
PGBOUNCER = ("pgbouncer", "/usr/sbin/pgbouncer")
TINYPROXY = ("tinyproxy",)
# What has to be installed for one of these programs to be there.
PACKAGES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    CHROMIUM: ("chromium-headless-shell", "fonts-dejavu-core"),
    BUBBLEWRAP: ("bubblewrap",),
    PGBOUNCER: ("pgbouncer",),
    NGINX: ("nginx-light",),
    TINYPROXY: ("tinyproxy-bin",),
}


@cache
def program(names: tuple[str, ...]) -> str | None:
    """Where one of these programs is; `None` where there is none and none can be had."""
    return _found(names) or _installed(names)


def announcement() -> str | None:
    """What the tests are going to install, if anything."""
    absent = [name for names in PACKAGES if not _found(names) for name in PACKAGES[names]]
    if not absent:
        return None
    if not may_install():
        return f"not on this machine: {', '.join(absent)}; tests that need them are skipped"
    return f"apt-get will install {', '.join(absent)}; {VARIABLE}=0 declines"


def may_install() -> bool:
    return (
        os.environ.get(VARIABLE) != "0"
        and os.geteuid() == 0
        and shutil.which("apt-get") is not None
    )


def _found(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def _installed(names: tuple[str, ...]) -> str | None:
    if not may_install():
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
            ["apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES[names]],
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
