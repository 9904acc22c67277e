"""Numbers of the system calls that sandboxed programs have no use for, by architecture.

A number that an architecture does not have is left out there. From 424 on all share their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
