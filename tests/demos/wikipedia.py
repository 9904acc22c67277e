"""Two articles behind the part of Wikipedia's API that the demo uses, on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.patience import seconds

ARTICLES = {
    "Narwhal": "The narwhal is a toothed whale of the Arctic.",
    "Beluga whale": "The beluga whale is a white whale of the Arctic.",
}


async def query(request: web.Request) -> web.Response:
    asked = request.query
    assert (asked["action"], asked["format"], asked["formatversion"]) == ("query", "json", "2")
    assert "teal-agents" in request.headers["User-Agent"]
    if asked.get("list") == "search":
        word = asked["srsearch"].lower()
        hits = [
            {"ns": 0, "title": title, "pageid": number, "wordcount": len(text.split())}
            for number, (title, text) in enumerate(ARTICLES.items())
            if word in title.lower()
        ]
        return web.json_response({"query": {"search": hits[: int(asked["srlimit"])]}})
    title = next((known for known in ARTICLES if known.lower() == asked["titles"].lower()), None)
    if title is None:
        page = {"ns": 0, "title": asked["titles"], "missing": True}
    else:
        page = {"pageid": 1, "ns": 0, "title": title, "extract": ARTICLES[title]}
    return web.json_response({"batchcomplete": True, "query": {"pages": [page]}})


@contextmanager
def wikipedia() -> Iterator[str]:
    """Its address, served from a thread: a README is followed step by step."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/w/api.php", query)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.append(f"http://127.0.0.1:{runner.addresses[0][1]}/w/api.php")
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(seconds(10))
    try:
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(seconds(10))
