"""Debian's Chromium: found, or installed where that is possible."""

from __future__ import annotations

from tests.debian import CHROMIUM, program
from tests.missing import lacks

# Without these Chromium looks up hosts of its own at each start.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]


def chromium_path() -> str:
    return program(CHROMIUM) or lacks("browser", "no Chromium: apt-get install chromium")
