"""A chat with ten thousand events opens and scrolls."""

from __future__ import annotations

from playwright.async_api import Browser, expect

from tests.browser.long_chat import RUNS, archive, scroll_back
from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab, saved


async def test_chat_of_ten_thousand_events_opens_at_its_end_and_scrolls_back(
    browser: Browser, server: Server
) -> None:
    chat = await server.post("/chats/import", archive())
    tab = await Tab(await browser.new_page(), server.url).open(chat["id"])
    await tab.sees(tab.turn().locator(".answer"), f"answer {RUNS - 1}")
    await expect(tab.turn()).to_be_in_viewport()
    assert await tab.page.locator(".turn").count() <= 50
    for _ in range(3):
        first = tab.turn(0)
        before = await first.get_attribute("data-run")
        await tab.page.locator(".conversation").evaluate("view => view.scrollTo(0, 0)")
        await expect(first).not_to_have_attribute("data-run", before or "", timeout=WAIT_MS)
    await tab.say("What time is it?")
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.ended()
    tab.check()


async def test_all_parts_of_a_long_chat_hang_together(browser: Browser, server: Server) -> None:
    """Over ten thousand events the server hands them out in parts."""
    runs = RUNS + 200
    chat = await server.post("/chats/import", archive(runs))
    tab = await Tab(await browser.new_page(), server.url).open(chat["id"])
    await tab.sees(tab.turn().locator(".answer"), f"answer {runs - 1}")
    await tab.page.get_by_label("Chat menu").click()
    async with tab.page.expect_download(timeout=WAIT_MS) as saving:
        await tab.button("Export as Markdown").click()
    document = await saved(await saving.value)
    assert document.count("\nquestion ") == runs
    # Past the seams of three parts, of three thousand events each.
    await scroll_back(tab, 620)
    said = [turn["said"] for turn in await tab.shown()]
    assert said == [f"question {number}" for number in range(runs - len(said), runs)]
    assert await tab.page.locator(".branches").count() == 0
    tab.check()
