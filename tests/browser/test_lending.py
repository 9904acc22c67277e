"""A tool that acts in a person's name waits for that person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.browser.server import Server, write_agent
from tests.browser.tab import OUTAGE, Tab

SCRIPT: dict[str, Any] = {
    "turns": [{"calls": [{"tool": "Vault-open"}]}, {"text": "Result: {result}"}],
}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, write_agent(tmp_path / "vault", SCRIPT, plugins=["Vault"]))
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def asked(browser: Browser, server: Server) -> Tab:
    tab = await Tab(await browser.new_page(), server.url).open()
    await tab.say("open")
    await tab.sees(".approval", "This tool acts in your name.")
    await tab.sees(".approval", "sends them with this decision")
    return tab


async def test_person_continues_a_call_with_their_own_credentials(
    browser: Browser, vault: Server
) -> None:
    tab = await asked(browser, vault)
    await tab.button("Continue").click()
    await tab.sees(".approval .problem", "send the decision with your Authorization header")
    # The browser's console has the refusal, whatever the page does about it.
    assert all(OUTAGE.search(text) for text in tab.complaints)
    tab.complaints.clear()
    await tab.button("Sign in…").click()
    await tab.page.get_by_label("Token").fill("alice")
    await tab.button("Sign in").click()
    await tab.sees_count("dialog", 0)
    await tab.sees_count(tab.button("Sign in…"), 0)
    await tab.button("Continue").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "opened with Bearer alice")
    tab.check()


async def test_person_declines_and_the_agent_is_told(browser: Browser, vault: Server) -> None:
    tab = await asked(browser, vault)
    await tab.button("Decline").click()
    await tab.ended()
    await tab.sees_count(".approval", 0)
    answer = await tab.turn().locator(".answer").inner_text()
    assert "opened" not in answer
    tab.check()
