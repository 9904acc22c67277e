"""The connection of a command to a server: a client, and one line about what went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import typer

from sk_agents.cli.options import DEFAULT_SERVER, Exit, ServerAccess
from sk_agents.cli.safe_text import one_line, valid_text
from sk_agents.client import (
    ClientError,
    ProtocolError,
    ServerUnreachable,
    TealClient,
    TealServerError,
)
from sk_agents.client.connection import (
    GIVE_UP_AFTER,
    SILENCE_SECONDS,
    ByteStream,
    RetryTiming,
    ServerConnection,
    ServerRequest,
)
from sk_agents.client.issuer_requests import IssuerUnreachable
from sk_agents.client.stored_sign_in import stored_sign_in
from sk_agents.exceptions import ConfigurationError

# A single question is not worth a long wait for a server that is not there.
SHORT_RETRY_SECONDS = 1.0


class _TextLink(ServerConnection):
    """Replaces what is not text before it is sent: a terminal and a shell pass on any bytes.

    Without a token it sends what `teal login` has stored for the server.
    """

    def __init__(self, access: ServerAccess, give_up_after: float) -> None:
        super().__init__(
            access.server,
            token=stored_sign_in(access.server) if access.token is None else access.token,
            user=access.user,
            give_up_after=give_up_after,
            silence=SILENCE_SECONDS,
            pace=RetryTiming(),
        )

    async def call(self, request: ServerRequest) -> Any:
        return await super().call(_with_valid_text(request))

    @asynccontextmanager
    async def stream(self, request: ServerRequest) -> AsyncGenerator[ByteStream | None, None]:
        async with super().stream(_with_valid_text(request)) as stream:
            yield stream


def _with_valid_text(request: ServerRequest) -> ServerRequest:
    return replace(request, body=valid_text(request.body))


def unopened_client(access: ServerAccess, *, give_up_after: float = GIVE_UP_AFTER) -> TealClient:
    """Raises ValueError: the server's address is not valid."""
    return TealClient(connection=_TextLink(access, give_up_after))


@asynccontextmanager
async def open_link(access: ServerAccess) -> AsyncGenerator[ServerConnection, None]:
    """For what the client has no method for, such as a server's health. Does not retry."""
    link = _TextLink(access, 0)
    link.open()
    try:
        yield link
    finally:
        await link.close()


def run_with_client(
    access: ServerAccess, work: Callable[[TealClient], Awaitable[Exit | None]]
) -> Exit:
    """Run `work` with an open client; an error becomes a line and an exit code."""

    async def run() -> Exit:
        async with unopened_client(access, give_up_after=SHORT_RETRY_SECONDS) as client:
            return await work(client) or Exit.DONE

    silence_client_log()
    try:
        return asyncio.run(run())
    except (ClientError, ValueError) as error:
        return print_error(error, access.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def silence_client_log() -> None:
    """The commands report a client's retries themselves. Without a handler Python prints them."""
    logging.getLogger("sk_agents.client").addHandler(logging.NullHandler())


# What a user may do about an id that the server does not know.
NEXT_STEPS: Mapping[str, str] = {
    "thread_not_found": "`teal chats list` shows your chats.",
    "run_not_found": "The ids of a chat's runs are in `teal chats show CHAT --json`.",
    "approval_not_found": "`teal approvals list` shows the calls that wait for you.",
}


def print_error(error: ClientError | ConfigurationError | ValueError, server: str) -> Exit:
    typer.echo(f"teal: {one_line(str(error))}", err=True)
    match error:
        case IssuerUnreachable():
            return Exit.UNAVAILABLE
        case ServerUnreachable() if server == DEFAULT_SERVER:
            typer.echo(
                "No server runs at the default address. Start one in another terminal:\n"
                "  teal serve\n"
                "or name another server with --server URL or TA_SERVER.",
                err=True,
            )
            return Exit.UNAVAILABLE
        case ServerUnreachable():
            hint = f"No server answers at {server}. Is the address right? Is the server running?"
            typer.echo(hint, err=True)
            return Exit.UNAVAILABLE
        case ProtocolError():
            typer.echo(f"Is {server} the address of a Teal server?", err=True)
            return Exit.FAILED
        case TealServerError(status=401):
            hint = f"Sign in with `teal login {server}`, or set TEAL_KEY or TA_TOKEN."
            typer.echo(hint, err=True)
            return Exit.FAILED
        case TealServerError(code=code) if code in NEXT_STEPS:
            typer.echo(NEXT_STEPS[code], err=True)
            return Exit.FAILED
        case ClientError() | ConfigurationError():
            return Exit.FAILED
        case _:
            return Exit.USAGE
