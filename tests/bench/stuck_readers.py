"""A hundred readers of a large chat who take nothing: what they hold, and when they are gone."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from tests.bench.chats import Server, our_server
from tests.bench.model_client import model_process
from tests.bench.readers import answered, open_reader
from tests.bench.report import Ratio, Report
from tests.chats.long_chat import fill, turns

READERS = 100
ANSWER = 32 * 1024
CHAT_BYTES = 8 * 1024 * 1024
PATH = "/chats/c/events?after=0"
# The server waits for 30 s.
GONE_SECONDS = 35.0
ESTABLISHED = "01"


def connections(port: int) -> int:
    """How many are open at this port of the server's side."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == ESTABLISHED for row in rows)


async def read_once(server: Server, number: int) -> None:
    """A good reader of the chat: what the server keeps of it in memory is there from now on."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    for _ in range(number):
        await reader.readuntil(b"event: interaction_complete")
    writer.close()
    await writer.wait_closed()


def measure(readers: int = READERS, chat_bytes: int = CHAT_BYTES, turns_each: int = 4) -> Report:
    number = chat_bytes // ANSWER
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as temporary:
        folder = Path(temporary)
        asyncio.run(fill(folder, turns(number, padding=ANSWER), at_once=3))
        with model_process() as url, our_server(f"{url}/long", folder) as server:
            uvloop.run(read_once(server, number))
            uvloop.run(answered(server, "warm", 0))
            return _measured(server, readers, turns_each)


def _measured(server: Server, readers: int, turns_each: int) -> Report:
    host, _, port = server.address.removeprefix("http://").partition(":")
    before = server.kilobytes
    alone = [uvloop.run(answered(server, f"a{n}", 0)) for n in range(turns_each)]
    began = time.monotonic()
    stuck = [open_reader(host, int(port), PATH) for _ in range(readers)]
    most, beside = 0, list[float]()
    # While they are there; what follows looks for their end.
    while len(beside) < turns_each and time.monotonic() - began < GONE_SECONDS / 2:
        beside.append(uvloop.run(answered(server, f"b{len(beside)}", 0)))
        most = max(most, server.kilobytes)
    while connections(int(port)) and time.monotonic() - began < 2 * GONE_SECONDS:
        time.sleep(0.1)
        most = max(most, server.kilobytes)
    gone = time.monotonic() - began
    for one in stuck:
        one.close()
    first, second = statistics.median(alone), statistics.median(beside)
    return Report(
        f"{readers} readers who take nothing of a large chat",
        [f"  a turn alone {first:6.3f} s   beside them {second:6.3f} s   gone after {gone:.1f} s"],
        [
            Ratio("MB grown", (most - before) / 1024, 40, at_least=False),
            Ratio("seconds until the last is gone", gone, GONE_SECONDS, at_least=False),
            Ratio("a turn beside them / alone", second / first, 1.2, at_least=False),
        ],
    )
