"""The main states of the page as pictures.

With `TEAL_PICTURES=1` they take the place of those in `docs/images`; otherwise they only show that
each state can be reached in each look.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"
SIZES = {1280: 800, 390: 844}
STATES = ("welcome", "approval", "answer", "timeline", "chats")


def name_of(state: str, scheme: str, width: int) -> str:
    return f"{state}-{scheme}-{width}.png"


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_state_can_be_looked_at(
    browser: Browser, server: Server, tmp_path: Path, scheme: Any, width: int
) -> None:
    folder = IMAGES if os.environ.get("TEAL_PICTURES") else tmp_path
    page = await browser.new_page(
        viewport={"width": width, "height": SIZES[width]},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    tab = await Tab(page, server.url).open()

    async def take(state: str) -> None:
        path = folder / name_of(state, scheme, width)
        await page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size > 5_000

    await take("welcome")
    await tab.say("What time is it?")
    await tab.ended()
    await tab.say("Do several things at once")
    await tab.sees_count(".approval", 2)
    await page.locator(".approval").first.scroll_into_view_if_needed()
    await take("approval")
    for left in (1, 0):
        await tab.button("Approve").first.click()
        await tab.sees_count(".approval", left)
    await tab.ended()
    await tab.button("Show timeline").last.click()
    await expect(page.locator(".chart")).to_be_visible(timeout=WAIT_MS)
    await take("timeline")
    await tab.button("Close").click()
    await tab.say("Show me a table and some code")
    await tab.sees_count(".turn[data-status=COMPLETED]", 3)
    await expect(page.locator(".hljs-keyword").first).to_be_visible(timeout=WAIT_MS)
    await take("answer")
    if width < 720:
        await tab.button("Chats").click()
        await expect(page.locator(".chats a").first).to_be_in_viewport()
        await take("chats")
    tab.check()


def test_every_picture_is_on_the_page_that_describes_the_page() -> None:
    text = (DOCS / "page.md").read_text()
    pictures = sorted(path.name for path in IMAGES.glob("*-*-*.png"))
    assert pictures
    assert [name for name in pictures if f"images/{name}" not in text] == []
