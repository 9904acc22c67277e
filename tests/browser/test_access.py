"""The page without a mouse, and for those who do not see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab
from tests.missing import lacks

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
CHECK = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations']});
  return found.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html.slice(0, 160))]);
}"""


async def violations(page: Page) -> list[Any]:
    if not AXE.is_file():
        lacks("page", "axe-core is not installed: make page")
    await page.evaluate("() => 0")
    if not await page.evaluate("() => 'axe' in window"):
        # Evaluated, not added as an element: the page's own policy allows no foreign script.
        await page.evaluate(AXE.read_text())
    # While something moves or fades in, its colours are not yet what they will be.
    # What is out of sight may never end, so it is put to its end.
    await page.evaluate(
        "() => document.getAnimations()"
        ".filter((one) => one.effect.getTiming().iterations !== Infinity)"
        ".forEach((one) => one.finish())"
    )
    found: list[Any] = await page.evaluate(CHECK)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_view_of_the_page_has_a_barrier(
    browser: Browser, server: Server, scheme: Any
) -> None:
    page = await browser.new_page(color_scheme=scheme)
    tab = await Tab(page, server.url).open()
    assert await violations(page) == []
    await tab.say("Do several things at once")
    await tab.sees_count(".approval", 2)
    assert await violations(page) == []
    await tab.button("Edit…").first.click()
    assert await violations(page) == []
    await tab.page.locator(".inbox-button").click()
    await tab.sees_count(tab.page.get_by_role("dialog").locator(".approval"), 2)
    assert await violations(page) == []
    await tab.button("Close").click()
    await tab.button("Back").click()
    for _ in range(2):
        await tab.button("Approve").first.click()
        await page.wait_for_timeout(0)
        await expect(tab.button("Approve")).to_have_count(1 - _, timeout=WAIT_MS)
    await tab.ended()
    for title in await page.locator(".call-title").all():
        await title.click()
    assert await violations(page) == []
    await tab.say("Show me a table and some code")
    await tab.sees_count(".turn[data-status=COMPLETED]", 2)
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await page.keyboard.press("t")
    await expect(page.locator(".chart")).to_be_visible()
    assert await violations(page) == []
    await tab.button("Close").click()
    await page.locator(".person").click()
    for part in ("You", "Usage", "Allowed tools", "Keyboard"):
        await tab.button(part).click()
        assert await violations(page) == []
    await tab.button("Close").click()
    await page.fill("#search", "several")
    await expect(page.locator(".passage mark").first).to_be_visible()
    assert await violations(page) == []
    await page.get_by_label("Chat menu").click()
    assert await violations(page) == []
    await tab.button("Delete").click()
    await page.fill("#search", "")
    await tab.button("Bin").click()
    await page.locator(".chats a").first.click()
    await expect(page.locator(".set-aside")).to_be_visible()
    assert await violations(page) == []
    tab.check()


LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
async def test_no_window_of_the_page_has_a_barrier(
    browser: Browser, server: Server, scheme: Any, width: int
) -> None:
    page = await browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = await Tab(page, server.url).open()
    await tab.say("Send a postcard to Ada")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    (asked,) = (await server.get("/approvals"))["approvals"]
    await page.goto(f"{server.url}/#/approval/{asked['approval_id']}")
    await expect(page.get_by_role("dialog").get_by_text("Allow in this chat")).to_be_visible()
    assert await violations(page) == []
    await tab.button("Approve").last.click()
    await tab.sees(page.get_by_role("dialog"), "approved by")
    assert await violations(page) == []
    await tab.open(asked["chat_id"])
    await tab.ended()
    await page.keyboard.press("Escape")
    await page.keyboard.press("p")
    await expect(page.get_by_role("slider")).to_be_visible(timeout=WAIT_MS)
    assert await violations(page) == []
    await page.keyboard.press("End")
    await tab.sees(page.get_by_role("dialog"), "The run is over")
    assert await violations(page) == []
    await tab.button("Close").click()
    await tab.button("Regenerate answer").click()
    await tab.button("Approve").click()
    await tab.ended()
    await tab.button("Compare versions").click()
    assert await violations(page) == []
    await tab.button("Close").click()
    await tab.button("Show timeline").click()
    assert await violations(page) == []
    await tab.button("Close").click()
    await page.get_by_label("Chat menu").click()
    await tab.button("Share…").click()
    await tab.button("Make a link").click()
    link = await page.get_by_label("Link of").input_value()
    assert await violations(page) == []
    await tab.button("Close").click()
    if width < 720:
        await page.get_by_role("button", name="Chats").click()
        assert await violations(page) == []
    await tab.button("Audit").click()
    await expect(page.locator("table.audit")).to_be_visible(timeout=WAIT_MS)
    assert await violations(page) == []
    await page.goto(link)
    await expect(page.locator(".set-aside")).to_be_visible(timeout=WAIT_MS)
    assert await violations(page) == []
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    assert await page.evaluate(fits)
    tab.check()


async def test_everything_can_be_done_by_keyboard(tab: Tab) -> None:
    keys = tab.page.keyboard
    await keys.type("Send a postcard to Ada")
    await keys.press("Enter")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    await keys.press("Escape")
    await keys.press("a")
    await expect(tab.page.locator(".approval")).to_be_focused()
    for _ in range(10):
        await keys.press("Tab")
        if await tab.button("Approve").evaluate("e => e === document.activeElement"):
            break
    await keys.press("Enter")
    await tab.ended()
    await keys.press("Escape")
    await keys.press("?")
    await tab.sees(tab.page.get_by_role("dialog"), "Edit this message")
    await keys.press("Escape")
    await tab.sees_count("dialog", 0)
    await keys.press("e")
    await expect(tab.page.get_by_label("New text of the message")).to_be_focused()
    await keys.press("Control+a")
    await keys.type("Tell me a long story")
    await keys.press("Enter")
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    await keys.press("Escape")
    await keys.press("s")
    await tab.ended("CANCELLED")
    await keys.press("[")
    await tab.sees(".branches", "1/2")
    await keys.press("n")
    await tab.sees(".welcome", "What would you like to do?")
    tab.check()


async def test_screen_readers_are_told_the_turns_of_a_conversation(tab: Tab) -> None:
    spoken = tab.page.locator("p[aria-live=polite]")
    await tab.say("Send a postcard to Ada")
    await tab.sees(spoken, "waits for your approval")
    await tab.button("Approve").click()
    await tab.sees(spoken, "completed")
    tab.check()


async def test_narrow_page_shows_its_chats_on_demand(browser: Browser, server: Server) -> None:
    page = await browser.new_page(viewport={"width": 390, "height": 760})
    tab = await Tab(page, server.url).open()
    await tab.say("What time is it?")
    await tab.ended()
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    assert await page.evaluate(fits)
    await expect(page.locator(".chats a")).not_to_be_in_viewport()
    await tab.button("Chats").click()
    await expect(page.locator(".chats a")).to_be_in_viewport()
    await tab.button("New chat").click()
    await expect(page.locator(".chats a")).not_to_be_in_viewport()
    tab.check()


WRITE_AT_ONCE = """async () => {
  document.querySelector('dialog [aria-label=Close]').click();
  await Promise.resolve();
  document.getElementById('composer').focus();
  for (let frame = 0; frame < 20; frame += 1) await new Promise(requestAnimationFrame);
}"""


async def test_focus_comes_back_from_a_window_and_stays_where_one_writes(tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    opener = tab.button("Show timeline").last
    await opener.click()
    await tab.button("Close").click()
    await expect(opener).to_be_focused()
    await opener.click()
    await expect(tab.page.locator(".chart")).to_be_visible()
    await tab.page.evaluate(WRITE_AT_ONCE)
    await expect(tab.page.locator("#composer")).to_be_focused()
    tab.check()
