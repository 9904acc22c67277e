"""A server that dies and comes back, a connection that is cut, tabs that stay equal."""

from __future__ import annotations

from playwright.async_api import Browser, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab, told
from tests.browser.wire import wired
from tests.patience import seconds


async def approve_all(server: Server, chat: str) -> None:
    """As somebody else does, on another machine."""
    for approval in (await server.get("/approvals"))["approvals"]:
        assert approval["chat_id"] == chat
        await server.post(f"/approvals/{approval['approval_id']}", {"approved": True})


async def test_answer_goes_on_after_the_server_was_killed_in_the_middle(
    tab: Tab, server: Server
) -> None:
    await tab.say("Tell me a long story")
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    server.kill()
    await expect(tab.page.locator(".banner")).to_be_visible(timeout=WAIT_MS)
    await tab.sees(".banner", "Trying again")
    server.start()
    await expect(tab.page.locator(".banner")).to_be_hidden(timeout=WAIT_MS)
    await expect(tab.turn()).to_have_attribute("data-status", "COMPLETED", timeout=seconds(60_000))
    await tab.sees(tab.turn().locator(".answer"), "nobody pressed Stop")
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    assert await tab.shown() == told(chat)
    tab.check(outage=True)


async def test_approval_outlives_the_server_and_is_decided_after_it(
    tab: Tab, server: Server
) -> None:
    await tab.say("Do several things at once")
    await tab.sees_count(".approval", 2)
    server.kill()
    await expect(tab.page.locator(".banner")).to_be_visible(timeout=WAIT_MS)
    server.start()
    await expect(tab.page.locator(".banner")).to_be_hidden(timeout=WAIT_MS)
    await tab.sees_count(".approval", 2)
    await tab.button("Approve").first.click()
    await tab.sees_count(".approval", 1)
    await tab.button("Approve").first.click()
    await tab.ended()
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    ours, theirs = await tab.shown(), told(chat)
    # A card stands where its call was asked about, the server lists calls as they started.
    assert [sorted(turn["steps"]) for turn in ours] == [sorted(turn["steps"]) for turn in theirs]
    await tab.sees_count(".approval", 0)
    tab.check(outage=True)


async def test_complaint_about_a_server_that_was_away_goes_when_it_is_back(
    tab: Tab, server: Server
) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    server.kill()
    await expect(tab.page.locator(".banner[role=status]")).to_be_visible(timeout=WAIT_MS)
    await tab.page.get_by_label("Chat menu").click()
    await tab.button("Pin").click()
    await tab.sees(".banner.notice", "cannot be reached")
    # Both lines stand above the conversation.
    notice = await tab.page.locator(".banner.notice").bounding_box()
    conversation = await tab.page.locator(".conversation").bounding_box()
    assert notice is not None and conversation is not None
    assert notice["y"] < conversation["y"]
    server.start()
    await expect(tab.page.locator(".banner.notice")).to_be_hidden(timeout=WAIT_MS)
    tab.check(outage=True)


async def test_inbox_does_not_say_that_nothing_waits_while_the_server_is_away(
    tab: Tab, server: Server
) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    server.kill()
    await expect(tab.page.locator(".banner[role=status]")).to_be_visible(timeout=WAIT_MS)
    await tab.page.get_by_role("button", name="Inbox").click()
    inbox = tab.page.get_by_role("dialog")
    await tab.sees(inbox.locator(".empty"), "The server cannot be reached.")
    await tab.sees(inbox.get_by_role("alert"), "The server cannot be reached.")
    server.start()
    await tab.sees(inbox, "Nothing waits for you.")
    await tab.sees(inbox, "Nothing is allowed without asking.")
    tab.check(outage=True)


async def test_message_sent_while_the_server_is_away_arrives_once(tab: Tab, server: Server) -> None:
    await tab.say("Think aloud")
    await tab.ended()
    server.kill()
    await tab.say("What time is it?")
    await tab.sees(".outgoing", "it will arrive only once")
    server.start()
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.ended()
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    assert await tab.shown() == told(chat)
    assert len(chat["interactions"]) == 2
    tab.check(outage=True)


async def test_page_goes_on_after_the_network_was_away(browser: Browser, server: Server) -> None:
    async with wired(server.port) as (wire, url):
        tab = await Tab(await browser.new_page(), url).open()
        await tab.say("Send a postcard to Ada")
        await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
        wire.cut()
        await expect(tab.page.locator(".banner")).to_be_visible(timeout=WAIT_MS)
        await approve_all(server, await tab.chat_id())
        wire.mend()
        await tab.ended()
        chat = await server.get(f"/chats/{await tab.chat_id()}")
        assert await tab.shown() == told(chat)
        tab.check(outage=True)


async def test_page_shows_the_chat_as_it_is_after_a_backup_was_restored(
    browser: Browser, server: Server
) -> None:
    async with wired(server.port) as (wire, url):
        tab = await Tab(await browser.new_page(), url).open()
        await tab.say("What time is it?")
        await tab.ended()
        server.kill()
        server.back_up()
        server.start()
        await tab.say("Think aloud")
        await tab.sees_count(".turn[data-status=COMPLETED]", 2)
        wire.cut()
        server.kill()
        server.restore()
        server.start()
        # As many events as were lost, and more: the page's place in the log exists again.
        await server.say(await tab.chat_id(), "What time is it?")
        wire.mend()
        await expect(tab.turn().locator(".said")).to_have_text("What time is it?", timeout=WAIT_MS)
        chat = await server.get(f"/chats/{await tab.chat_id()}")
        assert await tab.shown() == told(chat)
        tab.check(outage=True)


async def test_connection_that_fell_silent_in_a_sleep_is_replaced(
    browser: Browser, server: Server
) -> None:
    async with wired(server.port) as (wire, url):
        page = await browser.new_page()
        await page.clock.install()
        tab = await Tab(page, url).open()
        await tab.say("Send a postcard to Ada")
        await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
        wire.freeze()
        await approve_all(server, await tab.chat_id())
        await page.clock.fast_forward("05:00")
        await tab.ended()
        chat = await server.get(f"/chats/{await tab.chat_id()}")
        assert await tab.shown() == told(chat)
        tab.check(outage=True)


async def test_two_tabs_on_one_chat_stay_equal(browser: Browser, server: Server, tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    other = await Tab(await browser.new_page(), server.url).open(await tab.chat_id())
    await other.ended()
    await other.say("Think aloud")
    await tab.sees_count(".turn[data-status=COMPLETED]", 2)
    await tab.page.locator(".edit-message").first.click()
    await tab.page.get_by_label("New text of the message").fill("Show me a table and some code")
    await tab.page.keyboard.press("Enter")
    await tab.sees(".branches", "2/2")
    await tab.ended()
    await other.sees(".branches", "2/2")
    await other.sees_count(".turn", 1)
    await other.ended()
    assert await tab.shown() == await other.shown()
    await other.button("Previous version").click()
    await tab.sees(".branches", "1/2")
    await tab.sees_count(".turn", 2)
    await other.sees_count(".turn", 2)
    assert await tab.shown() == await other.shown()
    tab.check()
    other.check()
