"""Which owner of a lease is alive, and which run is read: what every store decides alike.

Both go by the host's monotonic clock. On one host there is no need to wait for a dead process's
lease to run out: boot id, pid and the process's start time show at once that it is gone.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sk_agents.engine.log.commits import same_thread
from sk_agents.engine.models import Thread
from sk_agents.exceptions import LeaseHeld, SequenceConflict

_PROC = Path("/proc")

# Marks of runs that are read are hints and never part of a log. A store may drop one after this
# time, which is far longer than an engine waits for a reader to come back.
MARK_SECONDS = 3_600.0
# Processes read the clock before they get to write; a mark further ahead is of an earlier boot.
MARK_AHEAD_SECONDS = 60.0


def new_owner() -> str:
    """A name for one engine in this process, never used before."""
    pid = os.getpid()
    return f"{_boot_id()}:{_pid_namespace()}:{pid}:{_start_time(pid) or 0}:{secrets.token_hex(4)}"


def is_alive(owner: str, alive_until: float | None, now: float) -> bool:
    """Whether an owner that renewed its leases until then can still hold one."""
    return alive_until is not None and now < alive_until and not process_is_gone(owner)


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


def local_process_is_gone(owner: str) -> bool:
    """The same where owners are processes of several hosts: one of another host may well live."""
    return owner.startswith(f"{_boot_id()}:") and process_is_gone(owner)


def check_deletable(
    thread_id: str, head: Thread | None, next_seq: int, incarnation: str | None, *, leased: bool
) -> None:
    """What `Store.delete` promises.

    Raises:
        ThreadNotFound: it is not there, or another one has its id.
        SequenceConflict: something was appended.
        LeaseHeld: a live owner holds it.
    """
    head = same_thread(thread_id, head, incarnation)
    if head.next_seq != next_seq:
        raise SequenceConflict(thread_id=thread_id, next_seq=head.next_seq)
    if leased:
        raise LeaseHeld(thread_id=thread_id)


def mark_age(marked_at: float | None, now: float) -> float | None:
    """Seconds since a run was marked as read, or `None` if the mark says nothing."""
    if marked_at is None or not now - MARK_SECONDS <= marked_at <= now + MARK_AHEAD_SECONDS:
        return None
    return max(0.0, now - marked_at)


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
