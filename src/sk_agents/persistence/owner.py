"""Who holds a lease: a name that tells whether the process behind it can still be alive.

On one host there is no need to wait for a dead process's lease to run out: boot id, pid and the
process's start time tell at once that it is gone.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_PROC = Path("/proc")


def new_owner() -> str:
    """A name for one engine in this process, never used before."""
    pid = os.getpid()
    return f"{_boot_id()}:{_pid_namespace()}:{pid}:{_start_time(pid) or 0}:{secrets.token_hex(4)}"


def process_is_gone(owner: str) -> bool:
    """True only if the owner was a process of this host and certainly runs no more.

    Of a process in another container nothing is known: its pid means nothing here.
    """
    fields = owner.split(":")
    if len(fields) != 5 or not (fields[2].isdecimal() and fields[3].isdecimal()):
        return False
    boot_id, namespace, pid, started, _ = fields
    if boot_id != _boot_id():
        return "unknown" not in (boot_id, _boot_id())
    if namespace != _pid_namespace() or int(started) == 0:
        return False
    return _start_time(int(pid)) != int(started)


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _pid_namespace() -> str:
    try:
        return os.readlink(_PROC / "self/ns/pid").strip("pid:[]")
    except OSError:
        return "unknown"


def _start_time(pid: int) -> int | None:
    """Clock ticks after boot, the 22nd field; the 2nd may hold spaces and parentheses.

    A zombie has ended: it only waits to be collected."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
