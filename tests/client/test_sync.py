"""The client for scripts: no event loop of one's own, and none in the way."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE

import pytest

from sk_agents.client import Answer, Event, Reply, SyncTeal, TealServerError
from tests.client.loopback import INTERACTION, STARTED, Loopback, refusal, serving
from tests.patience import seconds

HISTORY = {"id": "c", "interactions": [], "created_at": "now", "last_seq": 3}


async def test_script_asks_and_gets_a_reply() -> None:
    def script(url: str) -> Reply:
        with SyncTeal(url) as teal:
            return teal.chat("c").ask("hello")

    async with asyncio.timeout(seconds(20)), serving(Loopback()) as server:
        reply = await asyncio.to_thread(script, server.url)
    assert (reply.status, reply.text) == ("COMPLETED", "Grüß dich 🦆")


async def test_script_reads_a_stream_that_is_cut_and_resumed() -> None:
    def script(url: str) -> list[Event]:
        with SyncTeal(url) as teal:
            return list(teal.chat("c").say("hello"))

    server = Loopback(cuts=[len(STARTED[1]) + 3])
    async with asyncio.timeout(seconds(20)), serving(server):
        events = await asyncio.to_thread(script, server.url)
    assert [event.seq for event in events if event.seq is not None] == [4, 8, 9]
    assert isinstance(events[-2], Answer)
    assert len(server.seen) == 2


async def test_script_that_leaves_a_stream_closes_its_connection() -> None:
    left = threading.Event()

    def script(url: str) -> None:
        with SyncTeal(url) as teal:
            events = teal.chat("c").say("hello")
            assert next(events).seq == 4
            events.close()
            assert left.wait(seconds(10))

    server = Loopback(log=[STARTED], hold=asyncio.Event())
    async with asyncio.timeout(seconds(20)), serving(server):
        running = asyncio.create_task(asyncio.to_thread(script, server.url))
        await server.is_left.wait()
        left.set()
        await running


async def test_script_reads_lists_records_and_what_has_no_method_here() -> None:
    def script(url: str) -> None:
        with SyncTeal(url) as teal:
            assert [chat.id for chat in teal.chats()] == ["c"]
            assert list(teal.approvals()) == []
            assert list(teal.agents()) == []
            assert teal.create(title="Ducks").id == "c"
            chat = teal.chat("c")
            assert chat.history().last_seq == 3
            assert chat.cancel(INTERACTION)
            assert [event.seq for event in chat.watch(INTERACTION, after=8)] == [9]
            assert teal.run(chat.chat.export()) == {"format": "teal-chat"}
            assert list(teal.each(teal.client.grants())) == []

    server = Loopback(
        documents={
            ("GET", "/chats"): [{"chats": [{"id": "c"}], "next": None}],
            ("POST", "/chats"): [{"id": "c"}],
            ("GET", "/approvals"): [{"approvals": [], "next": None}],
            ("GET", "/grants"): [{"grants": [], "next": None}],
            ("GET", "/agents"): [{"agents": []}],
            ("GET", "/chats/c"): [HISTORY],
            ("GET", "/chats/c/export"): [{"format": "teal-chat"}],
            ("POST", f"/chats/c/interactions/{INTERACTION}/cancel"): [{}],
        }
    )
    async with asyncio.timeout(seconds(20)), serving(server):
        await asyncio.to_thread(script, server.url)


async def test_errors_reach_the_script() -> None:
    def script(url: str) -> None:
        with SyncTeal(url) as teal, pytest.raises(TealServerError, match="thread_busy"):
            list(teal.chat("c").say("hello"))

    async with asyncio.timeout(seconds(20)), serving(Loopback()) as server:
        server.refusals = [refusal(409, "thread_busy")]
        await asyncio.to_thread(script, server.url)


async def test_no_thread_is_left_behind() -> None:
    def script(url: str) -> None:
        with SyncTeal(url) as teal:
            next(teal.chat("c").say("hello"))

    async with asyncio.timeout(seconds(20)), serving(Loopback()) as server:
        await asyncio.to_thread(script, server.url)
    assert "teal-client" not in {thread.name for thread in threading.enumerate()}


async def test_stream_that_outlives_its_client_is_over() -> None:
    def script(url: str) -> list[Event]:
        with SyncTeal(url) as teal:
            events = teal.chat("c").say("hello")
            first = next(events)
        events.close()
        return [first]

    server = Loopback(log=[STARTED], hold=asyncio.Event())
    async with asyncio.timeout(seconds(20)), serving(server):
        assert len(await asyncio.to_thread(script, server.url)) == 1
        await server.is_left.wait()


INTERRUPTED = """
import os, signal, sys
from sk_agents.client import SyncTeal

asked = 0

def token():
    # Asked for the second time when the silent stream is opened again: the script waits then.
    global asked
    asked += 1
    if asked == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return "t"

with SyncTeal(sys.argv[1], token=token, silence=0.05) as teal:
    try:
        for event in teal.chat("c").say("hello"):
            print(event.seq, flush=True)
    except KeyboardInterrupt:
        print("left", flush=True)
"""


async def test_interrupted_script_leaves_the_stream_it_waits_for() -> None:
    log: list[tuple[int | None, bytes]] = [STARTED, (None, b": and nothing more\n\n")]
    server = Loopback(log=log, hold=asyncio.Event())
    async with asyncio.timeout(seconds(30)), serving(server):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", INTERRUPTED, server.url, stdout=PIPE, stderr=PIPE
        )
        try:
            out, errors = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
    assert (out, errors, child.returncode) == (b"4\nleft\n", b"", 0)


def test_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="with SyncTeal"):
        next(SyncTeal("http://127.0.0.1:1").chats())
