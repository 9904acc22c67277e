"""A server in a process of its own, spoken to over its standard input and output.

The library's transport of this kind reads a line however long it is; this one does not. A message
that is too long, or no message at all, ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared._context_streams import ContextReceiveStream, create_context_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from sk_agents.tools.mcp.calls import CURRENT
from sk_agents.tools.mcp.config import McpServer

logger = logging.getLogger(__name__)

MOST_BYTES = 4 * 1024 * 1024
MOST_LOGGED = 500
# How long a server may take to leave once its input is closed, and once it is told to.
LEAVE_SECONDS = 2.0
LOOK_SECONDS = 0.01

Ended = Callable[[str], None]
_Inbound = MemoryObjectSendStream[SessionMessage | Exception]
_Outbound = ContextReceiveStream[SessionMessage]


def stdio_transport(server: McpServer, folder: Path, ended: Ended) -> Transport:
    """Raises OSError on entry: the program cannot be started. `ended` is told why it is over."""
    return _transport(server, folder, ended)


@asynccontextmanager
async def _transport(
    server: McpServer, folder: Path, ended: Ended
) -> AsyncGenerator[TransportStreams]:
    process = await _started(server, folder)
    to_us, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound, from_us = create_context_streams[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, to_us, ended)),
        asyncio.create_task(_write(process, from_us, ended)),
        asyncio.create_task(_log(process, server.name)),
    ]
    try:
        yield inbound, outbound
    finally:
        inbound.close()
        outbound.close()
        try:
            await _stopped(process)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            to_us.close()
            from_us.close()
            _close(process)


async def _started(server: McpServer, folder: Path) -> Process:
    assert server.command is not None
    environ = get_default_environment() | server.env
    if "PATH" not in server.env:
        # `python` is the one that runs this server, and scripts installed with it are found.
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
    return await asyncio.create_subprocess_exec(
        _program(server.command, folder, environ["PATH"]),
        *server.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environ,
        cwd=folder,
        limit=MOST_BYTES,
        start_new_session=True,
    )


def _program(command: str, folder: Path, path: str) -> str:
    """Raises FileNotFoundError: there is none. A relative path begins where the agent file is."""
    if os.sep in command:
        command = str(folder / Path(command).expanduser())
    program = shutil.which(command, path=path)
    if program is None:
        raise FileNotFoundError("no such program")
    return program


async def _read(process: Process, to_us: _Inbound, ended: Ended) -> None:
    assert process.stdout is not None
    reason = "the server closed its output"
    async with to_us:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    reason = f"a message of more than {MOST_BYTES} bytes"
                    break
                if not line:
                    break
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    reason = "output that is no message"
                    break
                await to_us.send(SessionMessage(message))
    ended(reason)


async def _write(process: Process, from_us: _Outbound, ended: Ended) -> None:
    assert process.stdin is not None
    try:
        async with from_us:
            async for item in from_us:
                call = from_us.last_context.get(CURRENT) if from_us.last_context else None
                if call is not None:
                    call.is_sent = True
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
    except OSError:
        ended("the server closed its input")


async def _log(process: Process, name: str) -> None:
    """What the server says to its operator, for who wants to see it."""
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue
        if not line:
            return
        text = line.decode(errors="replace").rstrip()[:MOST_LOGGED]
        logger.debug("mcp server says", extra={"server": name, "line": text})


async def _stopped(process: Process) -> None:
    """Also if this is cancelled: a process that nobody waits for would stay behind."""
    stopping = asyncio.ensure_future(_stop(process))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await asyncio.wait({stopping})
        raise


async def _stop(process: Process) -> None:
    """Close its input, give it a moment, then end it with everything it has started."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    if await _has_left(process):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if await _has_left(process):
            return


async def _has_left(process: Process) -> bool:
    """Not by `wait`, which also waits for whoever has inherited the pipes."""
    for _ in range(int(LEAVE_SECONDS / LOOK_SECONDS)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return process.returncode is not None


def _close(process: Process) -> None:
    """The pipes too, which a grandchild may hold open. Nothing public reaches them."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
