"""Readers of a large chat who take nothing: what they hold is bounded in bytes, and let go."""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sk_agents.engine.events import Event
from sk_agents.http.connections import ConnectionLimits
from tests.chats.long_chat import fill, turns
from tests.chats.serving import TIMEOUT, Served, serving

READERS = 20
# A small form of `tests/bench/stuck_readers.py`.
ANSWER = 64 * 1024
ANSWERS = 64
KB_EACH = 400
PATH = "/chats/c/events?after=0"


def long_log() -> list[Event]:
    return turns(ANSWERS, padding=ANSWER)


def deaf(served: Served) -> socket.socket:
    """A client that asks and reads nothing."""
    host, port = served.url.removeprefix("http://").split(":")
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect((host, int(port)))
    opened.send(f"GET {PATH} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return opened


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110  # the server sets no event
            await asyncio.sleep(0.01)


async def test_what_stuck_readers_hold_does_not_grow_with_the_chat(tmp_path: Path) -> None:
    await fill(tmp_path, long_log(), at_once=3)
    limits = ConnectionLimits(write_seconds=TIMEOUT)
    async with serving(tmp_path, limits=limits) as served:
        open_streams = served.app.state.limits.slots.by_user
        with ExitStack() as stack:
            # The first one loads the chat, which all of them share.
            stack.callback(deaf(served).close)
            await until(lambda: open_streams.get("dummyuser") == 1)
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            for _ in range(READERS):
                stack.callback(deaf(served).close)
            await until(lambda: open_streams.get("dummyuser") == READERS + 1)
            held = await _settled()
    assert held / READERS < KB_EACH * 1024


async def _settled() -> int:
    """What is held once nothing more is read, as far as a busy machine can tell."""
    last = now = -1
    for _ in range(25):
        await asyncio.sleep(0.2)
        gc.collect()
        last, now = now, tracemalloc.get_traced_memory()[0]
        if abs(now - last) < 64 * 1024:
            break
    return now


async def test_stuck_readers_are_let_go_and_their_user_may_read_again(tmp_path: Path) -> None:
    await fill(tmp_path, long_log(), at_once=3)
    limits = ConnectionLimits(write_seconds=0.3)
    async with serving(tmp_path, limits=limits) as served:
        open_streams = served.app.state.limits.slots.by_user
        with ExitStack() as stack:
            for _ in range(READERS):
                stack.callback(deaf(served).close)
            await until(lambda: open_streams.get("dummyuser", 0) > 0)
            await until(lambda: not open_streams)
            seen = 0
            async with served.stream("GET", PATH) as frames:
                async for frame in frames:
                    seen += frame.name == "interaction_complete"
                    if seen == ANSWERS:
                        break
    assert seen == ANSWERS
