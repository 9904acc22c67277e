"""A server that wants to know who is asking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Error, expect

from sk_agents.authorization.access_keys import KeysFile
from tests.authorization.provider import Provider, running_provider
from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations

# Everything that a page could have kept about a user.
LEFT = """async () => JSON.stringify([
  document.title, document.body.innerText, Object.entries({ ...localStorage }),
  Object.entries({ ...sessionStorage }), document.cookie, await caches.keys(),
  (await indexedDB.databases()).length,
])"""
PAY = {"tool": "Bank-pay", "arguments": {"to": "Ada", "amount": 7}}
SCRIPT: dict[str, Any] = {"turns": [{"calls": [PAY]}, {"text": "Result: {result}"}]}


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


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def bank(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("bank")
    server = Server(folder, write_agent(folder / "agent", SCRIPT), **provider.settings())
    server.start()
    provider.register_page(server.url)
    try:
        yield server
    finally:
        server.kill()


async def sign_in(tab: Tab, name: str) -> None:
    """From the page's button, over the issuer's pages, and back."""
    await tab.button("Sign in").click()
    await tab.page.fill("input[name=login]", name)
    await tab.page.fill("input[name=password]", "secret")
    await tab.page.click("button[type=submit]")
    await tab.page.click("button[type=submit]")
    await tab.sees(".person", name.capitalize())


async def test_token_is_asked_for_and_goes_with_every_request(
    browser: Browser, strict: Server
) -> None:
    tab = Tab(await browser.new_page(), strict.url)
    await tab.page.goto(strict.url)
    await tab.sees(".sign-in", "This server needs a token")
    await tab.page.get_by_label("Token").fill("alice")
    await tab.button("Sign in").click()
    await expect(tab.page.locator(".agent").first).to_be_visible(timeout=WAIT_MS)
    await tab.say("Send a postcard to Ada")
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees_count("dialog", 0)
    await tab.page.reload()
    await tab.sees(tab.turn().locator(".answer"), "because it was approved")
    tab.check()


async def test_wrong_access_key_is_refused_in_words_and_a_right_one_forgotten_at_the_end(
    browser: Browser, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    server = Server(tmp_path, TA_AUTHORIZER="keys", TA_KEYS_FILE=str(keys.path))
    key, text = keys.add("alice")
    server.start()
    try:
        tab = Tab(await browser.new_page(), server.url)
        await tab.page.goto(server.url)
        await tab.page.get_by_label("Access key").fill("teal_wrong")
        await tab.button("Sign in").click()
        await tab.sees(".problem", "This access key is unknown, revoked or expired.")
        for is_last in (False, True):
            await tab.page.get_by_label("Access key").fill(text)
            await tab.button("Sign in").click()
            await tab.sees(".person", "alice")
            await expect(tab.page.locator(".agent").first).to_be_visible(timeout=WAIT_MS)
            if not is_last:
                await tab.sign_out()
                await expect(tab.page.get_by_label("Access key")).to_be_visible(timeout=WAIT_MS)
                assert not re.search("alice|teal_", await tab.page.evaluate(LEFT))
        keys.revoke(key.key_id)
        await tab.sees("dialog", "unknown, revoked or expired")
    finally:
        server.kill()


async def test_stream_outlives_its_token_and_the_next_user_sees_nothing_of_the_first(
    browser: Browser, bank: Server, provider: Provider
) -> None:
    # The server grants a minute to clocks that differ: these tokens live for two seconds or so.
    provider.set(ttl=12, behind=70)
    tab = Tab(await browser.new_page(), bank.url)
    renewals: list[str] = []
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.on("requestfinished", lambda r: renewals.append(r.url) if "/token" in r.url else None)
    await tab.page.goto(bank.url)
    await sign_in(tab, "ada")
    await tab.say("pay her")
    await expect(tab.button("Approve")).to_be_visible(timeout=WAIT_MS)
    before = len(renewals)
    # The inbox asks every few seconds: it needs a new token while the stream goes on.
    async with asyncio.timeout(WAIT_MS / 1000):
        while len(renewals) < before + 2:
            await tab.page.wait_for_event("requestfinished")
    streams = [url for url in asked if re.search(r"/events(\?|$)", url)]
    assert len(streams) == 1
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "paid 7 EUR to Ada")
    assert [url for url in asked if re.search(r"/events(\?|$)", url)] == streams
    chat = await tab.chat_id()
    await tab.page.fill("#composer", "a secret draft of ada")
    assert not [url for url in asked if "access_token" in url or "id_token" in url]

    await tab.sign_out()
    await tab.page.get_by_role("button", name="Yes").click()
    await expect(tab.button("Sign in")).to_be_visible(timeout=WAIT_MS)
    left = await tab.page.evaluate(LEFT)
    assert not re.search(r"ada|draft|paid|eyJ", left, re.IGNORECASE), left
    await tab.page.go_back()
    await tab.page.wait_for_load_state()
    assert "paid" not in await tab.page.content()
    await tab.page.goto(bank.url)

    provider.set(ttl=3600, behind=0)
    await sign_in(tab, "bob")
    await tab.sees(".chats", "No chats yet.")
    await tab.page.goto(f"{bank.url}/#/{chat}")
    await tab.sees("main", re.compile("not exist|gone|deleted|no such", re.IGNORECASE))
    left = await tab.page.evaluate(LEFT)
    assert not re.search(r"ada\b|draft|paid|eyJ", left, re.IGNORECASE), left


async def test_reload_and_second_tab_need_no_question_and_sign_out_closes_both(
    browser: Browser, bank: Server
) -> None:
    context = await browser.new_context()
    tab = Tab(await context.new_page(), bank.url)
    await tab.page.goto(f"{bank.url}/#/some-chat")
    await sign_in(tab, "ada")
    assert await tab.page.evaluate("location.href") == f"{bank.url}/#/some-chat"
    await tab.page.reload()
    await tab.sees(".person", "Ada")
    # An issuer that is away must not catch the user in a circle: the way back leads to the button.
    unanswered = re.compile(r"/auth\?")
    await context.route(unanswered, lambda route: route.fulfill(status=503, body="away"))
    with suppress(Error):
        await tab.page.reload()
    # The page leaves for the issuer some time after it was loaded.
    await tab.sees("body", re.compile("^away$"))
    await tab.page.goto(bank.url)
    await expect(tab.button("Use another account")).to_be_visible(timeout=WAIT_MS)
    await context.unroute(unanswered)
    await tab.page.reload()
    await tab.sees(".person", "Ada")
    second = Tab(await context.new_page(), bank.url)
    await second.page.goto(bank.url)
    await second.sees(".person", "Ada")
    await tab.sign_out()
    await expect(second.button("Sign in")).to_be_visible(timeout=WAIT_MS)


async def test_next_user_finds_no_draft_of_one_who_did_not_sign_out(
    browser: Browser, bank: Server
) -> None:
    context = await browser.new_context()
    tab = Tab(await context.new_page(), bank.url)
    await tab.page.goto(bank.url)
    await sign_in(tab, "ada")
    await tab.page.fill("#composer", "a secret draft")
    await tab.page.wait_for_function("JSON.stringify({...localStorage}).includes('secret')")
    # As after a night: the issuer's session is over.
    await context.clear_cookies()
    await tab.page.reload()
    await sign_in(tab, "bob")
    await expect(tab.page.locator("#composer")).to_have_value("", timeout=WAIT_MS)
    assert not re.search(r"ada\b|secret", await tab.page.evaluate(LEFT), re.IGNORECASE)


async def test_sign_in_that_was_not_begun_here_is_refused(
    browser: Browser, bank: Server, provider: Provider
) -> None:
    tab = Tab(await browser.new_page(), bank.url)
    await tab.page.goto(f"{bank.url}/#code=stolen&state=other")
    await tab.sees(".problem", "This sign-in was not begun in this tab.")
    assert await violations(tab.page) == []
    assert "stolen" not in await tab.page.evaluate("location.href")
    page = await tab.page.request.get(bank.url)
    assert f"connect-src 'self' {provider.url};" in page.headers["content-security-policy"]
