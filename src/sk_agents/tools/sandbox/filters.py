"""The filter that the kernel runs before each system call of a sandboxed program.

What is listed is refused; the rest is left to the other walls. It is built here as bytes, and
loaded by the launcher.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from functools import cache

from sk_agents.tools.sandbox.syscalls import (
    ARCHITECTURES,
    ATTRIBUTES,
    GROUPS,
    KERNEL,
    MOUNTS,
    NETWORK,
    PROCESSES,
    SHARED,
    Architecture,
)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
# CLONE_NEW*: mounts, cgroups, names, IPC, users, processes, network; time has no bit in `clone`.
_NAMESPACES = 0x7E020000
# Typing into a terminal in somebody else's name.
_TERMINAL_INPUT = (0x5412, 0x541C)


def is_known() -> bool:
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
        *_foreign(machine),
        # C libraries then use `clone`, whose flags can be looked at.
        *_refuse(machine.numbers["clone3"], errno.ENOSYS),
    ]
    for name in refused:
        if name in machine.numbers:
            steps.extend(_refuse(machine.numbers[name], errno.EPERM))
    steps.extend(_by_argument(machine))
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _foreign(machine: Architecture) -> Iterator[bytes]:
    if machine.foreign is not None:
        yield _step(_AT_LEAST, machine.foreign, 0, 1)
        yield _step(_RETURN, _KILL)


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
