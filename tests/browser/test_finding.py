"""Chats found again, put aside, shared; approvals compared, decided at once and linked to."""

from __future__ import annotations

import httpx
from playwright.async_api import Browser, Dialog, expect

from tests.browser.long_chat import archive
from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations
from tests.patience import seconds


async def test_passage_of_an_old_message_is_shown_and_gone_to(
    guest: Tab, shared_server: Server
) -> None:
    await shared_server.post("/chats/import", archive(120))
    await guest.page.fill("#search", "ANSWER 7, with")
    passage = guest.page.locator(".passage").first
    await guest.sees(passage.locator("mark"), "answer 7, with")
    await passage.click()
    found = guest.page.locator(".turn[data-found=true]")
    await guest.sees(found, "question 7")
    await expect(found).to_be_in_viewport()
    await expect(found).to_be_focused()
    guest.check()


async def test_chat_is_pinned_and_archived(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    entry = guest.page.locator(f"a[href='#/{await guest.chat_id()}']")
    menu = guest.page.get_by_label("Chat menu")
    await menu.click()
    await guest.button("Pin").click()
    await expect(guest.page.get_by_label("Pinned").locator(entry)).to_be_visible(timeout=WAIT_MS)
    await menu.click()
    await guest.button("Unpin").click()
    await expect(guest.page.get_by_label("Today").locator(entry)).to_be_visible(timeout=WAIT_MS)
    await menu.click()
    await guest.page.locator(".menu").get_by_role("button", name="Move to the archive").click()
    await guest.sees(".toast", "is in the archive.")
    await guest.sees_count(entry, 0)
    await guest.page.locator(".sidebar-foot").get_by_label("Archive").click()
    await guest.sees_count(entry, 1)
    await menu.click()
    await guest.button("Move back to the list").click()
    await guest.sees_count(entry, 0)
    await guest.button("All chats").click()
    await guest.sees_count(entry, 1)
    guest.check()


async def test_emptied_bin_is_empty_however_much_was_in_it(tab: Tab, server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=seconds(20)) as client:
        for _ in range(60):
            chat = await server.post("/chats/import", archive(1))
            changed = await client.patch(f"/chats/{chat['id']}", json={"place": "bin"})
            assert changed.is_success
    asked: list[str] = []

    async def agree(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    tab.page.on("dialog", agree)
    await tab.button("Bin").click()
    await tab.sees_count(".chats a", 50)
    await tab.button("Empty…").click()
    await tab.sees(".chats", "The bin is empty.")
    assert asked == ["Remove 60 chats for good? This cannot be undone."]
    assert (await server.get("/chats?place=bin"))["chats"] == []
    tab.check()


async def test_older_chats_that_were_asked_for_stay_listed(tab: Tab, server: Server) -> None:
    for _ in range(60):
        await server.post("/chats/import", archive(1))
    await tab.page.reload()
    listed = tab.page.locator(".chats a")
    await tab.sees_count(listed, 50)
    await tab.button("More").click()
    await tab.sees_count(listed, 60)
    await listed.last.click()
    await tab.page.get_by_label("Chat menu").click()
    await tab.page.locator(".menu").get_by_role("button", name="Move to the archive").click()
    await tab.sees(".toast", "is in the archive.")
    await tab.sees_count(listed, 59)
    tab.check()


async def test_calls_of_a_run_are_approved_at_once_and_compared_later(
    browser: Browser, guest: Tab, shared_server: Server
) -> None:
    await guest.say("Do several things at once")
    await guest.sees_count(".approval", 2)
    await guest.button("Approve all 2").click()
    await guest.ended()
    await guest.sees_count(guest.turn().locator(".call[data-phase=done]"), 4)
    await guest.say("Send a postcard to Ada")
    await guest.sees(".comparison", "The same call that you approved")
    await expect(guest.page).to_have_title("(1) Do several things at once · Teal Agents")
    # The same call on a phone, by its link.
    [waiting] = (await shared_server.get("/approvals"))["approvals"]
    phone = await browser.new_page(viewport={"width": 390, "height": 760})
    tab = Tab(phone, shared_server.url)
    await phone.goto(f"{shared_server.url}/#/approval/{waiting['approval_id']}")
    await tab.sees("dialog .asker", "Do several things at once")
    assert await violations(phone) == []
    assert await phone.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Approve", exact=True).click()
    await tab.sees("dialog", "approved by")
    await guest.ended()
    await guest.sees(guest.call("Desk-send_postcard"), "done")
    guest.check()
    tab.check()


async def test_chat_is_read_by_its_link_and_continued_as_a_copy(
    browser: Browser, guest: Tab
) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    await guest.page.get_by_label("Chat menu").click()
    await guest.button("Share…").click()
    await guest.button("Make a link").click()
    link = await guest.page.get_by_label("Link of").input_value()
    assert await violations(guest.page) == []
    page = await browser.new_page()
    reader = Tab(page, guest.url)
    await page.goto(link)
    await reader.sees(".answer", "26.22 mi")
    await reader.sees(".set-aside", "You can only read it.")
    await reader.sees_count("#composer", 0)
    assert await violations(page) == []
    await reader.button("Continue as a copy").click()
    await reader.say("Think aloud")
    await reader.sees_count(".turn[data-status=COMPLETED]", 2)
    await guest.button("Revoke").click()
    await guest.sees_count(".grants li", 0)
    await page.goto(link)
    await reader.sees(".problem", "The link may have been taken back.")
    guest.check()
    reader.check(outage=True)


async def test_theme_is_the_readers_own_and_stays(guest: Tab) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    before = await guest.page.evaluate(ground)
    await guest.page.locator(".person").click()
    await guest.button("Dark").click()
    assert await guest.page.evaluate(ground) != before
    await guest.page.reload()
    await expect(guest.page.locator("html")).to_have_attribute("data-theme", "dark")
    assert await guest.page.evaluate(ground) != before
    guest.check()
