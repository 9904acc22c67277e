"""Versions of a message side by side, another agent for the same message, the queue."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import Tab
from tests.browser.test_access import violations


async def test_message_is_asked_of_another_agent_and_the_versions_are_compared(
    browser: Browser, tmp_path: Path
) -> None:
    agents = [
        write_agent(tmp_path / name, {"turns": [{"text": f"So says {name}."}]}, name=name)
        for name in ("first", "second")
    ]
    server = Server(tmp_path, *agents)
    server.start()
    try:
        tab = await Tab(await browser.new_page(), server.url).open()
        await tab.say("What do you say?")
        await tab.ended()
        await tab.page.get_by_label("Try again with another agent").click()
        await tab.button("second scripted/script.yaml").click()
        await tab.sees(tab.turn().locator(".answer"), "So says second.")
        await tab.ended()
        await tab.button("Compare versions").click()
        await tab.sees(tab.page.get_by_label("Left version").first, "So says first.")
        await tab.sees("section[aria-label='Right version']", "So says second.")
        assert await violations(tab.page) == []
        tab.check()
    finally:
        server.kill()


async def test_queued_message_is_taken_back_and_edited(guest: Tab) -> None:
    await guest.say("Tell me a very long story")
    await guest.sees(guest.turn().locator(".answer"), "Press Stop")
    await guest.say("What time is it?")
    await guest.button("Edit it").click()
    await expect(guest.page.locator("#composer")).to_have_value("What time is it?")
    await guest.say("Think aloud")
    await guest.button("Take it back").click()
    await guest.sees_count(guest.button("Take it back"), 0)
    await guest.button("Stop").click()
    await guest.ended("CANCELLED", at=0)
    guest.check()
