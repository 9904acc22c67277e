"""What the page costs: while an answer streams into it, and when a long chat is opened.

The model writes the time of each token as its text, 50 of them a second. The page is asked at each
of its frames for the newest time that it shows; the difference is what a person waits for.

A long chat is opened in a new page and scrolled back; the time of its scripts is the browser's own
count.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web
from playwright.async_api import CDPSession, async_playwright

from tests.bench.report import Ratio, Report
from tests.browser.chromium import ARGUMENTS, chromium_path
from tests.browser.long_chat import RUNS, archive, scroll_back
from tests.browser.server import Server
from tests.browser.tab import Tab

TOKENS = 500
OPENINGS = 3
SCROLLED = 300
OPENING_BAR_SECONDS = 2.0
TOKEN_SECONDS = 0.02
LATENCY_BAR_MS = 50
BUSY_BAR = 0.25

WATCH = """() => {
  window.seen = new Map();
  const look = () => {
    const shown = document.querySelector('.turn:last-child .answer')?.textContent ?? '';
    for (const [time] of shown.slice(-400).matchAll(/\\d{13}/g)) {
      if (!window.seen.has(time)) window.seen.set(time, Date.now());
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
RESULTS = "() => [...window.seen].map(([sent, shown]) => shown - Number(sent))"


async def complete(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    due = time.monotonic()
    for number in range(TOKENS):
        due += TOKEN_SECONDS
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        # A new paragraph now and then, as in an answer.
        text = f"{time.time_ns() // 1_000_000}" + ("\n\n" if number % 40 == 39 else " ")
        await response.write(_chunk({"content": text}, None))
    await response.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
    return response


def _chunk(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "model": "m", "choices": [choice]}) + b"\n\n"


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def spent(profiler: CDPSession, what: str = "TaskDuration") -> float:
    """How many seconds the page's main thread has worked so far, or its scripts have."""
    found: dict[str, Any] = await profiler.send("Performance.getMetrics")
    return float(next(m["value"] for m in found["metrics"] if m["name"] == what))


async def watch(url: str) -> tuple[list[float], float]:
    """The latency of each token in milliseconds, and the part of the time the page was busy."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        tab = await Tab(await browser.new_page(), url).open()
        await tab.page.evaluate(WATCH)
        profiler = await tab.page.context.new_cdp_session(tab.page)
        await profiler.send("Performance.enable")
        # An idle page that looks at each frame costs something too: that is not the page's.
        idle_from, idle = await spent(profiler), time.monotonic()
        await asyncio.sleep(3)
        watching = (await spent(profiler) - idle_from) / (time.monotonic() - idle)
        await tab.say("go")
        begun, busy = time.monotonic(), await spent(profiler)
        await tab.ended()
        took = time.monotonic() - begun
        share = (await spent(profiler) - busy) / took - watching
        latencies: list[float] = await tab.page.evaluate(RESULTS)
        await browser.close()
        return latencies, share


async def open_long_chat(server: Server) -> tuple[float, float]:
    """The seconds of script until a long chat is open and at rest, and those to scroll it back."""
    chat = await server.post("/chats/import", archive())
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        page = await browser.new_page()
        profiler = await page.context.new_cdp_session(page)
        await profiler.send("Performance.enable")
        tab = await Tab(page, server.url).open(chat["id"])
        await tab.sees(tab.turn().locator(".answer"), f"answer {RUNS - 1}")
        opened = await _at_rest(profiler)
        await scroll_back(tab, SCROLLED)
        back = await _at_rest(profiler)
        await browser.close()
        return opened, back - opened


async def _at_rest(profiler: CDPSession) -> float:
    """The seconds of script once no more come."""
    before = -1.0
    for _ in range(100):
        now = await spent(profiler, "ScriptDuration")
        if now - before < 0.001:
            break
        before = now
        await asyncio.sleep(0.5)
    return before


async def _opened(folder: Path) -> list[tuple[float, float]]:
    server = Server(folder)
    server.start()
    try:
        return [await open_long_chat(server) for _ in range(OPENINGS)]
    finally:
        server.kill()


async def _measured(folder: Path) -> tuple[list[float], float]:
    async with model() as base_url:
        agent = {
            "name": "default",
            "model": "bench",
            "base_url": base_url,
            "system_prompt": "You tell the time.",
        }
        path = folder / "config.yaml"
        document = {
            "apiVersion": "tealagents/v1alpha1",
            "kind": "Agent",
            "name": "bench",
            "version": 0.1,
            "spec": {"agent": agent},
        }
        await asyncio.to_thread(path.write_text, yaml.safe_dump(document))
        server = Server(folder, path)
        server.start()
        try:
            return await watch(server.url)
        finally:
            server.kill()


def measure() -> Report:
    with tempfile.TemporaryDirectory() as folder:
        latencies, share = asyncio.run(_measured(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        openings = asyncio.run(_opened(Path(folder)))
    opening = statistics.median(opened for opened, _ in openings)
    back = statistics.median(scrolled for _, scrolled in openings)
    slowest = sorted(latencies)[int(len(latencies) * 0.95)]
    return Report(
        "page: an answer of 50 tokens a second, and a chat of ten thousand events",
        [
            f"{len(latencies)} of {TOKENS} tokens seen; 95 of 100 within {slowest:.0f} ms",
            f"{back:.2f} s of script to scroll back over {SCROLLED} messages",
        ],
        [
            Ratio("token to frame, median ms", statistics.median(latencies), LATENCY_BAR_MS, False),
            Ratio("main thread busy, part of the time", share, BUSY_BAR, False),
            Ratio("10,000 events opened, s of script", opening, OPENING_BAR_SECONDS, False),
        ],
    )


if __name__ == "__main__":
    print(measure())
