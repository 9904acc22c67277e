"""`make release`: check that a release is ready, build what it consists of, and tag it if told to.

Without `--tag` nothing but `dist/` is touched, and what would keep a tag from being made is said.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PAGE = ROOT / "src" / "sk_agents" / "ui_dist" / "index.html"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", action="store_true", help="tag the release when it is built")
    wants_tag = parser.parse_args(arguments).tag
    version = project_version()
    problems = list(obstacles(version))
    for problem in problems:
        say(f"not ready: {problem}")
    if problems and wants_tag:
        return 1
    for path in [*built_packages(), *bills_of_materials(version), checksums()]:
        say(f"built {path.relative_to(ROOT)}")
    if wants_tag:
        run("git", "tag", "--annotate", tag_of(version), "--message", f"Teal Agents {version}")
        say(f"tagged {tag_of(version)}; publish it with: git push origin {tag_of(version)}")
    else:
        say(f"make release TAG=1 would tag {tag_of(version)}")
    return 0


def obstacles(version: str) -> Iterator[str]:
    """What speaks against a release."""
    if run("git", "status", "--porcelain"):
        yield "the working tree has changes that are not committed"
    if run("git", "tag", "--list", tag_of(version)):
        yield f"there is a tag {tag_of(version)} already: raise the version in pyproject.toml"
    if not changes_in((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version):
        yield f"CHANGELOG.md has no section '## {version}' with changes in it"
    if not PAGE.is_file():
        yield "the page is not built"


def project_version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = project["project"]["version"]
    return version


def tag_of(version: str) -> str:
    return f"v{version}"


def changes_in(changelog: str, version: str) -> str:
    """What the changelog says of a version; empty if nothing."""
    heading = rf"^## \[?{re.escape(version)}\]?(?:[ \t][^\n]*)?$"
    section = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return section[1].strip() if section else ""


def built_packages() -> list[Path]:
    """A wheel with the page in it, and an archive of the sources from which both can be built."""
    for old in [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz"), *DIST.glob("*.cdx.json")]:
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST), "-t", "wheel", "-t", "sdist")
    return [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]


def bills_of_materials(version: str) -> Iterator[Path]:
    """What is in the release that others wrote, as CycloneDX: in Python, and in the page."""
    python = DIST / f"teal-agents-{version}.cdx.json"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    tool = [sys.executable, "-m", "cyclonedx_py", "requirements", "-", "--pyproject"]
    options = [str(ROOT / "pyproject.toml"), "--output-reproducible", "-o", str(python)]
    run(*tool, *options, given=locked(lock, needed_packages("teal-agents")))
    yield python
    page = DIST / f"teal-agents-{version}-page.cdx.json"
    sbom = ["npm", "--prefix", str(ROOT / "ui"), "sbom", "--package-lock-only", "--omit", "dev"]
    page.write_text(run(*sbom, "--sbom-format", "cyclonedx"), encoding="utf-8")
    yield page


def needed_packages(name: str) -> set[str]:
    """The packages that this one needs to run, without extras, directly or through others."""
    seen: set[tuple[str, str]] = set()
    ahead = [(name, "")]
    while ahead:
        package, extra = ahead.pop()
        for text in metadata.requires(package) or ():
            required = Requirement(text)
            if required.marker and not required.marker.evaluate({"extra": extra}):
                continue
            found = {(canonicalize_name(required.name), one) for one in {"", *required.extras}}
            ahead += found - seen
            seen |= found
    return {package for package, _ in seen}


def locked(lock: str, names: set[str]) -> str:
    """The lock's entries of these packages."""
    entries = re.findall(r"^[^\s#][^\n]*(?:\n[ \t]+[^\n]*)*", lock, re.MULTILINE)
    kept = [entry for entry in entries if canonicalize_name(entry.split("==")[0]) in names]
    return "\n".join(kept) + "\n"


def checksums() -> Path:
    names = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in names]
    sums = DIST / "SHA256SUMS"
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(
        command, cwd=ROOT, input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
