"""From a command to a server: open a client, run, and say in a line what went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.neutral import one_line, sendable
from sk_agents.cli.options import DEFAULT_SERVER, Target
from sk_agents.client import ClientError, ProtocolError, ServerUnreachable, TealClient
from sk_agents.client.link import SILENCE_SECONDS, ByteStream, Link, Request
from sk_agents.client.patience import GIVE_UP_AFTER, Pace

# A single question is not worth a long wait for a server that is not there.
SHORT_PATIENCE = 1.0

Work = Callable[[TealClient], Awaitable[Exit]]


class _TypedLink(Link):
    """Sends what was typed as far as it is text: a terminal and a shell pass on any bytes."""

    def __init__(self, target: Target, give_up_after: float) -> None:
        super().__init__(
            target.server,
            token=target.token,
            user=target.user,
            give_up_after=give_up_after,
            silence=SILENCE_SECONDS,
            pace=Pace(),
        )

    async def call(self, request: Request) -> Any:
        return await super().call(_sendable(request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[ByteStream | None, None]:
        async with super().stream(_sendable(request)) as stream:
            yield stream


class _Client(TealClient):
    def __init__(self, target: Target, give_up_after: float) -> None:
        super().__init__(target.server)
        self._link = _TypedLink(target, give_up_after)


def client_of(target: Target, *, give_up_after: float = GIVE_UP_AFTER) -> TealClient:
    """An unopened client.

    Raises:
        ValueError: the address is none.
    """
    return _Client(target, give_up_after)


@asynccontextmanager
async def link_of(
    target: Target, *, give_up_after: float = SHORT_PATIENCE
) -> AsyncGenerator[Link, None]:
    """For what the client has no word for, such as a server's health."""
    link = _TypedLink(target, give_up_after)
    link.open()
    try:
        yield link
    finally:
        await link.close()


def reach(target: Target, work: Work) -> Exit:
    """Run `work` with an open client; errors become a line and an exit code."""
    quiet_client_logs()
    try:
        return asyncio.run(_with_client(target, work))
    except (ClientError, ValueError) as error:
        return complain(error, target.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def quiet_client_logs() -> None:
    """A client's retries are told by whoever waits for them, not by the log of last resort."""
    logging.getLogger("sk_agents.client").addHandler(logging.NullHandler())


def complain(error: ClientError | ValueError, server: str) -> Exit:
    typer.echo(f"teal: {one_line(str(error))}", err=True)
    match error:
        case ServerUnreachable():
            typer.echo(_how_to_start(server), err=True)
            return Exit.UNREACHABLE
        case ProtocolError():
            typer.echo(f"Is {server} the address of a Teal server?", err=True)
            return Exit.FAILED
        case ClientError():
            return Exit.FAILED
        case _:
            return Exit.USAGE


async def _with_client(target: Target, work: Work) -> Exit:
    async with client_of(target, give_up_after=SHORT_PATIENCE) as client:
        return await work(client)


def _sendable(request: Request) -> Request:
    return replace(request, body=sendable(request.body))


def _how_to_start(server: str) -> str:
    if server == DEFAULT_SERVER:
        return (
            "No server runs at the default address. Start one in another terminal:\n"
            "  teal serve\n"
            "or name another one with --server URL or TA_SERVER."
        )
    return f"No server answers at {server}. Is the address right, and the server running?"
