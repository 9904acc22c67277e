"""Wake-ups and messages between processes of one host; here each is a member of its own."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from sk_agents.signals import host
from sk_agents.signals.host import HostPeers, HostSignals
from tests.patience import seconds

BOUND = seconds(10)


class Inbox:
    def __init__(self, peers: HostPeers) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._changed = asyncio.Event()
        peers.receive(self._take)

    def _take(self, sender: str, message: bytes) -> None:
        self.messages.append((sender, message))
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def members(folder: Path, count: int) -> AsyncIterator[list[HostPeers]]:
    async with AsyncExitStack() as stack:
        each = [HostPeers(folder) for _ in range(count)]
        for one in each:
            await stack.enter_async_context(one)
        for one in each:
            await connected(one, count - 1)
        yield each


async def connected(peers: HostPeers, count: int) -> None:
    async with asyncio.timeout(BOUND):
        for _ in iter(lambda: peers.count == count, True):
            await asyncio.sleep(0)


async def test_message_reaches_the_one_it_is_for_or_all_others(tmp_path: Path) -> None:
    async with members(tmp_path / "peers", 3) as (a, b, c):
        inboxes = {peers.address: Inbox(peers) for peers in (a, b, c)}
        a.send(b"to b", to=b.address)
        a.send(b"to all")
        await inboxes[b.address].until(lambda: len(inboxes[b.address].messages) == 2)
        await inboxes[c.address].until(lambda: bool(inboxes[c.address].messages))
        assert inboxes[b.address].messages == [(a.address, b"to b"), (a.address, b"to all")]
        assert inboxes[c.address].messages == [(a.address, b"to all")]
        assert not inboxes[a.address].messages


def test_loop_that_servers_run_on_carries_messages_too(tmp_path: Path) -> None:
    async def talk() -> None:
        async with members(tmp_path / "peers", 2) as (a, b):
            inbox = Inbox(b)
            a.send(b"hello")
            await inbox.until(lambda: inbox.messages == [(a.address, b"hello")])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


async def test_wake_ups_of_one_moment_reach_the_others_together_and_not_the_sender(
    tmp_path: Path,
) -> None:
    async with members(tmp_path / "peers", 2) as (a, b):
        here, there = HostSignals(a), HostSignals(b)
        heard: list[str] = []
        echoed: list[str] = []
        there.listen(heard.append)
        here.listen(echoed.append)
        async with asyncio.timeout(BOUND), there.subscribe("t1") as changes:
            here.notify("t1")
            here.notify("t2")
            here.notify("t1")
            here.notify("mine", local=True)
            assert await changes.wait(BOUND)
        assert sorted(heard) == ["t1", "t2"]
        assert not echoed


async def test_member_that_has_left_is_forgotten_and_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    async with members(folder, 1) as (a,):
        async with HostPeers(folder) as b:
            await connected(a, 1)
            assert {entry.name for entry in folder.iterdir()} == {
                f"{a.address}.sock",
                f"{b.address}.sock",
            }
        await connected(a, 0)
        a.send(b"to no one")
    assert not list(folder.iterdir())


async def test_file_of_a_process_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "1-dead.sock"))
    async with members(folder, 2):
        assert not (folder / "1-dead.sock").exists()


async def test_folder_with_a_long_name_serves_as_well(tmp_path: Path) -> None:
    async with members(tmp_path / ("x" * 120) / "peers", 2) as (a, b):
        inbox = Inbox(b)
        a.send(b"hello")
        await inbox.until(lambda: inbox.messages == [(a.address, b"hello")])


async def test_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    async with members(tmp_path / "peers", 1):
        assert (tmp_path / "peers").stat().st_mode & 0o777 == 0o700


async def test_place_that_cannot_be_used_leaves_a_process_without_peers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "peers").write_text("a file")
    async with HostPeers(tmp_path / "peers") as peers:
        assert peers.count == 0
        peers.send(b"to no one")
        HostSignals(peers).notify("t")
    assert "no wake-ups from other processes" in caplog.text


async def test_member_that_reads_nothing_loses_messages_and_holds_up_no_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "peers"
    async with members(folder, 2) as (a, b):
        inbox = Inbox(b)
        with socket.socket(socket.AF_UNIX) as stuck:
            await asyncio.to_thread(stuck.connect, str(folder / f"{a.address}.sock"))
            hello = b"hstuck"
            stuck.sendall(len(hello).to_bytes(4, "big") + hello)
            await connected(a, 2)
            for _ in range(100):
                a.send(b"x" * 100_000, to="stuck")
                await asyncio.sleep(0)
            a.send(b"last")
            await inbox.until(lambda: inbox.messages == [(a.address, b"last")])
            stuck.settimeout(0.5)
            got = 0
            with suppress(TimeoutError):
                while data := await asyncio.to_thread(stuck.recv, 1 << 20):
                    got += len(data)
            assert host.MOST_UNSENT < got < 100 * 100_000
        await connected(a, 1)


async def test_what_is_no_message_ends_its_connection_alone(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    async with members(folder, 2) as (a, b):
        inbox = Inbox(b)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(BOUND)
            await asyncio.to_thread(stranger.connect, str(folder / f"{a.address}.sock"))
            stranger.sendall(os.urandom(4).replace(b"\0", b"\1") + b"\xff" * 100)
            while await asyncio.to_thread(stranger.recv, 100):
                pass
        a.send(b"hello")
        await inbox.until(lambda: bool(inbox.messages))
