"""What people do without thinking about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Route, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_conversation import picture

PAY: dict[str, Any] = {"tool": "Bank-pay", "arguments": {"to": "ada", "amount": 1}}
SPEAKING: dict[str, Any] = {
    "turns": [{"text": "I will pay Ada now.", "calls": [PAY]}, {"text": "Done."}]
}
# A file that is dropped at this element, as the browser hands it over.
DROP_ON = """([where, name]) => {
  const data = new DataTransfer();
  data.items.add(new File(['some words'], name, {type: 'text/plain'}));
  const over = new DragEvent('dragover', {dataTransfer: data, bubbles: true, cancelable: true});
  const made = new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
  const target = document.querySelector(where);
  return [over, made].map((event) => !target.dispatchEvent(event));
}"""

# Follows a link or presses a button, and looks again before the browser's next task.
AT_ONCE = """async (where) => {
  const link = document.querySelector(`.chats a[href='${where}']`);
  const button = [...document.querySelectorAll('button')].find((b) => b.innerText.trim() === where);
  (link ?? button).click();
  for (let at = 0; at < 20; at += 1) await null;
  return [document.querySelector('.welcome') !== null, location.hash];
}"""


# A text in the clipboard, pasted into the message field.
PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData('text/plain', text);
  const field = document.getElementById('composer');
  const how = {clipboardData: data, bubbles: true, cancelable: true};
  field.dispatchEvent(new ClipboardEvent('paste', how));
}"""


async def test_all_of_several_chosen_files_are_attached(guest: Tab, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path in paths:
        path.write_bytes(picture())
    (tmp_path / "notes.md").write_text("words")
    await guest.page.set_input_files("input[type=file]", [*paths, tmp_path / "notes.md"])
    await guest.sees_count(".attachments li", 5)
    guest.check()


async def test_message_sent_before_the_agents_are_known_goes_when_they_are(guest: Tab) -> None:
    answered = asyncio.Event()

    async def hold(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await guest.page.route("**/agents", hold)
    await guest.page.reload()
    await guest.say("hello")
    await guest.sees_count(guest.turn(), 0)
    answered.set()
    await guest.ended()
    await guest.sees_count(".turn[data-run]", 1)
    guest.check()


async def test_new_chat_is_shown_before_the_next_key_is_pressed(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    chat = await guest.chat_id()
    for where, title in (("New chat", "New chat"), (f"#/{chat}", "What time is it?")):
        # Rendered before the browser handles anything else that the user does.
        shown = await guest.page.evaluate(AT_ONCE, where)
        assert shown == [title == "New chat", f"#/{'' if title == 'New chat' else chat}"]
        await guest.sees("main h1", title)
    await guest.page.go_back()
    await guest.sees("main h1", "New chat")
    guest.check()


async def test_message_that_arrives_late_leaves_the_next_chat_alone(guest: Tab) -> None:
    arriving = asyncio.Event()

    async def hold(route: Route) -> None:
        await arriving.wait()
        await route.continue_()

    await guest.page.route("**/interactions", hold)
    await guest.say("first of two")
    await guest.sees(".outgoing", "first of two")
    await guest.button("New chat").click()
    await guest.page.fill("#composer", "second of two")
    arriving.set()
    await guest.sees(".chats", "first of two")
    # The server does not have the chat that is shown: an address of it would lead nowhere.
    assert await guest.page.evaluate("location.hash") == "#/"
    await guest.page.unroute("**/interactions")
    await guest.page.reload()
    await expect(guest.page.locator("#composer")).to_have_value("second of two")
    await guest.page.press("#composer", "Enter")
    await guest.ended()
    await guest.sees_count(".turn[data-run]", 1)
    guest.check()


async def test_message_on_its_way_is_found_there_by_those_who_come_back(guest: Tab) -> None:
    await guest.say("one that has arrived")
    await guest.ended()
    chat = await guest.chat_id()
    arriving = asyncio.Event()

    async def hold(route: Route) -> None:
        await arriving.wait()
        await route.continue_()

    await guest.page.route("**/interactions", hold)
    await guest.say("one on its way")
    await guest.sees(".outgoing", "one on its way")
    await guest.button("New chat").click()
    await guest.sees_count(".outgoing", 0)
    await guest.page.locator(f".chats a[href='#/{chat}']").click()
    await guest.sees(".outgoing", "one on its way")
    composer = guest.page.locator("#composer")
    await expect(composer).to_have_value("")
    await composer.fill("the next one")
    arriving.set()
    await guest.sees_count(".turn[data-run]", 2)
    await guest.ended()
    await expect(composer).to_have_value("the next one")
    await guest.page.unroute("**/interactions")
    await guest.page.reload()
    await guest.sees_count(".turn[data-run]", 2)
    await expect(composer).to_have_value("the next one")
    guest.check()


async def test_what_is_written_while_a_message_is_refused_is_kept(guest: Tab) -> None:
    refused = asyncio.Event()

    async def refuse(route: Route) -> None:
        await refused.wait()
        await route.fulfill(status=400, json={"detail": "Not today."})

    await guest.page.route("**/interactions", refuse)
    await guest.say("one")
    await guest.sees(".outgoing", "one")
    await guest.page.fill("#composer", "two")
    refused.set()
    await expect(guest.page.locator("#composer")).to_have_value("one\n\ntwo", timeout=WAIT_MS)
    await guest.sees("form [role=alert]", "Not today.")


async def test_message_sent_in_haste_goes_after_the_one_before(guest: Tab) -> None:
    taken = asyncio.Event()

    async def hold(route: Route) -> None:
        await taken.wait()
        await route.continue_()

    await guest.page.route("**/interactions", hold)
    await guest.say("What time is it?")
    await guest.sees(".outgoing", "What time is it?")
    await guest.say("What else is there?")
    await guest.sees_count(guest.turn(), 0)
    taken.set()
    await guest.sees_count(".turn[data-status=COMPLETED]", 2)
    await expect(guest.page.locator("#composer")).to_have_value("")
    guest.check()


async def test_control_and_enter_send_also_when_nothing_is_at_work(guest: Tab) -> None:
    await guest.page.fill("#composer", "What time is it?")
    await guest.page.press("#composer", "Control+Enter")
    await guest.ended()
    guest.check()


async def test_text_beyond_a_message_is_pasted_as_a_file(guest: Tab) -> None:
    await guest.page.evaluate(PASTE, "é" * 140_000)
    await guest.sees(".attachments li", "pasted.txt")
    await guest.page.fill("#composer", "x" * 262_145)
    await guest.page.press("#composer", "Enter")
    await guest.sees("form [role=alert]", "A message takes 256 KB of text.")
    await guest.page.fill("#composer", "What is in it?")
    await guest.page.press("#composer", "Enter")
    await guest.ended()
    await guest.sees_count("form [role=alert]", 0)
    guest.check()


async def test_empty_message_field_has_one_line_in_a_narrow_window(
    browser: Browser, shared_server: Server
) -> None:
    page = await browser.new_page(viewport={"width": 320, "height": 800}, locale="de-DE")
    tab = await Tab(page, shared_server.url).open()
    field = page.locator("#composer")
    before = await field.evaluate("field => field.offsetHeight")
    await tab.say("Tell me a long story")
    await tab.sees(".meanwhile", "Nach diesem Schritt anhalten")
    await expect(field).to_have_value("")
    assert await field.evaluate("field => field.offsetHeight") == before
    # What stands in it is not cut off.
    assert (
        await field.evaluate(
            "field => { field.value = field.placeholder; return field.scrollHeight; }"
        )
        <= before
    )
    await field.fill("")
    line = await page.locator(".meanwhile").evaluate("part => part.offsetHeight")
    assert line < 60
    tab.check()


async def test_chat_that_does_not_exist_leads_to_a_new_one(guest: Tab) -> None:
    await guest.page.goto(f"{guest.url}/#/chat_of_nobody")
    await guest.sees(".gone", "This chat does not exist.")
    await guest.sees_count("#composer", 0)
    await guest.page.locator(".gone").get_by_role("button", name="New chat").click()
    await guest.sees(".welcome", "What would you like to do?")
    guest.check(outage=True)


async def test_file_dropped_beside_the_message_field_is_attached(guest: Tab) -> None:
    # Who prevents nothing lets the browser leave the page for the file.
    assert await guest.page.evaluate(DROP_ON, [".sidebar", "a.txt"]) == [True, True]
    await guest.sees(".attachments", "a.txt")
    await guest.page.evaluate(DROP_ON, [".conversation", "b.txt"])
    await guest.sees(".attachments", "b.txt")
    await guest.sees_count(".attachments li", 2)
    guest.check()


async def test_deleted_chat_comes_back_with_one_click_or_out_of_the_bin(guest: Tab) -> None:
    await guest.say("What time is it?")
    await guest.ended()
    chat = await guest.chat_id()
    menu = guest.page.get_by_label("Chat menu")
    await menu.click()
    box = await guest.button("Delete").bounding_box()
    assert box is not None
    await guest.page.mouse.dblclick(box["x"] + 5, box["y"] + 5)
    await guest.sees(".toast", "is in the bin.")
    await expect(guest.page.locator(f".chats a[href='#/{chat}']")).to_have_count(0)
    await guest.button("Undo").click()
    await guest.sees(guest.turn().locator(".answer"), "26.22 mi")
    await guest.sees_count(f".chats a[href='#/{chat}']", 1)
    await menu.click()
    await guest.button("Delete").click()
    await guest.button("Bin").click()
    await guest.page.locator(f".chats a[href='#/{chat}']").click()
    await guest.sees(".set-aside", "This chat is in the bin.")
    guest.page.once("dialog", lambda dialog: dialog.accept())
    await guest.button("Delete permanently").click()
    await guest.sees(".welcome", "What would you like to do?")
    await guest.sees_count(f".chats a[href='#/{chat}']", 0)
    guest.check()


async def test_search_says_that_the_server_is_away(tab: Tab, server: Server) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    server.kill()
    await tab.page.fill("#search", "nothing like it")
    await tab.sees(".list-problem", "The server cannot be reached. This list may be out of date.")
    server.start()
    await tab.page.fill("#search", "time")
    await tab.sees_count(".list-problem", 0)
    await tab.sees_count(".chats a[aria-current]", 1)
    tab.check(outage=True)


async def test_what_is_said_before_a_call_is_shown_as_said(
    browser: Browser, tmp_path: Path
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SPEAKING))
    server.start()
    try:
        tab = await Tab(await browser.new_page(), server.url).open()
        await tab.say("pay her")
        remark = tab.turn().locator(".remark")
        await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
        await tab.sees(remark, "I will pay Ada now.")
        await tab.sees_count(".thinking", 0)
        await tab.button("Approve").click()
        await tab.ended()
        await tab.page.reload()
        await tab.sees(remark, "I will pay Ada now.")
        await tab.sees_count(".thinking", 0)
        # Another chat's call is not this chat's: only the inbox counts both.
        await tab.button("New chat").click()
        await tab.say("pay him")
        await tab.sees(".waiting", "1 waiting")
        await tab.button("New chat").click()
        await tab.say("pay them")
        await tab.sees(".waiting", "1 waiting")
        await tab.sees(".inbox-button .count", "2")
        await tab.page.locator(".inbox-button").click()
        entries = tab.page.get_by_role("dialog").locator(".asker")
        await tab.sees(entries.nth(0), "pay him")
        await tab.sees(entries.nth(1), "pay them")
        # The one user of a server without sign-in need not be named.
        await tab.sees(entries.nth(0), "asked through banker")
        tab.check()
    finally:
        server.kill()
