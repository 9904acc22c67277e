"""Others than the person who asked decide about a call, each in a browser of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from sk_agents.authorization.access_keys import KeysFile
from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

PAY = {"tool": "Bank-pay", "arguments": {"to": "Eve", "amount": 5}}
SCRIPT: dict[str, Any] = {"turns": [{"calls": [PAY]}, {"text": "Result: {result}"}]}
RULE: dict[str, Any] = {
    "tool": "Bank-pay",
    "then": "ask",
    "approvers": {"roles": ["approver"]},
    "not_requester": True,
    "quorum": 2,
    "share_conversation": True,
}


async def signed_in(browser: Browser, server: Server, key: str) -> Tab:
    tab = Tab(await browser.new_page(), server.url)
    await tab.page.goto(server.url)
    await tab.page.get_by_label("Access key").fill(key)
    await tab.button("Sign in").click()
    await expect(tab.page.locator(".agent").first).to_be_visible(timeout=WAIT_MS)
    return tab


async def test_two_approvers_vote_and_the_person_who_asked_sees_it(
    browser: Browser, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    texts = {name: keys.add(name, roles=["approver"])[1] for name in ("ada", "bob", "eve")}
    agent = write_agent(tmp_path / "agent", SCRIPT, approvals={"rules": [RULE]})
    server = Server(tmp_path, agent, TA_AUTHORIZER="keys", TA_KEYS_FILE=str(keys.path))
    server.start()
    try:
        ada = await signed_in(browser, server, texts["ada"])
        await ada.say("pay her")
        await ada.sees(".approval", "waits for the approval of others")
        await ada.sees(".review", "2 are missing")
        await ada.sees_count(ada.button("Approve"), 0)
        bob = await signed_in(browser, server, texts["bob"])
        await bob.page.locator(".inbox-button").click()
        await bob.sees("dialog", "asked by ada")
        await bob.sees_count(".asker a", 0)
        await bob.button("Read the conversation").click()
        await bob.sees("dialog blockquote", "pay her")
        await bob.button("Approve").click()
        await expect(bob.button("Withdraw my vote")).to_be_visible(timeout=WAIT_MS)
        await ada.sees(".review", "bob said yes")
        await ada.sees(".review", "1 yes is missing")
        eve = await signed_in(browser, server, texts["eve"])
        await eve.page.locator(".inbox-button").click()
        await eve.sees("dialog", "bob said yes")
        await eve.button("Approve").click()
        await ada.ended()
        await ada.sees(ada.turn().locator(".answer"), "paid 5 EUR to Eve")
        for tab in (ada, bob, eve):
            await tab.sees_count(tab.page.locator(".approval"), 0)
    finally:
        server.kill()
