"""A proxy as it should not stand before this server: it collects an answer before passing it on,
and asks under another `Host` than it was asked under.

As a program, `python -m tests.cli.buffering_proxy TARGET`, it prints its address.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

ROOT = Path(__file__).parent.parent.parent
TARGET = web.AppKey("target", str)


async def _pass_on(request: web.Request) -> web.Response:
    target = request.app[TARGET]
    kept = {name: request.headers[name] for name in ("Accept", "Origin") if name in request.headers}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            request.method,
            target + request.path_qs,
            data=await request.read(),
            headers={"Content-Type": request.content_type, **kept},
        ) as answer,
    ):
        body = await answer.read()
        return web.Response(status=answer.status, body=body, content_type=answer.content_type)


async def _proxy(target: str) -> web.Application:
    app = web.Application()
    app[TARGET] = target
    app.router.add_route("*", "/{path:.*}", _pass_on)
    return app


@contextmanager
def buffering_proxy(target: str) -> Iterator[str]:
    """A process of its own on a free port; its address."""
    command = [sys.executable, "-u", "-m", "tests.cli.buffering_proxy", target]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the proxy did not start"
            yield address
        finally:
            process.kill()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
        web.run_app(_proxy(sys.argv[1]), sock=listener, print=None)


if __name__ == "__main__":
    main()
