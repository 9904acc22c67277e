"""Telling the agent something while it works, and stopping it after its step."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations

PAY = {"tool": "Bank-pay", "arguments": {"to": "ada", "amount": 10}}
SCRIPT: dict[str, Any] = {
    "rules": [
        {"match": "Pay", "turns": [{"calls": [PAY]}, {"text": "Paid."}]},
        {"match": "Transfer", "turns": [{"calls": [{"tool": "Bank-transfer"}]}]},
        {"match": "only", "turns": [{"text": "As you say: {user}"}]},
    ],
    "turns": [{"text": "Yes?"}],
}


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, tmp_path: Path) -> AsyncIterator[Tab]:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT))
    server.start()
    try:
        yield await Tab(await browser.new_page(), server.url).open()
    finally:
        server.kill()


async def test_message_sent_now_waits_and_is_delivered_with_the_next_step(tab: Tab) -> None:
    await tab.say("Pay ada")
    await tab.sees_count(".approval", 1)
    await tab.page.fill("#composer", "only this once")
    await tab.button("Send now").click()
    said = tab.page.locator(".steering")
    await tab.sees(said, "only this once")
    await tab.sees(said, "Waiting for the next step of the agent")
    await expect(tab.page.locator("#composer")).to_have_value("")
    assert await violations(tab.page) == []
    await tab.page.reload()
    await tab.sees(said, "Waiting for the next step of the agent")
    await tab.button("Approve").click()
    await tab.sees(tab.turn().locator(".answer"), "As you say: only this once")
    await tab.sees(said, "Delivered to the agent")
    await tab.ended()
    await tab.sees_count(".turn[data-run]", 1)
    await tab.page.reload()
    await tab.sees(said, "Delivered to the agent")
    order = [re.compile(rf"^{kind}\b") for kind in ("call", "steering", "answer")]
    steps = tab.page.locator(".reply > :is(.call, .steering, .answer)")
    await expect(steps).to_have_class(order, timeout=WAIT_MS)
    assert await violations(tab.page) == []
    tab.check()


async def test_keyboard_alone_sends_now_and_stops_after_the_step(tab: Tab) -> None:
    await tab.say("Transfer it")
    await tab.sees(tab.call("Bank-transfer"), "running")
    await tab.page.fill("#composer", "only half of it")
    await tab.page.press("#composer", "Control+Enter")
    said = tab.page.locator(".steering")
    await tab.sees(said, "Waiting for the next step of the agent")
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("S")
    await tab.sees(tab.turn(), "Stopping after this step.")
    await tab.page.fill("#composer", "later")
    await expect(tab.button("Send now")).to_be_disabled(timeout=WAIT_MS)
    await expect(tab.button("Queue")).to_be_enabled(timeout=WAIT_MS)
    assert await violations(tab.page) == []
    await tab.page.fill("#composer", "")
    await tab.button("Stop").click()
    await tab.ended("CANCELLED")
    await tab.sees(said, "Not delivered")
    await tab.button("Write it as a new message").click()
    await expect(tab.page.locator("#composer")).to_have_value("only half of it")
    assert await violations(tab.page) == []
    tab.check()


async def test_call_that_waits_is_given_up_at_once_by_a_stop_after_the_step(tab: Tab) -> None:
    await tab.say("Pay ada")
    await tab.sees_count(".approval", 1)
    await tab.button("Stop after this step").click()
    await tab.ended("CANCELLED")
    await tab.sees_count(".meanwhile", 0)
    tab.check()


async def test_queue_and_send_now_fit_a_narrow_screen(tab: Tab) -> None:
    await tab.page.set_viewport_size({"width": 360, "height": 640})
    await tab.say("Pay ada")
    await tab.sees_count(".approval", 1)
    await tab.page.fill("#composer", "Pay bob")
    for name in ("Send now", "Queue", "Stop after this step", "Stop"):
        await expect(tab.button(name)).to_be_in_viewport(timeout=WAIT_MS)
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= 360")
    assert await violations(tab.page) == []
    await tab.button("Queue").click()
    await tab.sees(tab.turn(), "Waiting in the queue.")
    await tab.sees_count(".steering", 0)
    tab.check()


async def test_message_that_comes_too_late_stays_in_the_field(tab: Tab) -> None:
    await tab.say("Pay ada")
    await tab.sees_count(".approval", 1)
    # The page does not know yet that the run has ended.
    await tab.page.route("**/steer*", lambda route: route.fulfill(status=409, json=LATE))
    await tab.page.fill("#composer", "only this once")
    await tab.button("Send now").click()
    await tab.sees(".composer .problem", "Send it as the next message")
    await expect(tab.page.locator("#composer")).to_have_value("only this once")
    tab.check(outage=True)


LATE = {"status": 409, "code": "already_terminal", "detail": "This run has already ended."}
