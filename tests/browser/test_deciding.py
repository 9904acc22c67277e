"""Deciding about what an agent wants to do, by clicking."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.requirements import requirement

HIDDEN = "Ev\u202elive\u200b Alice"
SCRIPT: dict[str, Any] = {
    "rules": [
        {
            "match": "plot",
            "turns": [{"calls": [{"tool": "Bank-plot", "arguments": {}}]}, {"text": "There."}],
        },
        {
            "match": "pay",
            "turns": [
                {"calls": [{"tool": "Bank-pay", "arguments": {"to": "Eve", "amount": 5}}]},
                {"text": "Result: {result}"},
            ],
        },
        {
            "match": "hidden",
            "turns": [
                {"calls": [{"tool": "Bank-pay", "arguments": {"to": HIDDEN, "amount": 5}}]},
                {"text": "{result}"},
            ],
        },
        {
            "match": "replace",
            "turns": [
                {
                    "calls": [
                        {
                            "tool": "Bank-replace",
                            "arguments": {
                                "path": "a.txt",
                                "old_string": "one\ntwo",
                                "new_string": "one\nthree",
                            },
                        }
                    ]
                },
                {"text": "{result}"},
            ],
        },
        {
            "match": "run",
            "turns": [
                {"calls": [{"tool": "Bank-run", "arguments": {"code": "import os\nprint(1)"}}]},
                {"text": "{result}"},
            ],
        },
        {
            "match": "transfer",
            "turns": [{"calls": [{"tool": "Bank-transfer"}]}, {"text": "Result: {result}"}],
        },
        {
            "match": "colour",
            "turns": [
                {"calls": [{"tool": "Bank-colour", "arguments": {"choices": ["red", "blue"]}}]},
                {"text": "You like {result}"},
            ],
        },
        {
            "match": "word",
            "turns": [
                {"calls": [{"tool": "Bank-colour", "arguments": {"choices": []}}]},
                {"text": "You like {result}"},
            ],
        },
        {"match": "refuse", "turns": [{"fail": "refused"}]},
    ],
    "turns": [{"text": "What shall I do?"}],
}


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, write_agent(tmp_path / "bank", SCRIPT))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def visiting(browser: Browser, server: Server) -> AsyncIterator[Tab]:
    tab = await Tab(await browser.new_page(), server.url).open()
    yield tab
    tab.check()


@requirement("S004-5.2-review")
async def test_person_sees_what_will_run_and_approves_it(tab: Tab) -> None:
    await tab.button("Send a postcard to Ada").click()
    card = tab.call("Desk-send_postcard")
    await tab.sees(card, "needs approval")
    await tab.sees(card, '"to": "Ada"')
    await tab.sees(card, '"text": "Greetings from the tour!"')
    await tab.sees(card, "acts once")
    await tab.sees(card, re.compile(r"digest [0-9a-f]{12}"))
    await tab.sees(card, re.compile(r"expires in \d+ h"))
    await tab.sees(".inbox-button .count", "1")
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees(card, "done")
    await tab.sees(tab.turn().locator(".answer"), "because it was approved")
    await tab.sees_count(".count", 0)
    await card.locator(".call-title").click()
    await tab.sees(card, "Approved by")
    tab.check()


async def test_person_rejects_with_a_reason_that_the_agent_is_told(tab: Tab) -> None:
    await tab.say("Send a postcard to Ada")
    await tab.button("Reject…").click()
    await tab.page.get_by_label("Reason (the agent reads it)").fill("too kitschy")
    await tab.button("Reject").click()
    await tab.ended()
    await tab.sees(tab.call("Desk-send_postcard"), "rejected")
    await tab.sees(tab.turn().locator(".answer"), "too kitschy")
    await tab.page.reload()
    await tab.sees(tab.call("Desk-send_postcard"), "rejected")
    tab.check()


async def test_edited_arguments_are_what_runs(tab: Tab) -> None:
    await tab.say("Send a postcard to Ada")
    await tab.button("Edit…").click()
    form = tab.page.get_by_role("form", name="Edit arguments")
    await form.get_by_label("text").fill("See you soon")
    await tab.button("Approve with these arguments").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "See you soon")
    await tab.sees(tab.call("Desk-send_postcard"), "done, edited")
    tab.check()


async def test_arguments_that_break_the_schema_cannot_be_sent(
    browser: Browser, bank: Server
) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("pay")
        await tab.button("Edit…").click()
        form = tab.page.get_by_role("form", name="Edit arguments")
        approve = tab.button("Approve with these arguments")
        await expect(approve).to_be_enabled()
        await form.get_by_label("amount").fill('"five"')
        await tab.sees(form, "amount: Instance type")
        await expect(approve).to_be_disabled()
        await form.get_by_label("amount").fill("seven")
        await tab.sees(form, "amount: is not JSON")
        await form.get_by_label("amount").fill("7")
        await form.get_by_label("currency").select_option("USD")
        await approve.click()
        await tab.sees(tab.turn().locator(".answer"), "paid 7 USD to Eve")


async def test_picture_of_a_tool_is_shown_and_its_file_saved_also_after_a_reload(
    browser: Browser, bank: Server
) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("plot")
        await tab.ended()
        for _ in range(2):
            picture = tab.page.get_by_alt_text("plot.png")
            await expect(picture).to_be_visible(timeout=WAIT_MS)
            assert await picture.evaluate("img => img.naturalWidth") == 1
            async with tab.page.expect_download() as saving:
                await tab.page.get_by_role("button", name="Save table.csv").click()
            saved = await saving.value
            assert saved.suggested_filename == "table.csv"
            assert (await saved.path()).read_text() == "a,b"
            await tab.page.reload()
        tab.check()


async def test_several_calls_are_decided_one_by_one(tab: Tab) -> None:
    await tab.say("Do several things at once")
    await tab.sees_count(".approval", 2)
    await tab.sees(".inbox-button .count", "2")
    grace = tab.page.locator(".call", has_text="Grace")
    await grace.get_by_role("button", name="Approve", exact=True).click()
    await tab.sees_count(".approval", 1)
    await tab.sees(tab.page.locator(".approval"), "Ada")
    await tab.button("Reject…").click()
    await tab.button("Reject").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "not all of them were allowed")
    tab.check()


async def test_tool_allowed_for_a_chat_is_not_asked_about_until_taken_back(tab: Tab) -> None:
    await tab.say("Send a postcard to Ada")
    await tab.button("Allow in this chat").click()
    await tab.ended()
    await tab.say("Send a postcard to Grace")
    await tab.sees_count(".turn[data-status=COMPLETED]", 2)
    await tab.sees(tab.turn().locator(".answer"), "Grace")
    await tab.page.locator(".inbox-button").click()
    await tab.sees(".grants", "Desk-send_postcard")
    await tab.button("Revoke").click()
    await tab.sees_count(".grants", 0)
    await tab.button("Close").click()
    await tab.say("Send a postcard to Linus")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    tab.check()


async def test_inbox_decides_across_chats(tab: Tab) -> None:
    await tab.say("Send a postcard to Ada")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    await tab.button("New chat").click()
    await tab.say("Send a postcard to Grace")
    await tab.sees(".inbox-button .count", "2")
    await tab.page.locator(".inbox-button").click()
    inbox = tab.page.get_by_role("dialog")
    await tab.sees_count(inbox.locator(".approval"), 2)
    await (
        inbox.locator(".approval", has_text="Ada")
        .get_by_role("button", name="Approve", exact=True)
        .click()
    )
    await tab.sees_count(inbox.locator(".approval"), 1)
    await inbox.locator(".asker a").click()
    await tab.sees(tab.turn().locator(".said"), "Grace")
    tab.check()


async def test_decision_of_another_tab_shows_at_once(
    browser: Browser, server: Server, tab: Tab
) -> None:
    await tab.say("Send a postcard to Ada")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    other = await Tab(await browser.new_page(), server.url).open(await tab.chat_id())
    await other.button("Approve").click()
    await tab.ended()
    await tab.sees_count(".approval", 0)
    assert await tab.shown() == await other.shown()
    tab.check()
    other.check()


async def test_hidden_characters_of_arguments_are_made_visible(
    browser: Browser, bank: Server
) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("hidden")
        marks = tab.page.locator(".approval .hidden-character")
        await expect(marks).to_have_text(
            ["U+202E right-to-left override", "U+200B zero-width space"], timeout=WAIT_MS
        )


async def test_change_of_a_file_is_shown_as_a_difference(browser: Browser, bank: Server) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("replace")
        await tab.sees(".difference .removed", "two")
        await tab.sees(".difference .added", "three")


async def test_code_to_be_run_is_coloured(browser: Browser, bank: Server) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("run")
        await expect(tab.page.locator(".approval .hljs-keyword").first).to_have_text(
            "import", timeout=WAIT_MS
        )


async def test_failure_says_its_code_and_can_be_tried_again(browser: Browser, bank: Server) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("refuse")
        await tab.ended("FAILED")
        await tab.sees(".failure", re.compile(r"\w+ id [0-9a-f]{8}"))
        await tab.button("Try again").click()
        await tab.sees(".branches", "2/2")
        await tab.ended("FAILED")


async def test_call_of_unknown_outcome_is_decided_by_the_user(
    browser: Browser, bank: Server
) -> None:
    tab = await Tab(await browser.new_page(), bank.url).open()
    await tab.say("transfer")
    await tab.sees(tab.call("Bank-transfer"), "running")
    bank.kill()
    bank.start()
    await tab.sees(".approval", "it is unknown whether it took effect")
    await tab.sees_count(".call", 1)
    await tab.button("Give up on it").click()
    await tab.ended()
    tab.check(outage=True)


async def test_question_of_a_tool_is_answered_by_choice_or_in_words(
    browser: Browser, bank: Server
) -> None:
    async with visiting(browser, bank) as tab:
        await tab.say("colour")
        await tab.sees(".approval", "Which colour?")
        await tab.button("blue").click()
        await tab.sees(tab.turn().locator(".answer"), "You like blue")
        await tab.ended()
        await tab.say("word")
        await tab.page.get_by_label("Your answer").fill("a dark green")
        await tab.button("Answer").click()
        await tab.sees(tab.turn().locator(".answer"), "You like a dark green")
        await tab.ended()
        await tab.sees_count(".approval", 0)
