"""Debian's Chromium: found, or installed where that is possible."""

from __future__ import annotations

import sys

import pytest

from tests.debian import program

NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")
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
    """Where it is; the test is skipped, loudly, where there is none and none can be had."""
    found = program(NAMES, PACKAGES)
    if found is None:
        reason = "no Chromium: apt-get install chromium, then run the browser tests again"
        sys.stderr.write(f"\nBROWSER TESTS SKIPPED: {reason}\n")
        pytest.skip(reason)
    return found
