"""A run once more, event by event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

PAY: dict[str, Any] = {"tool": "Bank-pay", "arguments": {"to": "ada", "amount": 1}}
SCRIPT: dict[str, Any] = {
    "turns": [{"text": "I will pay Ada.", "calls": [PAY]}, {"text": "She has the money."}]
}
PRICE = {"prompt": 2.5, "completion": 10, "currency": "EUR"}


async def test_run_is_replayed_with_keys_buttons_and_the_slider(
    browser: Browser, tmp_path: Path
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT, price=PRICE))
    server.start()
    try:
        tab = await Tab(await browser.new_page(locale="en-GB"), server.url).open()
        await tab.say("pay her")
        await tab.button("Approve").click()
        await tab.ended()
        # Also in a tab that has not seen it happen.
        await tab.page.reload()
        await tab.ended()
        await tab.page.keyboard.press("Escape")
        await tab.page.keyboard.press("p")
        replay = tab.page.get_by_role("dialog")
        step = replay.get_by_role("status")
        shown = replay.locator(".turn")
        await tab.sees(step, "The run begins")
        await tab.sees(shown, "pay her")
        await tab.sees_count(shown.locator(".call"), 0)
        await tab.page.keyboard.press("ArrowRight")
        await tab.sees(step, "The agent says something")
        await tab.button("Step on").click()
        await tab.sees(step, "Pay needs a decision")
        await tab.sees(step, "tokens · €0.0")
        await tab.sees(shown.locator(".call"), "needs approval")
        # It is past: nothing can be decided, and nothing is known of what came later.
        await expect(tab.button("Approve")).to_have_count(0)
        await expect(shown).not_to_contain_text("She has the money.")
        slider = replay.get_by_role("slider", name="Step")
        await slider.fill(str(await slider.get_attribute("max")))
        await tab.sees(step, "The run is over")
        await tab.sees(shown.locator(".answer"), "She has the money.")
        await tab.button("Step back").click()
        await tab.page.keyboard.press("Home")
        await tab.sees(step, "The run begins")
        await expect(tab.button("Step back")).to_be_disabled()
        await tab.page.keyboard.press("Escape")
        await expect(replay).to_have_count(0)
        tab.check()
    finally:
        server.kill()


async def test_timeline_has_tokens_and_money_of_each_step_and_leads_to_the_replay(
    browser: Browser, tmp_path: Path
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT, price=PRICE))
    server.start()
    try:
        tab = await Tab(await browser.new_page(locale="en-GB"), server.url).open()
        await tab.say("pay her")
        await tab.button("Approve").click()
        await tab.ended()
        await tab.button("Show timeline").click()
        steps = tab.page.locator(".steps tbody tr")
        await tab.sees_count(steps, 4)
        for at, words in ((0, "model"), (1, "waiting for you"), (2, "tool"), (3, "model")):
            await tab.sees(steps.nth(at), words)
            cells = await steps.nth(at).locator("td").all_text_contents()
            assert ("€" in cells[-1]) == (words == "model"), cells
            assert cells[-2].isdigit() == (words == "model"), cells
        await tab.button("Replay step by step").click()
        await expect(tab.page.get_by_role("slider")).to_be_focused(timeout=WAIT_MS)
        tab.check()
    finally:
        server.kill()
