"""What a run used, in tokens and, where that is known, in money."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

SCRIPT = {"turns": [{"text": "Four words, no more."}]}
PRICE = {"prompt": 2.5, "completion": 10, "currency": "EUR"}


@pytest.mark.parametrize("price", [PRICE, None], ids=["price", "no price"])
async def test_tokens_of_a_run_are_shown_and_money_where_there_is_a_price(
    browser: Browser, tmp_path: Path, price: dict[str, object] | None
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT, price=price))
    server.start()
    try:
        page = await browser.new_page(locale="en-GB")
        tab = await Tab(page, server.url).open()
        await tab.say("hello")
        await tab.ended()
        (told,) = (await server.get(f"/chats/{await tab.chat_id()}"))["interactions"]
        facts = tab.turn().locator(".facts")
        tokens = told["usage"]["total_tokens"]
        await tab.sees(facts, f"{tokens} tokens")
        if price is None:
            assert told["cost"] is None
            await expect(facts).not_to_contain_text(re.compile("[€$]"))
        else:
            amount = told["cost"]["amount"]
            assert amount > 0
            money = facts.get_by_title(f"{amount} EUR")
            await expect(money).to_have_text(re.compile(r"^€0\.000\d{3}$"), timeout=WAIT_MS)
            await page.reload()
            await expect(money).to_be_visible(timeout=WAIT_MS)
        tab.check()
    finally:
        server.kill()
