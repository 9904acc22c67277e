"""Talking to an agent, by clicking."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path

from playwright.async_api import expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab, saved, told
from tests.requirements import requirement


def picture() -> bytes:
    """A red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


@requirement("S003-1.8-display")
async def test_answer_and_tools_of_a_run_are_shown_as_the_server_keeps_them(
    tab: Tab, server: Server
) -> None:
    await tab.button("Tools").click()
    await tab.button("What time is it?").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.sees(tab.call("Desk-now"), re.compile(r"done\s*[\d.]+ m?s"))
    await tab.sees(tab.turn().locator(".turn-footer"), re.compile(r"[\d,]+ tokens"))
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    assert await tab.shown() == told(chat)
    tab.check()


async def test_chat_has_a_title_and_is_found_again(tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    await tab.sees("h1", "What time is it?")
    await tab.button("New chat").click()
    await tab.say("Think aloud")
    await tab.ended()
    await tab.sees_count(".chats a", 2)
    await tab.page.fill("#search", "time")
    await tab.sees_count(".chats a:not(.passage)", 1)
    await tab.page.locator(".chats a:not(.passage)").click()
    await tab.sees("h1", "What time is it?")
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    tab.check()


async def test_thinking_is_folded(tab: Tab) -> None:
    await tab.say("Think aloud")
    await tab.ended()
    thought = tab.turn().locator(".thinking").first
    await expect(thought.locator(".markdown")).to_be_hidden()
    await thought.locator("summary").click()
    await expect(thought.locator(".markdown")).to_be_visible()
    tab.check()


async def test_output_of_a_tool_shows_while_it_runs(tab: Tab) -> None:
    await tab.say("Stream the output of a tool")
    card = tab.call("Desk-print_report")
    await tab.sees(card, "Output so far")
    await tab.sees(card, "line 2 of 8")
    await tab.ended()
    await card.locator(".call-title").click()
    await tab.sees(card, "line 8 of 8")
    tab.check()


async def test_code_is_coloured_and_can_be_copied(tab: Tab) -> None:
    context = tab.page.context
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    await tab.say("Show me a table and some code")
    await tab.ended()
    await expect(tab.turn().locator(".code .hljs-keyword").first).to_be_visible()
    await tab.turn().locator(".code").get_by_role("button", name="Copy code").click()
    await expect(tab.button("Copied")).to_be_visible()
    copied: str = await tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("from sk_agents.ska_types import BasePlugin\n")
    tab.check()


@requirement("S004-5.3-click")
async def test_stop_ends_the_run_and_keeps_what_was_said(tab: Tab) -> None:
    await tab.say("Tell me a long story")
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    await tab.button("Stop").click()
    await tab.ended("CANCELLED")
    await tab.sees(tab.turn().locator(".answer"), "Stopped here.")
    await tab.page.reload()
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    await tab.sees(tab.turn().locator(".answer"), "Stopped here.")
    tab.check()


async def test_reader_who_scrolls_up_is_left_alone_while_the_answer_grows(tab: Tab) -> None:
    await tab.page.set_viewport_size({"width": 800, "height": 320})
    await tab.say("Tell me a long story")
    await tab.sees(tab.turn().locator(".answer"), "The clerk who never forgot")
    view = tab.page.locator(".conversation")
    await view.evaluate("view => view.scrollTo(0, 0)")
    await expect(tab.button("Newest")).to_be_visible()
    await tab.sees(tab.turn().locator(".answer"), "first wrote")
    assert await view.evaluate("view => view.scrollTop") == 0
    await tab.button("Newest").click()
    await tab.sees(tab.turn().locator(".answer"), "horse came home alone")
    end = "view => view.scrollHeight - view.scrollTop - view.clientHeight < 80"
    assert await view.evaluate(end)
    tab.check()


@requirement("S004-5.4-page")
async def test_edited_message_starts_a_branch_and_the_old_one_stays(tab: Tab) -> None:
    await tab.say("What happens when I edit a message?")
    await tab.ended()
    await tab.button("Edit message").click()
    await tab.page.get_by_label("New text of the message").fill("What time is it?")
    await tab.page.keyboard.press("Enter")
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.ended()
    await tab.sees_count(".turn", 1)
    await tab.sees(".branches", "2/2")
    await tab.button("Previous version").click()
    await tab.sees(".branches", "1/2")
    await tab.sees(tab.turn().locator(".answer"), "Nothing is deleted")
    await tab.page.reload()
    await tab.sees(".branches", "1/2")
    await tab.button("Next version").click()
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    tab.check()


async def test_answer_is_given_once_more(tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    first = await tab.turn().get_attribute("data-run")
    await tab.button("Regenerate answer").click()
    await tab.sees(".branches", "2/2")
    await tab.ended()
    assert await tab.turn().get_attribute("data-run") != first
    tab.check()


async def test_message_written_while_the_agent_works_waits_for_its_turn(
    tab: Tab, server: Server
) -> None:
    await tab.say("Tell me a long story")
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    await tab.say("What time is it?")
    await tab.sees(tab.turn(), "Waiting in the queue.")
    await tab.button("Stop").click()
    await tab.sees(tab.turn().locator(".answer"), "26.22 mi")
    await tab.ended()
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    assert [entry["user_message"] for entry in chat["interactions"]] == [
        "Tell me a long story",
        "What time is it?",
    ]
    tab.check()


async def test_draft_survives_a_reload_and_is_sent_once(tab: Tab, server: Server) -> None:
    await tab.page.fill("#composer", "What time is it?")
    await tab.page.reload()
    await expect(tab.page.locator("#composer")).to_have_value("What time is it?")
    await expect(tab.page.locator(".agent").first).to_be_visible()
    await tab.button("Send").dblclick()
    await tab.ended()
    await expect(tab.page.locator("#composer")).to_have_value("")
    chat = await server.get(f"/chats/{await tab.chat_id()}")
    assert len(chat["interactions"]) == 1
    tab.check()


async def test_picture_is_sent_along(tab: Tab, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(picture())
    await tab.page.set_input_files("input[type=file]", path)
    await expect(tab.page.locator(".attachments img")).to_be_visible()
    await tab.say("What time is it?")
    await tab.ended()
    content = f"data:image/png;base64,{base64.b64encode(picture()).decode()}"
    await expect(tab.turn().locator(".said img")).to_have_attribute("src", content)
    await tab.page.reload()
    await expect(tab.turn().locator(".said img")).to_have_attribute("src", content, timeout=WAIT_MS)
    tab.check()


async def test_timeline_shows_what_took_how_long(tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    await tab.button("Show timeline").click()
    for lane in ("model", "Desk-now", "Desk-convert"):
        await expect(tab.page.locator(".lane", has_text=lane).first).to_be_visible()
    await tab.page.locator(".lane", has_text="Desk-now").click()
    # Chosen, its steps alone are in the table; chosen again, all are.
    await tab.sees_count(".steps tbody tr", 1)
    await tab.sees(".steps tbody", "Desk-now tool")
    await tab.page.locator(".lane", has_text="Desk-now").click()
    await tab.sees(".steps tbody", "model")
    tab.check()


async def test_chat_is_exported_renamed_and_put_into_the_bin(tab: Tab) -> None:
    await tab.say("What time is it?")
    await tab.ended()
    menu = tab.page.get_by_label("Chat menu")
    await menu.click()
    async with tab.page.expect_download() as saving:
        await tab.button("Export as Markdown").click()
    document = await saved(await saving.value)
    assert "**Tool** `Desk-now`" in document
    assert "What time is it?" in document
    await menu.click()
    async with tab.page.expect_download() as saving:
        await tab.button("Export as JSON").click()
    assert '"teal-chat"' in await saved(await saving.value)
    await menu.click()
    await tab.button("Rename").click()
    await tab.page.get_by_label("Title of the chat").fill("Clocks")
    await tab.page.keyboard.press("Enter")
    await tab.sees("h1", "Clocks")
    await tab.sees(".chats", "Clocks")
    await menu.click()
    await tab.button("Delete").click()
    await tab.sees(".chats", "No chats yet.")
    tab.check()
