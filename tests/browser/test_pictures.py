"""The main states of the page as pictures.

With `TEAL_PICTURES=1` they take the place of those in `docs/images`; otherwise they only show that
each state can be reached in each look.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import pytest
from playwright.async_api import Browser, FilePayload, Locator, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.patience import seconds
from tests.pdfs import pdf_of

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"
SIZES = {1280: 800, 390: 844}
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
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


class Take(Protocol):
    def __call__(self, state: str, schemes: Sequence[Scheme] = ...) -> Awaitable[None]: ...


widths = pytest.mark.parametrize("width", SIZES)


async def seen(browser: Browser, url: str, folder: Path, width: int) -> tuple[Tab, Take]:
    """A page of this width, and what takes its pictures, in light and in dark."""
    place = IMAGES if os.environ.get("TEAL_PICTURES") else folder
    page = await browser.new_page(
        viewport={"width": width, "height": SIZES[width]},
        reduced_motion="reduce",
        locale="en-GB",
    )

    async def take(state: str, schemes: Sequence[Scheme] = SCHEMES) -> None:
        for scheme in schemes:
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


@pytest.mark.timeout(seconds(240))
@widths
async def test_every_window_can_be_looked_at(
    browser: Browser, server: Server, tmp_path: Path, width: int
) -> None:
    """Wide ones in the light, narrow ones in the dark."""
    tab, take = await seen(browser, server.url, tmp_path, width)
    page = tab.page
    scheme: Sequence[Scheme] = ("light",) if width >= 720 else ("dark",)

    async def window(state: str, what: Locator | str) -> None:
        place = page.locator(what) if isinstance(what, str) else what
        await expect(place.first).to_be_visible(timeout=WAIT_MS)
        await take(state, scheme)
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog[open]")).to_have_count(0, timeout=WAIT_MS)

    async def sidebar() -> None:
        if width < 720 and not await page.locator(".sidebar[data-open=true]").count():
            await tab.button("Chats").click()
            await expect(page.locator(".person")).to_be_in_viewport()

    await tab.say("Send a postcard to Ada")
    await tab.button("Approve").click()
    await tab.ended()
    await tab.turn().get_by_label("Edit message").click()
    await page.get_by_label("New text of the message").fill("Send a postcard to Grace")
    await page.keyboard.press("Enter")
    await tab.button("Approve").click()
    await tab.ended()
    await tab.button("Compare versions").click()
    await window("compare", ".version")
    await tab.turn().get_by_label("Show timeline").click()
    await tab.button("Replay step by step").click()
    for _ in range(3):
        await tab.button("Step on").click()
    await window("replay", page.get_by_role("dialog").get_by_role("status"))
    for item, state in (("Tags…", "tags"), ("Share…", "share")):
        await page.get_by_label("Chat menu").click()
        await tab.button(item).click()
        if state == "share":
            await tab.button("Make a link").click()
            link = await page.get_by_label(re.compile("^Link of")).input_value()
        await window(state, "dialog[open]")
    for part, state in (("You", "settings"), ("Usage", "usage"), ("Keyboard", "keyboard")):
        await sidebar()
        await page.locator(".person").click()
        await page.get_by_role("dialog").get_by_role("button", name=part, exact=True).click()
        await window(state, page.get_by_role("dialog"))
    await sidebar()
    await page.get_by_role("button", name="Activity").click()
    await window("activity", page.get_by_role("table", name="Conversations"))
    await sidebar()
    await page.get_by_role("button", name="Audit").click()
    await window("audit", page.get_by_role("dialog").locator("table"))
    await sidebar()
    await page.locator("#search").fill("Grace")
    await expect(page.locator(".passage").first).to_be_visible(timeout=WAIT_MS)
    await take("search", scheme)
    await page.locator(".passage").first.click()
    files: list[FilePayload] = [
        {"name": "bill.pdf", "mimeType": "application/pdf", "buffer": pdf_of("Total 12")},
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Buy milk and bread."},
    ]
    await page.set_input_files("input[type=file]", files=files)
    await tab.sees_count(".attachments li", 2)
    await tab.say("Do several things at once")
    await tab.sees_count(".approval", 2)
    await page.locator("summary", has_text="notes.txt").click()
    await page.locator(".said").last.scroll_into_view_if_needed()
    await take("files", scheme)
    await page.keyboard.press("Escape")
    await sidebar()
    await page.locator(".inbox-button").click()
    await window("inbox", page.get_by_role("dialog").locator(".approval, li"))
    await page.goto(link)
    await tab.sees(".set-aside", "only read")
    await take("shared", scheme)
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
