"""`python -m todo_server`: over standard input and output, or over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.exceptions import ConfigurationError, StoreError
from todo_server.server import todo_server
from todo_server.task_stores import task_store

STORE_VARIABLE = "TODO_STORE"
TOKEN_VARIABLE = "TODO_TOKEN"
EPILOG = (
    f"A password belongs into {STORE_VARIABLE}, PGPASSWORD or ~/.pgpass: other users of a machine"
    f" can read arguments. {TOKEN_VARIABLE} is what HTTP requests must show."
)
# sysexits.h: something is wrong with the configuration.
EX_CONFIG = 78


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    options = _parser().parse_args(arguments)
    try:
        return asyncio.run(_run(options, environ))
    except KeyboardInterrupt:
        return 0


async def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    async with AsyncExitStack() as stack:
        try:
            token = environ.get(TOKEN_VARIABLE) or None
            if options.http and token is None and not _is_loopback(options.host):
                raise ConfigurationError(
                    f"{options.host} is not this machine alone: set {TOKEN_VARIABLE}"
                )
            url = options.store or environ.get(STORE_VARIABLE) or _usual_store(environ)
            store = await stack.enter_async_context(task_store(url))
        except (ConfigurationError, StoreError) as error:
            sys.stderr.write(f"{error}\n")
            return EX_CONFIG
        server = todo_server(store)
        if options.http:
            await _serve(server, options.host, options.port, token)
        else:
            await server.run_stdio_async()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "todo_server", description="A todo list over MCP.", epilog=EPILOG
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:///path, or postgresql://user@host:port/database, which needs"
        f" teal-agents[postgres]; default: {STORE_VARIABLE}, else a file in the user's data folder",
    )
    parser.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    parser.add_argument("--host", default="127.0.0.1", help="where HTTP listens; %(default)s")
    parser.add_argument("--port", type=int, default=8765, help="%(default)s; 0 takes any free one")
    return parser


def _usual_store(environ: Mapping[str, str]) -> str:
    named = Path(environ.get("XDG_DATA_HOME", ""))
    folder = named if named.is_absolute() else Path.home() / ".local" / "share"
    return f"sqlite://{folder / 'teal-agents' / 'todo.sqlite'}"


async def _serve(server: MCPServer[Any], host: str, port: int, token: str | None) -> None:
    app: ASGIApp = server.streamable_http_app(host=host)
    if token is not None:
        app = _Guarded(app, token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"todo server at http://{shown}:{listener.getsockname()[1]}/mcp\n")
    sys.stderr.flush()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    await uvicorn.Server(config).serve(sockets=[listener])


class _Guarded:
    """Lets in who shows the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not secrets.compare_digest(given, self._expected):
                await PlainTextResponse("Unauthorized", 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
