"""The main states of the page as pictures.

With `TEAL_PICTURES=1` they take the place of those in `docs/images`; otherwise they only show that
each state can be reached in each look.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"
SIZES = {1280: 800, 390: 844}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
RECIPE = """Bread

500 g flour
10 g salt
350 g water

Knead for ten minutes.
Bake for forty minutes.
"""
BAKER = {
    "turns": [
        {
            "calls": [
                {
                    "tool": "Files-edit_file",
                    "arguments": {
                        "path": "bread.txt",
                        "old_text": "350 g water\n\nKnead for ten minutes.",
                        "new_text": "375 g water\n\nKnead for five minutes, rest for an hour.",
                    },
                }
            ]
        },
        {"text": "The recipe is for a softer bread now: more water, and an hour's rest."},
    ]
}
BUILTIN = {"tools": ["edit_file"], "workspace": "work", "workspace_for": "everyone"}


def name_of(state: str, scheme: str, width: int) -> str:
    return f"{state}-{scheme}-{width}.png"


Take = Callable[[str], Awaitable[None]]

widths = pytest.mark.parametrize("width", SIZES)


async def seen(browser: Browser, url: str, folder: Path, width: int) -> tuple[Tab, Take]:
    """A page of this width, and what takes its pictures, in light and in dark."""
    place = IMAGES if os.environ.get("TEAL_PICTURES") else folder
    page = await browser.new_page(
        viewport={"width": width, "height": SIZES[width]},
        reduced_motion="reduce",
        locale="en-GB",
    )

    async def take(state: str) -> None:
        for scheme in SCHEMES:
            path = place / name_of(state, scheme, width)
            await page.emulate_media(color_scheme=scheme)
            await page.screenshot(path=path, animations="disabled")
            assert path.stat().st_size > 5_000
        await page.emulate_media(color_scheme=SCHEMES[0])

    return await Tab(page, url).open(), take


@widths
async def test_every_state_can_be_looked_at(
    browser: Browser, server: Server, tmp_path: Path, width: int
) -> None:
    tab, take = await seen(browser, server.url, tmp_path, width)
    page = tab.page
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


@pytest.fixture
def bakery(tmp_path: Path) -> Iterator[Server]:
    path = write_agent(tmp_path / "agent", BAKER, name="baker", builtin=BUILTIN)
    work = path.parent / "work"
    work.mkdir()
    (work / "bread.txt").write_text(RECIPE)
    server = Server(tmp_path, path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@widths
async def test_change_of_a_file_can_be_looked_at(
    browser: Browser, bakery: Server, tmp_path: Path, width: int
) -> None:
    tab, take = await seen(browser, bakery.url, tmp_path, width)
    await tab.say("Make the bread in bread.txt softer")
    await expect(tab.page.locator(".difference .added").first).to_be_visible(timeout=WAIT_MS)
    await tab.page.locator(".approval .actions").scroll_into_view_if_needed()
    await take("change")
    tab.check()


def test_every_picture_is_on_the_page_that_describes_the_page() -> None:
    text = (DOCS / "page.md").read_text()
    pictures = sorted(path.name for path in IMAGES.glob("*-*-*.png"))
    assert pictures
    assert [name for name in pictures if f"images/{name}" not in text] == []
