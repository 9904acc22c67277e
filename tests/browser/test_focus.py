"""Where the focus is while windows, forms and calls come and go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Request, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

# No number of a browser holds it.
LARGE = 12345678901234567890
# At every corner of it a click would reach it.
IS_ON_TOP = """(button) => {
  const { left, right, top, bottom } = button.getBoundingClientRect();
  const corners = [left + 3, right - 3].flatMap((x) => [[x, top + 3], [x, bottom - 3]]);
  return corners.every(([x, y]) => button.contains(document.elementFromPoint(x, y)));
}"""


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Server]:
    pay = {"tool": "Bank-pay", "arguments": {"to": "Eve", "amount": LARGE}}
    script = {"turns": [{"calls": [pay]}, {"text": "Result: {result}"}]}
    server = Server(tmp_path, write_agent(tmp_path / "agent", script))
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def test_open_form_leaves_the_focus_where_its_user_takes_it(guest: Tab) -> None:
    await guest.say("Send a postcard to Ada")
    await guest.button("Reject…").click()
    await expect(guest.page.get_by_label("Reason (the agent reads it)")).to_be_focused()
    field = guest.page.locator("#composer")
    await field.click()
    # What is asked every few seconds draws the call, and its form, once more.
    async with guest.page.expect_response(re.compile(r"/approvals(\?|$)"), timeout=WAIT_MS):
        pass
    await guest.page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
    )
    await expect(field).to_be_focused()
    guest.check()


async def test_form_of_a_decision_gets_the_focus_and_gives_it_back(guest: Tab) -> None:
    await guest.say("Send a postcard to Ada")
    await guest.button("Edit…").click()
    form = guest.page.get_by_role("form", name="Edit arguments")
    await expect(form.locator("textarea").first).to_be_focused()
    await guest.button("Back").click()
    await expect(guest.page.locator(".approval")).to_be_focused()
    guest.check()


async def test_form_of_a_decision_is_shown_whole_in_a_narrow_window(
    browser: Browser, shared_server: Server
) -> None:
    page = await browser.new_page(viewport={"width": 390, "height": 560})
    tab = await Tab(page, shared_server.url).open()
    await tab.say("Send a postcard to Ada")
    await expect(tab.button("Reject…")).to_be_visible(timeout=WAIT_MS)
    for height in range(560, 800, 40):
        await page.set_viewport_size({"width": 390, "height": height})
        await page.locator(".conversation").evaluate("view => view.scrollTo(0, 0)")
        # Not by a click: the conversation follows the window's new size while it is aimed at.
        await tab.button("Reject…").press("Enter")
        for name in ("Back", "Reject"):
            # Neither the message field nor the way to the newest message lies over it.
            assert await tab.button(name).evaluate(IS_ON_TOP), (name, height)
        await tab.button("Back").press("Enter")
    tab.check()


async def test_focus_goes_to_the_next_call_that_waits_and_then_to_the_turn(guest: Tab) -> None:
    await guest.say("Do several things at once")
    await guest.sees_count(".approval", 2)
    await guest.button("Approve").first.press("Enter")
    await guest.sees_count(".approval", 1)
    await expect(guest.page.locator(".approval")).to_be_focused()
    await guest.button("Approve").press("Enter")
    await expect(guest.turn()).to_be_focused()
    await guest.ended()
    guest.check()


async def test_focus_stays_in_the_turn_when_all_its_calls_are_decided_at_once(guest: Tab) -> None:
    await guest.say("Do several things at once")
    await guest.button("Approve all 2").press("Enter")
    await expect(guest.turn()).to_be_focused()
    await guest.ended()
    guest.check()


async def test_arguments_that_cannot_be_edited_leave_the_way_back(
    browser: Browser, bank: Server
) -> None:
    tab = await Tab(await browser.new_page(), bank.url).open()
    await tab.say("pay")
    await tab.button("Edit…").click()
    await tab.sees(".approval", "too long to be edited")
    await tab.button("Back").click()
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), f"paid {LARGE} EUR to Eve")
    tab.check()


async def test_field_for_the_title_takes_the_room_there_is_in_a_narrow_window(
    browser: Browser, shared_server: Server
) -> None:
    page = await browser.new_page(viewport={"width": 320, "height": 640})
    tab = await Tab(page, shared_server.url).open()
    await tab.say("What time is it?")
    await tab.ended()
    await page.get_by_label("Chat menu").click()
    await tab.button("Rename").click()
    field = await page.get_by_label("Title of the chat").bounding_box()
    assert field is not None and field["width"] > 150
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tab.check()


async def test_title_is_sent_once_by_enter_and_not_at_all_by_escape(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    sent: list[str] = []

    def keep(request: Request) -> None:
        if request.method == "PATCH":
            sent.append(request.post_data or "")

    guest.page.on("request", keep)
    menu = guest.page.get_by_label("Chat menu")
    for title, key in (("Forgotten", "Escape"), ("Kept", "Enter")):
        await menu.click()
        await guest.button("Rename").click()
        await guest.page.get_by_label("Title of the chat").fill(title)
        await guest.page.keyboard.press(key)
        await expect(menu).to_be_focused()
    await guest.sees("h1", "Kept")
    await guest.sees(".chats", "Kept")
    assert sent == ['{"title":"Kept"}']
    guest.check()
