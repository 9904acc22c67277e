"""One good reader of a paced answer beside two hundred who read slowly or not at all."""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.bench.chat_load import request
from tests.bench.chats import Server, our_server
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report

CROWD = 200
# So little fits on the way that a reader who stops is soon felt.
BUFFER_BYTES = 4096
END = b"0\r\n\r\n"


async def answered(server: Server, chat: str, crowd: int) -> float:
    """Seconds until the good reader has the whole answer, from its first frame on."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request(f"/chats/{chat}/interactions", f"{host}:{port}"))
    seen = await reader.readuntil(b'"status":"RUNNING"')
    interaction = seen.partition(b'"interaction_id":"')[2].partition(b'"')[0].decode()
    began = time.perf_counter()
    path = f"/chats/{chat}/interactions/{interaction}/events"
    others = [open_reader(host, int(port), path) for _ in range(crowd)]
    slow = asyncio.create_task(_read_slowly(others[::2]))
    tail = b""
    while not tail.endswith(END):
        tail = (tail + await reader.read(65536))[-len(END) :]
    seconds = time.perf_counter() - began
    slow.cancel()
    for other in others:
        other.close()
    writer.close()
    await writer.wait_closed()
    return seconds


def open_reader(host: str, port: int, path: str) -> socket.socket:
    """Asks, and reads nothing by itself."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    opened.connect((host, port))
    opened.setblocking(False)
    opened.send(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return opened


async def _read_slowly(readers: Sequence[socket.socket]) -> None:
    """A byte a second each; the others read nothing."""
    while True:
        for reader in readers:
            try:
                reader.recv(1)
            except BlockingIOError:
                continue
        await asyncio.sleep(1)


def measure(repetitions: int = 10, crowd: int = CROWD) -> Report:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
        our_server(f"{url}/long", Path(folder) / "readers") as server,
    ):
        uvloop.run(answered(server, "warm", 0))
        before = server.kilobytes
        alone = [uvloop.run(answered(server, f"a{n}", 0)) for n in range(repetitions)]
        beside = [uvloop.run(answered(server, f"b{n}", crowd)) for n in range(repetitions)]
        grown = (server.kilobytes - before) / 1024
    first, second = statistics.median(alone), statistics.median(beside)
    return Report(
        f"A good reader beside {crowd} slow or silent ones, a paced answer",
        [f"  alone {first:6.3f} s   beside them {second:6.3f} s"],
        [
            Ratio("beside them / alone", second / first, 1.1, at_least=False),
            Ratio("MB grown", grown, 50, at_least=False),
        ],
    )
