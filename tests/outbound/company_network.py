"""A company's network in small: services by name behind a forward proxy, and the proxy.

The names resolve nowhere but at the proxy, so what arrives has come through it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from aiohttp import web

from tests.authorization.issuer import jwk
from tests.debian import TINYPROXY, program
from tests.patience import seconds

NAME = "services.corp.test"
CHUNK = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
OPENAPI = {
    "openapi": "3.0.3",
    "info": {"title": "Weather", "version": "1"},
    "paths": {"/weather": {"get": {"operationId": "today", "summary": "The weather"}}},
}
ProxyKind = Literal["ours", "tinyproxy"]


class Services:
    """A model, an MCP server, a remote service and a token issuer at one address."""

    def __init__(self, host: str = NAME) -> None:
        self.host = host
        self.url = ""
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []

    @asynccontextmanager
    async def serving(
        self, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
    ) -> AsyncIterator[Services]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, 0, ssl_context=tls).start()
            port = runner.addresses[0][1]
            self.url = f"{'https' if tls else 'http'}://{self.host}:{port}"
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        match request.path:
            case "/v1/chat/completions":
                text = "".join(f"data: {json.dumps(part)}\n\n" for part in (CHUNK, LAST))
                return web.Response(
                    text=f"{text}data: [DONE]\n\n", content_type="text/event-stream"
                )
            case "/mcp":
                return self._mcp(request, json.loads(self.bodies[-1] or b"{}"))
            case "/openapi.json":
                return web.json_response({**OPENAPI, "servers": [{"url": self.url}]})
            case "/weather" | "/page":
                return web.Response(text="sunny")
            case "/realm/.well-known/openid-configuration":
                keys = f"{self.url}/realm/keys"
                return web.json_response({"issuer": f"{self.url}/realm", "jwks_uri": keys})
            case "/realm/keys":
                return web.json_response({"keys": [jwk(0)]})
            case "/":
                return web.Response(text="here")
        raise web.HTTPNotFound

    def _mcp(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(request.method, ["POST"])
        if "id" not in message:
            return web.Response(status=202)
        schema = {"type": "object", "properties": {}}
        answers: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "small", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "greet", "inputSchema": schema}]},
            "tools/call": {"content": [{"type": "text", "text": "good day"}]},
            "ping": {},
        }
        method = message["method"]
        if method not in answers:
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": answers[method]})


@dataclass
class RunningProxy:
    """`host` is a name that it can resolve, `address` where that leads."""

    url: str
    host: str
    address: str
    log: Path | None = None
    seen: list[str] = field(default_factory=list)

    def requests(self) -> list[str]:
        """The request lines it got."""
        if self.log is None:
            return self.seen
        lines = self.log.read_text().splitlines()
        return [line.partition("): ")[2] for line in lines if "Request (file" in line]

    def variables(self, **more: str) -> dict[str, str]:
        return {"HTTP_PROXY": self.url, "HTTPS_PROXY": self.url, **more}


@asynccontextmanager
async def running_proxy(
    kind: ProxyKind,
    folder: Path,
    *,
    credentials: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[RunningProxy]:
    """`credentials` are `user:password` that it wants."""
    if kind == "tinyproxy":
        async with _tinyproxy(folder, credentials) as proxy:
            yield proxy
        return
    proxy = RunningProxy("", NAME, "127.0.0.1")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _forward(proxy, credentials, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    user = f"{credentials}@" if credentials else ""
    proxy.url = f"{'https' if tls else 'http'}://{user}127.0.0.1:{port}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(
    proxy: RunningProxy,
    credentials: str | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """One request, or one tunnel, to this machine, whatever name it is for."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, _, rest = head.partition("\r\n")
    proxy.seen.append(first)
    method, target, _ = first.split(" ")
    if credentials and f"Basic {b64encode(credentials.encode()).decode()}" not in rest:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    onward, back = await asyncio.open_connection("127.0.0.1", parts.port)
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        path = parts._replace(scheme="", netloc="").geturl() or "/"
        own = ("proxy-", "connection:")
        kept = [line for line in rest.split("\r\n") if not line.lower().startswith(own)]
        # One request each: what follows on the connection would have to be read, too.
        kept.insert(0, "Connection: close")
        back.write(f"{method} {path} HTTP/1.1\r\n".encode() + "\r\n".join(kept).encode("latin-1"))
    try:
        await asyncio.gather(_copy(reader, back), _copy(onward, writer))
    finally:
        back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


@asynccontextmanager
async def _tinyproxy(folder: Path, credentials: str | None) -> AsyncIterator[RunningProxy]:
    found = program(TINYPROXY)
    assert found is not None
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    log = folder / "tinyproxy.log"
    lines = [f"Port {port}", "Listen 127.0.0.1", f'LogFile "{log}"', "LogLevel Connect"]
    if credentials:
        lines.append("BasicAuth " + credentials.replace(":", " "))
    config = folder / "tinyproxy.conf"
    config.write_text("\n".join([*lines, "Timeout 60", ""]))
    process = await asyncio.create_subprocess_exec(found, "-d", "-c", config)
    user = f"{credentials}@" if credentials else ""
    host = socket.gethostname()
    try:
        for _ in range(int(seconds(500))):
            if await _listens(port):
                break
            await asyncio.sleep(0.02)
        url = f"http://{user}127.0.0.1:{port}"
        yield RunningProxy(url, host, socket.gethostbyname(host), log)
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def why_no_tinyproxy() -> str | None:
    """The reason, if it cannot be used here."""
    if program(TINYPROXY) is None:
        return "there is no tinyproxy"
    host = socket.gethostname()
    try:
        socket.gethostbyname(host)
    except OSError:
        return "this machine's own name cannot be resolved"
    return "this machine has no name of its own" if host == "localhost" else None
