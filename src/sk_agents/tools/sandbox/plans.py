"""Plans for the launcher: one program, its folder, its limits and the walls around it."""

from __future__ import annotations

import marshal
import os
import resource
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sk_agents.tools.sandbox.kernel_rules import (
    LANDLOCK_DEVICE,
    LANDLOCK_READ,
    landlock_accesses,
    landlock_attributes,
    landlock_rule,
    landlock_version,
    system_call_filter,
)

Wall = Literal["bubblewrap", "namespaces", "landlock"]

LAUNCHER = Path(__file__).with_name("launcher.py")
# A bare interpreter starts in a third of the time.
_LAUNCH = (sys.executable, "-I", "-S", "-B", str(LAUNCHER))
NOBODY = 65534
FIRST_USER, USERS = 61184, 4336
MEGABYTE = 1 << 20
# Mounts, names, IPC, users, processes, network.
_ALL_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_USER_NAMESPACE = 0x10000000
_DAC_OVERRIDE, _FOWNER = 1, 3
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
_LINKS = ("/etc/alternatives",)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The launcher's own processes count too.
_OWN_PROCESSES = 3


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Of one program. Memory and file size are those of each process and each file."""

    seconds: float = 30.0
    cpu_seconds: int = 30
    memory_mb: int = 1024
    file_mb: int = 64
    output_kb: int = 1024
    processes: int = 64
    open_files: int = 256

    def resources(self) -> dict[str, tuple[int, int]]:
        """Soft and hard limits, by the end of their names."""
        limits = {
            "CPU": self.cpu_seconds,
            "AS": self.memory_mb * MEGABYTE,
            "FSIZE": self.file_mb * MEGABYTE,
            "NPROC": self.processes + _OWN_PROCESSES,
            "NOFILE": self.open_files,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }
        found = {name: _at_most(name, limit) for name, limit in limits.items()}
        # A second between the signal that names the reason and the one that cannot be ignored.
        later = {name: limit + (name == "CPU") for name, limit in found.items()}
        return {name: (limit, later[name]) for name, limit in found.items()}


@dataclass(frozen=True, slots=True)
class Program:
    """`command` is an argv; `folder` is where it works, `private` holds its temporary files."""

    command: tuple[str, ...]
    folder: Path
    private: Path

    @property
    def environment(self) -> dict[str, str]:
        """All there is: nothing of the server's."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.private),
            "TMPDIR": str(self.private),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",
            # Git gives up when it may not read the system's settings, and in folders of others.
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": str(self.folder),
        }


def python_command(script: Path) -> tuple[str, ...]:
    return (sys.executable, "-u", str(script))


def launch_command(plan: dict[str, Any]) -> list[str]:
    return [*_LAUNCH, marshal.dumps(plan).hex()]


def build_plan(
    wall: Wall, program: Program, limits: ProgramLimits, *, bwrap: str
) -> dict[str, Any]:
    is_root = os.geteuid() == 0
    found = landlock_version()
    plan: dict[str, Any] = {
        "inside": False,
        "parent": os.getpid(),
        "wrapper": None,
        "unshare": 0,
        "writable": [str(program.folder), str(program.private)],
        "limits": limits.resources(),
        "shared_count": wall == "landlock",
        "user": _user(wall) if is_root else None,
        "capabilities": _kept_capabilities(wall) if is_root else [],
        "landlock": landlock_attributes(found).hex() if found else None,
        "rules": list(_rules(program, found)) if found else [],
        "seccomp": system_call_filter(has_namespaces=wall != "landlock").hex(),
        "folder": str(program.folder),
        "command": list(program.command),
        "environment": program.environment,
    }
    match wall:
        case "bubblewrap":
            plan["wrapper"] = _bubblewrap(program, bwrap, is_root=is_root)
            # Root's processes are counted only in the name of another user, in its own namespace.
            plan["unshare"] = _USER_NAMESPACE if is_root else 0
        case "namespaces":
            plan["unshare"] = _ALL_NAMESPACES
        case "landlock":
            pass
    return plan


def _user(wall: Wall) -> int:
    """The user that runs it when root may choose. Processes are counted by user, unless namespaces
    separate them, so each program then gets one of the users that systemd also gives out."""
    return FIRST_USER + secrets.randbelow(USERS) if wall == "landlock" else NOBODY


def _kept_capabilities(wall: Wall) -> list[int]:
    """To open others' files; and to change their modes, where all but two folders are read-only."""
    return [_DAC_OVERRIDE] if wall == "landlock" else [_DAC_OVERRIDE, _FOWNER]


def _rules(program: Program, found: int) -> Iterator[tuple[str, int]]:
    readable = [*_SYSTEM, *_SETTINGS, *_LINKS, *_interpreter(), str(LAUNCHER)]
    yield from (landlock_rule(path, LANDLOCK_READ, found) for path in readable)
    yield from (landlock_rule(path, LANDLOCK_DEVICE, found) for path in _DEVICES)
    every = landlock_accesses(found)
    for path in (program.folder, program.private):
        yield landlock_rule(str(path), every, found)


def _interpreter() -> list[str]:
    """The folders of this interpreter and its packages."""
    own = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    return sorted(path for path in own if path not in {"/", "/usr"})


def _bubblewrap(program: Program, bwrap: str, *, is_root: bool) -> list[str]:
    spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    spaces += ["--cap-add", "ALL"] if is_root else ["--unshare-user"]
    mounts = ["--proc", "/proc", "--dev", "/dev"]
    for path in (*_SYSTEM, *_SETTINGS, *_LINKS, *_interpreter(), str(LAUNCHER)):
        if os.path.islink(path) and path in _SYSTEM:
            mounts += ["--symlink", os.readlink(path), path]
        else:
            mounts += ["--ro-bind-try", path, path]
    for folder in (program.folder, program.private):
        mounts += ["--bind", str(folder), str(folder)]
    # What holds the rest together is memory, which a program must not fill.
    mounts += ["--remount-ro", "/dev", "--remount-ro", "/"]
    return [bwrap, "--die-with-parent", *spaces, *mounts, "--chdir", "/", "--", *_LAUNCH]


def _at_most(name: str, wanted: int) -> int:
    """Only root may raise what the server itself was given."""
    _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
