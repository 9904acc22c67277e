"""What the kernel refuses to a sandboxed program: system calls (seccomp) and files (Landlock).

The seccomp filter refuses what is listed here and leaves the rest to the other walls. It is built
as bytes and loaded by the launcher. Landlock says which files a program may open, by the path they
lie under. It says nothing about names, sizes, times, modes and owners of other files: for the last
two there are the filter and read-only mounts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

# Sockets reach further than the network: by a path, or an abstract name, to services of this host.
# A pair of connected ones stays possible.
NETWORK = ("socket", "bind", "listen", "connect", "accept")
# Into other processes, or past the scheduler to them.
PROCESSES = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "pidfd_open"),
    *("process_madvise", "process_mrelease", "migrate_pages", "move_pages", "perf_event_open"),
    *("setpriority", "sched_setparam", "sched_setscheduler", "sched_setaffinity"),
    *("sched_setattr", "ioprio_set", "set_mempolicy_home_node"),
)
# Round the file system's rules, or to other file systems.
MOUNTS = (
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "statmount", "listmount"),
    "open_tree_attr",
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd"),
    *("lookup_dcookie", "acct", "swapon", "swapoff", "vhangup"),
)
# Large parts of the kernel that few programs need.
KERNEL = (
    *("bpf", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("add_key", "request_key", "keyctl", "init_module", "finit_module", "delete_module"),
    *("kexec_load", "kexec_file_load", "reboot", "syslog", "sethostname", "setdomainname"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm"),
    "personality",
)
# Shared with the whole host, unless there are namespaces.
SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
# Landlock does not look at these, and the owner of a file needs no other right.
ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr"),
    *("setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    "file_setattr",
)
# Out of the process group by which all are found and ended.
GROUPS = ("setsid", "setpgid")

_RECENT = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428},
    **{"move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433},
    **{"pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440},
    **{"mount_setattr": 442, "quotactl_fd": 443, "process_mrelease": 448},
    **{"set_mempolicy_home_node": 450, "fchmodat2": 452, "statmount": 457, "listmount": 458},
    **{"setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469},
}
_X86_64 = _RECENT | {
    **{"ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42},
    **{"accept": 43, "bind": 49, "listen": 50, "clone": 56, "semget": 64, "semop": 65},
    **{"semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "chmod": 90},
    **{"fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103},
    **{"setpgid": 109, "setsid": 112, "utime": 132, "personality": 135, "setpriority": 141},
    **{"sched_setparam": 142, "sched_setscheduler": 144, "vhangup": 153, "pivot_root": 155},
    **{"adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165},
    **{"umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170},
    **{"setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175},
    **{"delete_module": 176, "quotactl": 179, "setxattr": 188, "lsetxattr": 189},
    **{"fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199},
    **{"sched_setaffinity": 203, "lookup_dcookie": 212, "semtimedop": 220, "clock_settime": 227},
    **{"utimes": 235, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246, "add_key": 248},
    **{"request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256},
    **{"fchownat": 260, "futimesat": 261, "fchmodat": 268, "unshare": 272, "move_pages": 279},
    **{"utimensat": 280, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302},
    **{"name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308},
    **{"process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313},
    **{"sched_setattr": 314, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323},
}
_AARCH64 = _RECENT | {
    **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15},
    **{"fremovexattr": 16, "lookup_dcookie": 18, "ioctl": 29, "ioprio_set": 30, "umount2": 39},
    **{"mount": 40, "pivot_root": 41, "chroot": 51, "fchmod": 52, "fchmodat": 53},
    **{"fchownat": 54, "fchown": 55, "vhangup": 58, "quotactl": 60, "utimensat": 88},
    **{"acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105},
    **{"delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117},
    **{"sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122},
    **{"setpriority": 140, "reboot": 142, "setpgid": 154, "setsid": 157, "sethostname": 161},
    **{"setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "mq_open": 180},
    **{"mq_unlink": 181, "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189},
    **{"semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193, "shmget": 194},
    **{"shmctl": 195, "shmat": 196, "socket": 198, "bind": 200, "listen": 201, "accept": 202},
    **{"connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220},
    **{"swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239},
    **{"perf_event_open": 241, "prlimit64": 261, "fanotify_init": 262},
    **{"name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268},
    **{"process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273},
    **{"sched_setattr": 274, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294},
}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
# CLONE_NEW*: mounts, cgroups, names, IPC, users, processes, network; time has no bit in `clone`.
_NAMESPACES = 0x7E020000
# Typing into a terminal in the name of its user.
_TERMINAL_INPUT = (0x5412, 0x541C)

_CREATE_RULESET = 444
_ASK_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
# What can be said of a single file.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many kinds of access each version knows.
_KINDS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11
_SCOPES = 0b11

LANDLOCK_READ = _EXECUTE | _READ_FILE | _READ_DIR
LANDLOCK_DEVICE = _READ_FILE | _WRITE_FILE
# Since this version signals stay inside, so that no process outside can be ended.
LANDLOCK_WITH_SIGNALS = 6


@dataclass(frozen=True, slots=True)
class Architecture:
    """`audit` is the kernel's own name for it; numbers from `foreign` on are another one's."""

    audit: int
    numbers: Mapping[str, int]
    foreign: int | None = None


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(0xC000003E, _X86_64, foreign=0x40000000),
    "aarch64": Architecture(0xC00000B7, _AARCH64),
}


def is_known_machine() -> bool:
    """Whether this machine's system calls are known here."""
    return platform.machine() in ARCHITECTURES


@cache
def system_call_filter(*, has_namespaces: bool) -> bytes:
    """With namespaces of its own a program may also do what then touches only itself.

    Raises:
        KeyError: an architecture that is not known.
    """
    machine = ARCHITECTURES[platform.machine()]
    refused: tuple[str, ...] = (*NETWORK, *PROCESSES, *MOUNTS, *KERNEL)
    if not has_namespaces:
        refused = (*refused, *SHARED, *ATTRIBUTES, *GROUPS)
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, machine.audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine.foreign is not None:
        steps += [_step(_AT_LEAST, machine.foreign, 0, 1), _step(_RETURN, _KILL)]
    # C libraries then use `clone`, whose flags can be looked at.
    steps.extend(_refuse(machine.numbers["clone3"], errno.ENOSYS))
    for name in refused:
        if name in machine.numbers:
            steps.extend(_refuse(machine.numbers[name], errno.EPERM))
    steps.extend(_by_argument(machine))
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _by_argument(machine: Architecture) -> Iterator[bytes]:
    refuse = _step(_RETURN, _ERROR | errno.EPERM)
    allow = _step(_RETURN, _ALLOW)
    # clone: no new namespaces. Each block ends the filter for its own call.
    yield _step(_EQUAL, machine.numbers["clone"], 0, 4)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield _step(_ANY_BIT, _NAMESPACES, 0, 1)
    yield refuse
    yield allow
    # prlimit64: of oneself only.
    yield _step(_EQUAL, machine.numbers["prlimit64"], 0, 4)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield _step(_EQUAL, 0, 1, 0)
    yield refuse
    yield allow
    yield _step(_EQUAL, machine.numbers["ioctl"], 0, 3 + len(_TERMINAL_INPUT))
    yield _step(_LOAD, _SECOND_ARGUMENT)
    for place, request in enumerate(_TERMINAL_INPUT):
        yield _step(_EQUAL, request, len(_TERMINAL_INPUT) - place, 0)
    yield allow
    yield refuse


def _refuse(number: int, code: int) -> Iterator[bytes]:
    yield _step(_EQUAL, number, 0, 1)
    yield _step(_RETURN, _ERROR | code)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


@cache
def landlock_version() -> int:
    """What the kernel offers; 0 if nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def landlock_accesses(found: int) -> int:
    """All kinds of access to files that this version knows."""
    return (1 << _KINDS[min(found, 5)]) - 1


def landlock_attributes(found: int) -> bytes:
    """A rule set that refuses all it can: files, and from their versions on TCP and signals."""
    fields = [landlock_accesses(found)]
    if found >= 4:
        fields.append(_TCP)
    if found >= LANDLOCK_WITH_SIGNALS:
        fields.append(_SCOPES)
    return struct.pack(f"{len(fields)}Q", *fields)


def landlock_rule(path: str, access: int, found: int) -> tuple[str, int]:
    """The rule for what lies under a path, or for the one file it is."""
    wanted = access & landlock_accesses(found)
    return path, wanted if os.path.isdir(path) else wanted & _OF_FILES
