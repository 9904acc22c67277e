"""What a browser may refuse a page: to store something, or to use the clipboard."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab

# As with all cookies blocked.
DENIED = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("no", "SecurityError"); } });
"""
FULL = """Storage.prototype.setItem = () => { throw new DOMException("no", "QuotaExceededError"); };
"""
# As where the page was loaded without encryption.
NO_CLIPBOARD = """Clipboard.prototype.writeText = () => Promise.reject(new Error("no"));
"""


async def strict_page(browser: Browser, script: str) -> Page:
    context = await browser.new_context(permissions=["clipboard-read"])
    await context.add_init_script(script)
    return await context.new_page()


@pytest.mark.parametrize("script", [DENIED, FULL], ids=["denied", "full"])
async def test_page_works_in_a_browser_that_stores_nothing(
    browser: Browser, shared_server: Server, script: str
) -> None:
    tab = await Tab(await strict_page(browser, script), shared_server.url).open()
    await tab.say("What time is it?")
    await tab.ended()
    # As long as the page is open it remembers what was written, too.
    chat = await tab.chat_id()
    await tab.page.fill("#composer", "not sent yet")
    await tab.button("New chat").click()
    await expect(tab.page.locator("#composer")).to_have_value("")
    await tab.page.locator(f'.chats a[href="#/{chat}"]').click()
    await expect(tab.page.locator("#composer")).to_have_value("not sent yet")
    await tab.button("Settings").click()
    await tab.button("Dark").click()
    await expect(tab.page.locator("html")).to_have_attribute("data-theme", "dark")
    tab.check()


async def test_links_are_copied_out_of_windows_without_the_clipboard(
    browser: Browser, shared_server: Server
) -> None:
    page = await strict_page(browser, NO_CLIPBOARD)
    tab = await Tab(page, shared_server.url).open()
    await tab.say("What time is it?")
    await tab.ended()
    await page.get_by_label("Chat menu").click()
    await tab.button("Share…").click()
    await tab.button("Make a link").click()
    await tab.button("Copy link").click()
    await tab.sees_count(page.get_by_role("button", name="Copied"), 1)
    assert "/#/shared/" in await page.evaluate("navigator.clipboard.readText()")
    await page.keyboard.press("Escape")
    await tab.say("Send a postcard to Ada")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    await page.get_by_role("button", name="Inbox").click()
    await tab.button("Copy link").first.click()
    await expect(tab.button("Link copied").first).to_be_visible(timeout=WAIT_MS)
    assert "/#/approval/" in await page.evaluate("navigator.clipboard.readText()")
    tab.check()
