"""Programs that try to get out, or to take more than their share, behind every kind of wall."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sk_agents.tools.sandbox.plans import ProgramLimits, Wall
from sk_agents.tools.sandbox.sandbox import SourceCode, run_program
from tests.missing import lacks
from tests.patience import seconds
from tests.requirements import requirement
from tests.security.escapes import attempt
from tests.security.sandboxes import WALLS, bwrap_path, processes_in, ran, reason_against


@pytest.fixture(autouse=True)
def on_linux() -> None:
    if sys.platform != "linux":
        lacks("linux", "sandboxes are for Linux")


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> Wall:
    chosen: Wall = request.param
    reason = reason_against(chosen)
    if reason is not None:
        lacks("sandbox", f"NOT SHOWN HERE: {chosen}: {reason}")
    return chosen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made.resolve()


@pytest.fixture
async def listener() -> AsyncIterator[int]:
    """A port of this machine that would answer."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def held(wall: Wall, source: str, folder: Path) -> None:
    done = await ran(wall, attempt(source), folder)
    assert done.text.splitlines() == ["HELD"], done.text
    assert done.ended.code == 0
    assert processes_in(folder) == []


async def test_program_works_in_its_folder_and_says_how_it_ended(wall: Wall, folder: Path) -> None:
    (folder / "given.txt").write_text("in")
    done = await ran(
        wall,
        "import sys, json\nopen('made.txt','w').write(open('given.txt').read())\n"
        "print('out'); print('err', file=sys.stderr); sys.exit(7)",
        folder,
    )
    assert (done.text, done.ended.code) == ("out\nerr\n", 7)
    assert (folder / "made.txt").read_text() == "in"
    assert processes_in(folder) == []


async def test_shell_has_pipes_children_and_temporary_files(wall: Wall, folder: Path) -> None:
    script = 't=$(mktemp); echo b > "$t"; echo a >> "$t"; sort "$t" | tr a-z A-Z; mkdir d; ls'
    done = await ran(wall, script, folder, language="shell")
    assert (done.text, done.ended.code) == ("A\nB\nd\n", 0)


async def test_files_of_the_server_in_the_folder_can_be_worked_on(wall: Wall, folder: Path) -> None:
    (folder / "given.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "given.sh").chmod(0o600)
    # Behind Landlock alone modes and dates cannot be changed at all.
    changes = "true" if wall == "landlock" else "chmod +x given.sh && touch -d 2001-01-01 given.sh"
    script = f"{changes} && test -w given.sh && sh given.sh"
    done = await ran(wall, script, folder, language="shell")
    assert (done.text, done.ended.code) == ("ran\n", 0)


async def test_same_programs_get_out_where_there_are_no_walls(folder: Path) -> None:
    """Otherwise the tests below would show nothing."""
    (folder.parent / "victim.txt").write_text("kept")
    for source in (
        "attempt(lambda: open('../victim.txt', 'a'))",
        f"attempt(lambda: open('/proc/{os.getpid()}/environ', 'rb').read(1))",
        "import socket\nattempt(lambda: socket.socket().close())",
        "attempt(lambda: bytearray(1 << 30))",
        f"attempt(lambda: os.kill({os.getpid()}, 0))",
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", attempt(source)), cwd=folder, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert output == b"OUT\n", source


@requirement("S004-10.1-sandbox")
async def test_nothing_outside_can_be_written(wall: Wall, folder: Path) -> None:
    victim = folder.parent / "victim.txt"
    victim.write_text("kept")
    before = victim.stat()
    await held(
        wall,
        f"""
        victim, beside = {str(victim)!r}, {str(folder.parent / "new.txt")!r}
        attempt(
            lambda: open(victim, "a"),
            lambda: open(victim, "r+"),
            lambda: os.truncate(victim, 0),
            lambda: os.unlink(victim),
            lambda: os.rename(victim, "taken"),
            lambda: os.link(victim, "linked"),
            lambda: os.chmod(victim, 0o777),
            lambda: os.chown(victim, 1, 1),
            lambda: os.utime(victim, (0, 0)),
            lambda: os.setxattr(victim, "user.x", b"1"),
            lambda: open(beside, "w"),
            lambda: os.mkdir(beside),
            lambda: os.symlink("/", beside),
            lambda: open("/etc/teal", "w"),
            lambda: open("/usr/teal", "w"),
            lambda: open("/teal", "w"),
            lambda: open("/tmp/teal", "w"),
            lambda: open("/dev/teal", "w"),
            lambda: open("/dev/shm/teal", "w"),
        )
        """,
        folder,
    )
    assert victim.read_text() == "kept"
    after = victim.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
    )
    assert sorted(path.name for path in folder.parent.iterdir()) == ["victim.txt", "work"]


@requirement("S004-10.1-sandbox")
async def test_files_of_the_server_cannot_be_read(wall: Wall, folder: Path) -> None:
    for name in ("teal.sqlite", ".env"):
        (folder.parent / name).write_text("secret")
    (folder / "way_out").symlink_to(folder.parent / "teal.sqlite")
    (folder / "up").symlink_to("..")
    await held(
        wall,
        f"""
        base = {str(folder.parent)!r}
        attempt(
            lambda: open(base + "/teal.sqlite"),
            lambda: open(base + "/.env"),
            lambda: open("../.env"),
            lambda: open("way_out"),
            lambda: open("up/.env"),
            lambda: os.listdir(base).index(".env"),
            lambda: os.listdir("/var/lib"),
            lambda: open("/etc/shadow"),
            lambda: open({str(Path(__file__))!r}),
        )
        """,
        folder,
    )


async def test_server_cannot_be_looked_into_or_signalled(
    wall: Wall, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAL_TEST_SECRET", "canary-5150")
    pid = os.getpid()
    await held(
        wall,
        f"""
        import ctypes, signal
        libc = ctypes.CDLL(None, use_errno=True)
        def call(function, *arguments):
            if function(*arguments) == -1:
                raise OSError(ctypes.get_errno(), "refused")
        class Vector(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
        here = ctypes.create_string_buffer(8)
        mine = Vector(ctypes.addressof(here), 8)
        theirs = Vector(ctypes.addressof(here), 8)
        def canary():
            if not any("canary" in value for value in os.environ.values()):
                raise OSError("not in the environment")
        attempt(
            canary,
            lambda: open("/proc/{pid}/environ", "rb").read(1),
            lambda: open("/proc/{pid}/mem", "rb"),
            lambda: open("/proc/{pid}/maps").read(1),
            lambda: os.listdir("/proc/{pid}/fd"),
            lambda: os.listdir("/proc/{pid}/root"),
            lambda: call(libc.ptrace, 16, {pid}, 0, 0),
            lambda: call(libc.ptrace, 0x4206, {pid}, 0, 0),
            lambda: call(libc.process_vm_readv, {pid}, ctypes.byref(mine), 1, ctypes.byref(theirs),
                         1, 0),
            lambda: os.kill({pid}, 0),
            lambda: os.kill({pid}, signal.SIGCONT),
            lambda: os.pidfd_open({pid}),
            lambda: os.setpriority(os.PRIO_PROCESS, {pid}, 19),
            lambda: __import__("resource").prlimit({pid}, 7, (1, 1)),
        )
        """,
        folder,
    )


async def test_there_is_no_network(wall: Wall, folder: Path, listener: int, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(folder / "service"))
        local.listen()
        await held(
            wall,
            f"""
            import socket
            def connect(family, address):
                with socket.socket(family) as made:
                    made.settimeout(2)
                    made.connect(address)
            attempt(
                lambda: connect(socket.AF_INET, ("127.0.0.1", {listener})),
                lambda: connect(socket.AF_INET, ("169.254.169.254", 80)),
                lambda: connect(socket.AF_INET6, ("::1", {listener})),
                lambda: connect(socket.AF_UNIX, "service"),
                lambda: connect(socket.AF_UNIX, "\\0abstract"),
                lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
                lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
                lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
                lambda: socket.create_server(("127.0.0.1", 0)),
            )
            """,
            folder,
        )


async def test_rights_cannot_be_won_back(wall: Wall, folder: Path) -> None:
    await held(
        wall,
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        def call(function, *arguments):
            if function(*arguments) == -1:
                raise OSError(ctypes.get_errno(), "refused")
        attempt(
            lambda: os.setuid(0),
            lambda: call(libc.unshare, 0x10000000),
            lambda: call(libc.unshare, 0x00020000),
            lambda: call(libc.mount, b"none", b"/", b"tmpfs", 0, None),
            lambda: os.chroot("."),
            lambda: call(libc.syscall, 425, 8, ctypes.create_string_buffer(120)),
            lambda: call(libc.syscall, 321, 0, 0, 0),
            lambda: call(libc.syscall, 435, ctypes.create_string_buffer(88), 88),
            lambda: os.mknod("device", 0o020666, os.makedev(1, 1)),
            lambda: open("/dev/mem", "rb"),
            lambda: open("/dev/sda", "rb"),
        )
        """,
        folder,
    )


async def test_eight_gigabytes_are_not_to_be_had(wall: Wall, folder: Path) -> None:
    source = """
    attempt(lambda: bytearray(8 << 30), lambda: [bytearray(64 << 20) for _ in range(128)])
    """
    await held(wall, source, folder)


async def test_gigabyte_of_output_is_cut_off(wall: Wall, folder: Path) -> None:
    source = "import os\nwhile True: os.write(1, b'x' * 65536)"
    done = await ran(wall, source, folder, ProgramLimits(seconds=30, output_kb=64))
    assert (done.ended.stopped, len(done.text)) == ("output", 64 * 1024)
    assert processes_in(folder) == []


async def test_large_file_cannot_be_written(wall: Wall, folder: Path) -> None:
    source = """
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def fill():
        with open("big", "wb") as file:
            for _ in range(1024):
                file.write(b"x" * (1 << 20))
    attempt(fill)
    """
    await held(wall, source, folder)
    assert (folder / "big").stat().st_size <= 64 << 20


async def test_program_that_ignores_sigterm_and_sleeps_is_killed(wall: Wall, folder: Path) -> None:
    source = (
        "import signal, time\n"
        "for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "print('asleep', flush=True)\ntime.sleep(600)"
    )
    done = await ran(wall, source, folder, ProgramLimits(seconds=1))
    assert (done.text, done.ended.stopped) == ("asleep\n", "time")
    assert processes_in(folder) == []


async def test_spinning_program_is_ended_by_its_cpu_limit(wall: Wall, folder: Path) -> None:
    done = await ran(wall, "while True: pass", folder, ProgramLimits(seconds=30, cpu_seconds=1))
    assert done.ended.stopped is None
    assert done.ended.code == 128 + 24
    assert processes_in(folder) == []


async def test_children_left_behind_end_with_the_program(wall: Wall, folder: Path) -> None:
    source = (
        "import os, subprocess, sys, time\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(sleeper)\n"
        "try:\n    subprocess.Popen(sleeper, start_new_session=True)\n"
        "except OSError:\n    pass\n"
        "if os.fork() == 0:\n"
        "    try:\n        os.setsid()\n    except OSError:\n        pass\n"
        "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
        "print('gone')"
    )
    done = await ran(wall, source, folder)
    assert (done.text, done.ended.code) == ("gone\n", 0)
    assert processes_in(folder) == []


async def test_closing_the_stream_kills_everything(wall: Wall, folder: Path) -> None:
    source = "import os, time\nos.fork(); os.fork()\nprint('up', flush=True)\ntime.sleep(600)"
    async with asyncio.timeout(seconds(30)):
        pieces = run_program(
            SourceCode("python", source), folder, ProgramLimits(), wall=wall, bwrap=bwrap_path()
        )
        async with aclosing(pieces):
            assert b"up" in str(await anext(pieces)).encode()
            assert processes_in(folder) != []
    assert processes_in(folder) == []


SERVER = """
import asyncio, sys
from pathlib import Path
from sk_agents.tools.sandbox.plans import ProgramLimits
from sk_agents.tools.sandbox.sandbox import SourceCode, run_program

async def main():
    wall, bwrap, folder = sys.argv[1:]
    sleep = "import os, time\\nos.fork()\\nprint('up', flush=True)\\ntime.sleep(600)"
    source = SourceCode("python", sleep)
    limits = ProgramLimits(seconds=500)
    async for _ in run_program(source, Path(folder), limits, wall=wall, bwrap=bwrap):
        print("up", flush=True)

asyncio.run(main())
"""


async def test_killed_server_takes_its_programs_with_it(wall: Wall, folder: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, wall, bwrap_path(), str(folder)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder.parent)},
    )
    assert server.stdout is not None
    async with asyncio.timeout(seconds(30)):
        assert await server.stdout.readline() == b"up\n"
        assert processes_in(folder) != []
        server.kill()
        await server.communicate()
        while processes_in(folder):  # noqa: ASYNC110  # other processes set no event
            await asyncio.sleep(0.01)


BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"


def shares_its_count(wall: Wall) -> bool:
    """Without namespaces, all processes of a user are counted together."""
    return wall == "landlock" and os.geteuid() != 0


async def test_fork_bomb_is_held_and_its_neighbours_work_on(wall: Wall, tmp_path: Path) -> None:
    folders = [(tmp_path / f"work{number}").resolve() for number in range(11)]
    for made in folders:
        made.mkdir()
    neighbour = "import subprocess, sys\nprint(sum(range(100)), flush=True)\n" + (
        "subprocess.run([sys.executable, '-c', 'print(1)'], check=True)"
        if not shares_its_count(wall)
        else ""
    )
    bomb = asyncio.create_task(
        ran(wall, BOMB, folders[0], ProgramLimits(seconds=3, cpu_seconds=60, processes=20))
    )
    others = await asyncio.gather(
        *(ran(wall, neighbour, made, ProgramLimits(seconds=50)) for made in folders[1:])
    )
    expected = "4950\n" if shares_its_count(wall) else "4950\n1\n"
    assert {other.text for other in others} == {expected}
    assert {other.ended.code for other in others} == {0}
    assert (await bomb).ended.stopped == "time"
    assert [processes_in(made) for made in folders] == [[]] * 11


async def test_number_of_processes_is_limited(wall: Wall, folder: Path) -> None:
    source = (
        "import os, time\nmade = 0\n"
        "while made < 500:\n"
        "    try:\n        child = os.fork()\n"
        "    except OSError:\n        break\n"
        "    if child == 0:\n        time.sleep(600)\n"
        "    made += 1\n"
        "print(made)"
    )
    done = await ran(wall, source, folder, ProgramLimits(seconds=20, processes=20))
    assert 5 <= int(done.text) <= (200 if shares_its_count(wall) else 25), done.text
    assert processes_in(folder) == []
