"""The user's sign-in at a server: made, removed and shown."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import Literal
from urllib.parse import urlsplit

import typer

from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.safe_text import escaped, one_line
from sk_agents.cli.server_connection import open_link, print_error
from sk_agents.cli.terminal import print_json
from sk_agents.client import ClientError, Me, SignInFailed, TealClient
from sk_agents.client.connection import ServerRequest
from sk_agents.client.issuer_requests import is_loopback
from sk_agents.client.signing_in import (
    DevicePrompt,
    give_back,
    sign_in_by_browser,
    sign_in_by_device,
)
from sk_agents.client.stored_sign_in import SignInFile, StoredSignIn
from sk_agents.exceptions import ConfigurationError
from sk_agents.wire.views import SignInView

Way = Literal["browser", "device"]


def sign_in(server: str, way: Way | None) -> Exit:
    try:
        return asyncio.run(_sign_in(server, way))
    except (ClientError, ConfigurationError, ValueError) as error:
        return print_error(error, server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def sign_out(server: str) -> Exit:
    try:
        return asyncio.run(_sign_out(SignInFile(server)))
    except (ClientError, ConfigurationError, ValueError) as error:
        return print_error(error, server)


async def print_me(client: TealClient, *, as_json: bool) -> None:
    me = await client.me()
    if as_json:
        print_json(me.model_dump())
        return
    typer.echo(_named(me))
    for label, value in (("tenant", me.tenant), ("roles", ", ".join(me.roles))):
        if value:
            typer.echo(f"{label}: {one_line(value)}")


async def _sign_in(server: str, way: Way | None) -> Exit:
    file = SignInFile(server)
    async with open_link(ServerAccess(server, token="")) as link:
        how = await link.read(SignInView, ServerRequest("GET", "/sign-in"))
    parts = urlsplit(server)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        typer.echo("teal: this server has no https: others may read what you send", err=True)
    match how.method:
        case "none":
            typer.echo(f"{server} lets everyone in: there is nothing to sign in to.")
            return Exit.DONE
        case "key":
            new = _pasted(file, "Access key")
        case "oidc" if how.cli_client_id is not None:
            issuer = one_line(how.issuer or "")
            typer.echo(f"Signing in to {one_line(server)} at {issuer}", err=True)
            new = await _at_issuer(file, how, way or _usual_way(how))
        case _:
            typer.echo("This server's operator has set no client for `teal login`.", err=True)
            new = _pasted(file, "Token")
    async with open_link(ServerAccess(server, token=new.access_token)) as link:
        me = await link.read(Me, ServerRequest("GET", "/me"))
    async with file.locked():
        file.write(new)
    typer.echo(f"You are signed in as {_named(me)}.")
    return Exit.DONE


async def _sign_out(file: SignInFile) -> Exit:
    async with file.locked():
        known = _readable(file)
        file.remove()
    typer.echo(f"You are signed out of {file.server}.")
    try:
        if known is not None:
            await give_back(known)
    except ClientError as error:
        typer.echo(f"teal: the issuer still knows the sign-in: {one_line(str(error))}", err=True)
        return Exit.FAILED
    return Exit.DONE


def _readable(file: SignInFile) -> StoredSignIn | None:
    try:
        return file.read()
    except SignInFailed:
        return None


async def _at_issuer(file: SignInFile, how: SignInView, way: Way) -> StoredSignIn:
    if way == "device":
        return await sign_in_by_device(file, how, _show_code)
    return await sign_in_by_browser(file, how, _open_browser)


def _usual_way(how: SignInView) -> Way:
    """By browser where there is one: a code that is typed in elsewhere is easier to be lured by."""
    is_remote = bool(os.environ.get("SSH_CONNECTION"))
    has_screen = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if how.device_authorization_endpoint is None or (has_screen and not is_remote):
        return "browser"
    return "device"


def _show_code(prompt: DevicePrompt) -> None:
    typer.echo(f"Open  {escaped(prompt.address)}\nand type in  {escaped(prompt.code)}")
    if prompt.whole_address:
        typer.echo(f"or open  {escaped(str(prompt.whole_address))}")
    typer.echo("Waiting for you to sign in there ...", err=True)


async def _open_browser(address: str) -> None:
    typer.echo(f"Sign in with your browser:\n  {escaped(address)}")
    typer.echo("Waiting for you to come back from it ...", err=True)
    if any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))) or sys.platform != "linux":
        await asyncio.to_thread(webbrowser.open, address)


def _pasted(file: SignInFile, label: str) -> StoredSignIn:
    text = typer.prompt(label, hide_input=sys.stdin.isatty(), err=True).strip()
    return StoredSignIn(server=file.server, access_token=text)


def _named(me: Me) -> str:
    return one_line(f"{me.name} ({me.id})" if me.name and me.name != me.id else me.id)
