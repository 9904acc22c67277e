"""A server that wants to know who is asking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Server]:
    authorizer = "sk_agents.testing.header_authorizer"
    named = {"TA_AUTHORIZER_MODULE": authorizer, "TA_AUTHORIZER_CLASS": "HeaderAuthorizer"}
    server = Server(tmp_path, **named)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def test_token_is_asked_for_and_goes_with_every_request(
    browser: Browser, strict: Server
) -> None:
    tab = Tab(await browser.new_page(), strict.url)
    await tab.page.goto(strict.url)
    await tab.sees("dialog", "This server needs a token")
    await tab.page.get_by_label("Token").fill("alice")
    await tab.button("Sign in").click()
    await expect(tab.page.locator(".agent").first).to_be_visible(timeout=WAIT_MS)
    await tab.say("Send a postcard to Ada")
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees_count("dialog", 0)
    await tab.page.reload()
    await tab.sees(tab.turn().locator(".answer"), "because it was approved")
    # The refusals before the token are in the browser's console, whatever a page does.
    tab.check(outage=True)
