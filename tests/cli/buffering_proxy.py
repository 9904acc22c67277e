"""A proxy as it should not stand before this server: it collects an answer before passing it on."""

from __future__ import annotations

import aiohttp
from aiohttp import web

TARGET = web.AppKey("target", str)


async def _pass_on(request: web.Request) -> web.Response:
    target = request.app[TARGET]
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            request.method,
            target + request.path_qs,
            data=await request.read(),
            headers={"Content-Type": request.content_type, "Accept": request.headers["Accept"]},
        ) as answer,
    ):
        body = await answer.read()
        return web.Response(status=answer.status, body=body, content_type=answer.content_type)


async def buffering_proxy(target: str) -> tuple[web.AppRunner, str]:
    """Running on a free port; the caller cleans the runner up."""
    app = web.Application()
    app[TARGET] = target
    app.router.add_route("*", "/{path:.*}", _pass_on)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"
