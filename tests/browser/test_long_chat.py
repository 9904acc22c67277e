"""A chat with ten thousand events opens and scrolls."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab

RUNS = 3_334
AT = "2026-01-01T00:00:00Z"


def archive() -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for number in range(RUNS):
        run = f"run_{number}"
        parent = f"run_{number - 1}" if number else None
        message = {"parts": [{"content": f"question {number}"}]}
        events += [
            {
                "type": "run_started",
                "at": AT,
                "run_id": run,
                "message": message,
                "parent_run": parent,
            },
            {"type": "answered", "at": AT, "run_id": run, "content": f"answer **{number}**"},
            {"type": "run_ended", "at": AT, "run_id": run, "status": "completed"},
        ]
    return {"format": "teal-chat", "version": 1, "agent": "tour", "title": "Long", "events": events}


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
        await tab.button("Show earlier messages").click()
        await expect(first).not_to_have_attribute("data-run", before or "", timeout=WAIT_MS)
    await tab.say("What time is it?")
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.ended()
    tab.check()


async def test_all_parts_of_a_long_chat_hang_together(browser: Browser, server: Server) -> None:
    """Over ten thousand events the server hands them out in parts."""
    chat = await server.post("/chats/import", archive())
    tab = await Tab(await browser.new_page(), server.url).open(chat["id"])
    await tab.sees(tab.turn().locator(".answer"), f"answer {RUNS - 1}")
    for _ in range(200):
        older = tab.page.locator(".older")
        if await older.count() == 0:
            break
        await older.click()
        turns = tab.page.locator(".turn")
        if await turns.count() >= 1_100:
            break
    said = [turn["said"] for turn in await tab.shown()]
    assert len(said) >= 1_100
    assert said == [f"question {number}" for number in range(RUNS - len(said), RUNS)]
    assert await tab.page.locator(".branches").count() == 0
    tab.check()
