"""The operator's view of who did what."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

SCRIPT = {"turns": [{"text": "Hello."}]}


async def test_operator_sees_entries_and_chooses_among_them(
    browser: Browser, tmp_path: Path
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT))
    server.start()
    try:
        page = await browser.new_page(locale="en-GB")
        tab = await Tab(page, server.url).open()
        await tab.say("hello")
        await tab.ended()
        await server.get(f"/chats/{await tab.chat_id()}/export")
        await page.get_by_role("button", name="Audit").click()
        window = page.get_by_role("dialog", name="Audit")
        await expect(window.get_by_role("cell", name="exporting")).to_be_visible(timeout=WAIT_MS)
        # A narrow window scrolls them: each entry stays one line.
        await page.set_viewport_size({"width": 390, "height": 800})
        assert await window.locator("tbody tr").first.evaluate("row => row.offsetHeight") < 45
        show = window.get_by_role("button", name="Show")
        await expect(show).to_have_css("justify-content", "center")
        await window.get_by_label("User").fill("another")
        await show.click()
        await expect(window.get_by_text("Nothing happened.")).to_be_visible(timeout=WAIT_MS)
        await page.keyboard.press("Escape")
        await expect(window).to_be_hidden(timeout=WAIT_MS)
        tab.check()
    finally:
        server.kill()
