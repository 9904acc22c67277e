"""The program that builds the walls around another one and then becomes it.

It is started as a script by a bare interpreter, so it knows nothing of this package, and it imports
little: each module would be read again for every program that is run. Its one argument is a plan,
marshalled, in hexadecimal (see `plans.py`). It decides nothing: what the plan asks for is done, and
what cannot be done ends it with `FAILED` before anything foreign has run.

    watcher          stays outside: reaps, and on SIGTERM or its parent's death kills all the rest
    └── first        process 1 of the new namespaces, when there are any; its end is everyone's end
        └── program  gives up its rights one after the other, then executes the command
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` without its enums
import ctypes
import marshal
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FAILED = 125
WORDS = "sandbox: "

NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x00020000, 0x10000000, 0x20000000
SET_PDEATHSIG, SET_SECCOMP, DROP_BOUND, SET_SECUREBITS = 1, 22, 24, 28
SET_SUBREAPER, NO_NEW_PRIVS, AMBIENT = 36, 38, 47
AMBIENT_RAISE = 2
# Neither being root nor ceasing to be changes capabilities, for good: `access` knows them too.
IDS_GIVE_NO_RIGHTS = 0b1111
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
CWD, RECURSIVE, CLONE_TREE, CLOSE_ON_EXEC, FROM_EMPTY_PATH = -100, 0x8000, 1, 0o2000000, 4
PRIVATE = (1 << 18) | 0x4000
# The server goes first.
NICENESS = 5
CAPABILITIES_V3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    plan = marshal.loads(bytes.fromhex(sys.argv[1]))
    try:
        if plan["inside"]:
            separate(plan)
            become(plan)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        done("prctl", libc.prctl(SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0))
        if os.getppid() != plan["parent"]:
            os._exit(FAILED)
        done("prctl", libc.prctl(SET_SUBREAPER, 1, 0, 0, 0))
        if plan["wrapper"]:
            inner = marshal.dumps({**plan, "inside": True, "wrapper": None}).hex()
            command = [*plan["wrapper"], inner]
            watch(lambda: os.execv(command[0], command))
        separate(plan)
        watch(lambda: first(plan) if plan["unshare"] & NEW_PIDS else become(plan))
    except (OSError, ValueError) as error:
        say(str(error))


def first(plan: dict[str, Any]) -> None:
    done("prctl", libc.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    watch(lambda: become(plan), group=False)


def watch(run: Callable[[], object], *, group: bool = True) -> None:
    """Run it in a child until that ends or SIGTERM comes; then nothing of it is left."""
    child = os.fork()
    if child == 0:
        try:
            if group:
                os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
            run()
        except (OSError, ValueError) as error:
            say(str(error))
        finally:
            os._exit(FAILED)
    code: int | None = None
    while code is None:
        if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGTERM:
            code = 128 + signal.SIGTERM
        code = _reaped(child, code)
    if not group:
        # This is process 1: the kernel kills all others with it.
        os._exit(code)
    # The child may not have made its group yet, or may be gone.
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            continue
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        os._exit(code)


def _reaped(child: int, code: int | None) -> int | None:
    """Collect all that have ended; the exit code once the child is among them."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return code
            if pid == child and code is None:
                ended = os.waitstatus_to_exitcode(status)
                code = ended if ended >= 0 else 128 - ended
    except ChildProcessError:
        return FAILED if code is None else code


def separate(plan: dict[str, Any]) -> None:
    """Leave the namespaces the plan names; in new ones all is read-only that it does not list."""
    flags = plan["unshare"]
    if not flags:
        return
    if flags & NEW_USER:
        _into_user_namespace(flags)
    else:
        done("unshare", libc.unshare(flags))
    if not flags & NEW_MOUNTS:
        return
    done("mount", libc.mount(None, b"/", None, PRIVATE, None))
    clone = CLONE_TREE | CLOSE_ON_EXEC | RECURSIVE
    writable = [os.fsencode(path) for path in plan["writable"]]
    trees = [done("open_tree", libc.syscall(OPEN_TREE, CWD, path, clone)) for path in writable]
    read_only = struct.pack("QQQQ", 1, 0, 0, 0)
    done("mount_setattr", libc.syscall(MOUNT_SETATTR, CWD, b"/", RECURSIVE, read_only, 32))
    for tree, path in zip(trees, writable, strict=True):
        done("move_mount", libc.syscall(MOVE_MOUNT, tree, b"", CWD, path, FROM_EMPTY_PATH))
        os.close(tree)


def _into_user_namespace(flags: int) -> None:
    """A helper that stays outside writes the id maps: from inside only the own id may be mapped."""
    own, uid, gid = os.getpid(), os.geteuid(), os.getegid()
    wait, go = os.pipe()
    helper = os.fork()
    if helper == 0:
        code = FAILED
        try:
            os.close(go)
            os.read(wait, 1)
            if uid != 0:
                _write(f"/proc/{own}/setgroups", "deny")
            whole = "0 0 4294967295"
            _write(f"/proc/{own}/uid_map", whole if uid == 0 else f"{uid} {uid} 1")
            _write(f"/proc/{own}/gid_map", whole if uid == 0 else f"{gid} {gid} 1")
            code = 0
        finally:
            os._exit(code)
    os.close(wait)
    failed = libc.unshare(flags)
    number = ctypes.get_errno()
    os.close(go)
    _, status = os.waitpid(helper, 0)
    if failed:
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if status:
        raise OSError("the user namespace's ids cannot be mapped")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def become(plan: dict[str, Any]) -> None:
    """Give up every right the plan does not name, then execute its command."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.closerange(3, 1 << 16)
    os.umask(0o022)
    tasks = _tasks_of(plan["user"]) if plan["shared_count"] else 0
    for name, (soft, hard) in plan["limits"].items():
        more = tasks if name == "NPROC" else 0
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft + more, hard + more))
    done("prctl", libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    _drop_rights(plan["user"], plan["capabilities"])
    # A change of rights clears it, so it is set again.
    done("prctl", libc.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if plan["landlock"] is not None:
        _confine(bytes.fromhex(plan["landlock"]), plan["rules"])
    program = bytes.fromhex(plan["seccomp"])
    kept = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    os.chdir(plan["folder"])
    os.nice(NICENESS)
    done("seccomp", libc.prctl(SET_SECCOMP, 2, header, 0, 0))
    os.execve(plan["command"][0], plan["command"], plan["environment"])


def _drop_rights(user: int | None, capabilities: list[int]) -> None:
    """Only the named capabilities stay, with which a root that becomes another user can still work
    on its files: processes of root itself cannot be counted. Which files those are, is for the
    other walls to say."""
    kept = 0
    for number in capabilities:
        kept |= 1 << number
    if user is not None:
        done("prctl", libc.prctl(SET_SECUREBITS, IDS_GIVE_NO_RIGHTS, 0, 0, 0))
    for number in range(64):
        if not kept >> number & 1:
            # Past the last capability, or without the right to drop any, this fails.
            libc.prctl(DROP_BOUND, number, 0, 0, 0)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = struct.pack("Ii", CAPABILITIES_V3, 0)
    done("capset", libc.capset(header, struct.pack("IIIIII", kept, kept, kept, 0, 0, 0)))
    for number in capabilities:
        done("prctl", libc.prctl(AMBIENT, AMBIENT_RAISE, number, 0, 0))


def _confine(attributes: bytes, rules: list[tuple[str, int]]) -> None:
    ruleset = done("landlock", libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0))
    for path, access in rules:
        try:
            place = os.open(path, os.O_PATH)
        except FileNotFoundError:
            continue
        rule = struct.pack("=Qi", access, place)
        done("landlock", libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0))
        os.close(place)
    done("landlock", libc.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _tasks_of(user: int | None) -> int:
    """How many threads the user has now: without namespaces they count towards the limit."""
    found, wanted = 0, os.geteuid() if user is None else user
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}").st_uid == wanted:
                found += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return found


def done(what: str, result: int) -> int:
    """The result of a system call.

    Raises:
        OSError: it failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def say(reason: str) -> None:
    os.write(2, f"{WORDS}{reason}\n".encode())
    os._exit(FAILED)


if __name__ == "__main__":
    main()
