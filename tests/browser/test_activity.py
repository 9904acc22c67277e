"""The operator's view of who is at work, and what everyone sees of their budgets and usage."""

from __future__ import annotations

from pathlib import Path

import httpx
from playwright.async_api import Browser, expect

from tests.browser.server import TIMEOUT, Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

SCRIPT = {"turns": [{"text": "Hello."}]}


async def test_operator_sees_sessions_budgets_and_usage(browser: Browser, tmp_path: Path) -> None:
    agent = write_agent(tmp_path / "agent", SCRIPT)
    server = Server(tmp_path, agent, TA_BUDGET_DAY="1000000 tokens", TA_BUDGET_RUN="90000 tokens")
    server.start()
    try:
        page = await browser.new_page(locale="en-GB")
        tab = await Tab(page, server.url).open()
        await tab.say("a canary sings")
        await tab.ended()
        await page.get_by_role("button", name="Activity").click()
        window = page.get_by_role("dialog", name="Activity")
        conversations = window.get_by_role("table", name="Conversations")
        await expect(conversations.get_by_role("row")).to_have_count(2, timeout=WAIT_MS)
        await expect(conversations).to_contain_text("done")
        await expect(window).not_to_contain_text("canary")
        await window.get_by_role("button", name="Look again").click()
        await window.get_by_role("button", name="Budgets").click()
        budgets = window.get_by_role("region", name="What is left of budgets")
        await expect(budgets).to_contain_text("1,000,000 tokens", timeout=WAIT_MS)
        await expect(window).to_contain_text("A single turn may spend: 90000 tokens.")
        await window.get_by_role("button", name="Usage").click()
        plot = window.get_by_role("img", name="Tokens a day since")
        await expect(plot).to_be_visible(timeout=WAIT_MS)
        await page.keyboard.press("Escape")
        await expect(window).to_be_hidden(timeout=WAIT_MS)
        tab.check()
    finally:
        server.kill()


async def test_usage_is_plotted_for_one_agent(browser: Browser, tmp_path: Path) -> None:
    agents = [write_agent(tmp_path / name, SCRIPT, name=name) for name in ("first", "second")]
    server = Server(tmp_path, *agents, TA_BUDGET_USER="1000000 tokens")
    server.start()
    try:
        page = await browser.new_page(locale="en-GB")
        tab = await Tab(page, server.url).open()
        await tab.say("hello")
        await tab.ended()
        longer = {"user_message": "a much longer message", "agent": "second"}
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            (await client.post("/chats/other/interactions", json=longer)).raise_for_status()
        rows = (await server.get("/usage"))["rows"]
        tokens = {row["agent"]: row["prompt_tokens"] + row["completion_tokens"] for row in rows}
        await page.get_by_role("button", name="Settings").click()
        window = page.get_by_role("dialog", name="Settings")
        await window.get_by_role("button", name="Usage").click()
        caption = window.locator("figcaption")
        for agent in ("all", "first", "second"):
            total = tokens.get(agent, sum(tokens.values()))
            await window.get_by_role("combobox", name="Agent").select_option(label=agent)
            await expect(caption).to_contain_text(f"{total:,} in total", timeout=WAIT_MS)
        await expect(window.get_by_role("region", name="What is left of budgets")).to_contain_text(
            "a user's day"
        )
        tab.check()
    finally:
        server.kill()
