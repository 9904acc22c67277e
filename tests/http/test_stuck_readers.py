"""Clients that take nothing of what is written to them: let go, whatever that is."""

from __future__ import annotations

import asyncio
import socket

import pytest
from starlette.types import Message

from sk_agents.http.connections import ConnectionLimits
from sk_agents.http.limits import StreamSlots
from sk_agents.http.sse import EventStream, Frames, LastFrames
from tests.http.toy import FLOOD, PATIENCE, Wire, eventually, request, serving, toy_app

IMPATIENT = ConnectionLimits(write_seconds=0.3)


class Deaf(Wire):
    """Has no room for what it does not read."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))

    def taken(self) -> int:
        """How many bytes had come when the server cut the connection."""
        try:
            return len(self.rest())
        except ConnectionResetError:
            return 0


@pytest.mark.parametrize(
    "kind", ["many frames", "one frame, then silence", "all in the last frame"]
)
def test_a_stream_nobody_takes_is_let_go(kind: str) -> None:
    slots = StreamSlots()
    with serving(toy_app(slots=slots), IMPATIENT) as port, Deaf(port) as wire:
        wire.send(request("GET", f"/flood?user=alice&kind={kind.replace(' ', '%20')}"))
        eventually(lambda: slots.by_user == {"alice": 1})
        eventually(lambda: not slots.by_user)
        assert wire.taken() < FLOOD


@pytest.mark.parametrize("ending", ["keep-alive", "close"])
def test_a_file_nobody_takes_is_let_go(ending: str) -> None:
    with serving(toy_app(), IMPATIENT) as port, Deaf(port) as wire:
        wire.send(request("GET", "/file", f"Connection: {ending}"))
        with Wire(port) as other:
            assert len(other.send(request("GET", "/file", "Connection: close")).rest()) > FLOOD
        # Cut off: of what was on its way, a part is all that can still be read.
        assert wire.socket.recv(1) == b"H"
        eventually(lambda: _is_cut(wire))


def _is_cut(wire: Wire) -> bool:
    """Sending to a connection that the other side has cut fails."""
    try:
        wire.send(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


async def _nothing() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("waits for ever")


async def _silence() -> Frames:
    yield [b"data: 1\n\n"]
    await asyncio.Event().wait()


async def _last() -> Frames:
    yield [b"data: 1\n\n"]
    yield LastFrames([b"data: 2\n\n"])


@pytest.mark.parametrize("frames", [_silence, _last])
async def test_a_stream_on_another_server_is_let_go_when_a_write_does_not_end(
    frames: type[Frames],
) -> None:
    """The first part of the body is taken; what comes next, a comment or the end, is not."""
    parts: list[bytes] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            parts.append(message["body"])
            if len(parts) > 1:
                await asyncio.Event().wait()

    stream = EventStream(frames(), keepalive=0.05, write_timeout=0.1)
    async with asyncio.timeout(PATIENCE):
        await stream({"type": "http", "headers": []}, _nothing, send)
    assert len(parts) == 2


async def test_a_long_frame_leaves_in_parts_and_whole() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    body = bytes(range(256)) * 2_000

    async def frames() -> Frames:
        yield [body]

    async with asyncio.timeout(PATIENCE):
        await EventStream(frames())({"type": "http", "headers": []}, _nothing, send)
    parts = [message["body"] for message in sent[1:]]
    assert b"".join(parts) == body
    assert max(map(len, parts)) <= 64 * 1024
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(parts) - 1) + [False]
