"""Tags, thumbs and notes, titles that come later, reasons that a rule wants, plugins' previews."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations

PLUGIN = """
import base64

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import PreviewTable, ToolFile, kernel_function, tool

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Books(BasePlugin):
    def _as_table(self, to: str) -> PreviewTable:
        return PreviewTable(["account", "after"], [[to, "<b>5</b>"], ["cash", -5]] * 150)

    def _as_picture(self, to: str) -> ToolFile:
        return ToolFile(DOT)

    @tool(preview=_as_table)
    @kernel_function(description="Book an amount.")
    def book(self, to: str) -> str:
        return f"booked for {to}"

    @tool(preview=_as_picture)
    @kernel_function(description="Draw a plan.")
    def draw(self, to: str) -> str:
        return "drawn"
"""


def asking(word: str, tool: str) -> dict[str, Any]:
    turns = [{"calls": [{"tool": tool, "arguments": {"to": "ada"}}]}, {"text": "Done: {result}"}]
    return {"match": word, "turns": turns}


SCRIPT = {
    "rules": [
        # What a model is asked for a title.
        {"match": "Assistant:", "turns": [{"text": "Weather in Oslo"}]},
        asking("book", "Books-book"),
        asking("draw", "Books-draw"),
    ],
    "turns": [{"text": "It will be sunny."}],
}


@pytest.fixture
def clerk(tmp_path: Path) -> Iterator[Server]:
    rules = [{"tool": "Books-book", "then": "ask", "reason_required": True}]
    path = write_agent(
        tmp_path / "agent",
        SCRIPT,
        name="clerk",
        plugins=["Books"],
        approvals={"rules": rules},
        titles=True,
    )
    (path.parent / "custom_plugins.py").write_text(PLUGIN)
    server = Server(tmp_path, path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def opened(browser: Browser, server: Server, **size: Any) -> Tab:
    return await Tab(await browser.new_page(**size), server.url).open()


async def test_title_that_a_model_makes_appears_without_a_reload(
    browser: Browser, clerk: Server
) -> None:
    tab = await opened(browser, clerk)
    await tab.say("please tell me how the weather will be")
    await tab.ended()
    await tab.sees("h1", "Weather in Oslo")
    await tab.sees(".chat-title", "Weather in Oslo")
    tab.check()


async def test_chat_gets_tags_and_is_found_by_one(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    entry = guest.page.locator(f"a[href='#/{await guest.chat_id()}']")
    await guest.page.get_by_label("Chat menu").click()
    await guest.button("Tags…").click()
    await guest.page.get_by_label("Tags, with commas between them").fill("Zebra , clocks")
    assert await violations(guest.page) == []
    await guest.page.keyboard.press("Enter")
    await guest.sees(entry.locator(".chat-tags"), "clocks, zebra")
    await guest.button("New chat").click()
    await guest.say("Think aloud")
    await guest.ended()
    other = guest.page.locator(f"a[href='#/{await guest.chat_id()}']")
    await guest.sees_count(other, 1)
    choices = guest.page.get_by_role("group", name="Only chats with a tag")
    zebra = choices.get_by_role("button", name="zebra")
    await zebra.click()
    await guest.sees_count(other, 0)
    await guest.sees_count(entry, 1)
    await expect(zebra).to_have_attribute("aria-pressed", "true")
    assert await violations(guest.page) == []
    await zebra.click()
    await guest.sees_count(other, 1)
    guest.check()


async def test_tag_that_is_refused_is_told_in_its_window(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    await guest.page.get_by_label("Chat menu").click()
    await guest.button("Tags…").click()
    await guest.page.get_by_label("Tags, with commas between them").fill("x" * 41)
    await guest.page.keyboard.press("Enter")
    await guest.sees(guest.page.get_by_role("dialog").get_by_role("alert"), "not valid")
    guest.check(outage=True)


async def test_answer_is_rated_with_a_note_that_stays(guest: Tab, shared_server: Server) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    chat = await guest.chat_id()
    down = guest.turn().get_by_role("button", name="Bad answer")
    await down.click()
    await expect(down).to_have_attribute("aria-pressed", "true", timeout=WAIT_MS)
    await guest.page.get_by_label("What was wrong with it?").fill("Too <b>slow</b>")
    assert await violations(guest.page) == []
    await guest.button("Send note").click()
    await guest.sees(".feedback-note", "Too <b>slow</b>")
    await guest.page.reload()
    await guest.sees(".feedback-note", "Too <b>slow</b>")
    [interaction] = (await shared_server.get(f"/chats/{chat}"))["interactions"]
    assert interaction["feedback"]["rating"] == "down"
    await guest.page.get_by_label("Chat menu").click()
    async with guest.page.expect_download() as download:
        await guest.button("Export as Markdown").click()
    document = (await (await download.value).path()).read_text()
    assert "*Rated as bad*: Too <b>slow</b>" in document
    await guest.turn().get_by_role("button", name="Bad answer").click()
    await guest.sees_count(".feedback-note", 0)
    await expect(down).to_have_attribute("aria-pressed", "false")
    guest.check()


async def test_reason_that_a_rule_wants_is_asked_for_beside_the_table_of_the_tool(
    browser: Browser, clerk: Server
) -> None:
    tab = await opened(browser, clerk, viewport={"width": 390, "height": 760})
    await tab.say("book it")
    card = tab.page.locator(".approval")
    await tab.sees(card.locator(".preview-table tbody tr").first, "<b>5</b>")
    await tab.sees_count(card.locator(".preview-table tbody tr"), 200)
    await tab.sees(card.locator(".preview"), "100 more rows")
    await tab.sees(card.locator(".arguments"), '"to": "ada"')
    await tab.sees_count(card.get_by_role("button", name="Allow in this chat"), 0)
    assert await violations(tab.page) == []
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    await tab.button("Approve…").click()
    approve = card.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_disabled()
    await card.get_by_label("Reason").fill("agreed with Bob")
    assert await violations(tab.page) == []
    await approve.click()
    await tab.ended()
    await tab.sees(tab.call("Books-book"), "agreed with Bob")
    tab.check()


async def test_rejection_needs_the_reason_too(browser: Browser, clerk: Server) -> None:
    tab = await opened(browser, clerk)
    await tab.say("book it")
    await tab.button("Reject…").click()
    reject = tab.page.locator(".approval form").get_by_role("button", name="Reject")
    await expect(reject).to_be_disabled()
    await tab.page.get_by_label("Reason (the agent reads it)").fill("not today")
    await reject.click()
    await tab.ended()
    await tab.sees(tab.call("Books-book"), "not today")
    tab.check()


async def test_picture_of_a_tool_is_shown_beside_the_arguments(
    browser: Browser, clerk: Server
) -> None:
    tab = await opened(browser, clerk)
    await tab.say("draw it")
    card = tab.page.locator(".approval")
    picture = card.get_by_alt_text("Picture of what the call would do")
    await expect(picture).to_be_visible(timeout=WAIT_MS)
    assert await picture.evaluate("image => image.naturalWidth") == 1
    await tab.sees(card.locator(".arguments"), '"to": "ada"')
    assert await violations(tab.page) == []
    await card.get_by_role("button", name="Approve", exact=True).click()
    await tab.ended()
    tab.check()
