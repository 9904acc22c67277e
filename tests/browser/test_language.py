"""The page in the language of its reader."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Route, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab


async def test_browser_that_prefers_german_gets_german(
    browser: Browser, shared_server: Server
) -> None:
    context = await browser.new_context(locale="de-AT")
    tab = await Tab(await context.new_page(), shared_server.url).open()
    await expect(tab.page.locator("html")).to_have_attribute("lang", "de")
    await tab.sees(".welcome", "Was möchten Sie tun?")
    await tab.say("What time is it?")
    await tab.ended()
    # Numbers and times are German, too: a comma before the tenths, or a whole number of them.
    await tab.sees(".facts", re.compile(r"\d+ Token"))
    await tab.sees(".chats h2", "Heute")
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("t")
    await tab.sees(tab.page.get_by_role("dialog"), re.compile(r"(\d ms|\d,\d s) insgesamt"))
    tab.check()


async def test_language_is_chosen_in_the_settings_and_kept(guest: Tab) -> None:
    loaded: list[str] = []
    guest.page.on("request", lambda request: loaded.append(request.url))
    await guest.page.fill("#composer", "not sent yet")
    await guest.page.locator(".person").click()
    await guest.button("Deutsch").click()
    await guest.sees(guest.page.get_by_role("dialog"), "Sprache")
    # The dictionary comes when it is wanted, and what was written stays.
    assert [url for url in loaded if "german" in url]
    await guest.button("Schließen").click()
    await expect(guest.page.locator("#composer")).to_have_value("not sent yet")
    await expect(guest.page.locator("html")).to_have_attribute("lang", "de")
    await guest.page.reload()
    await guest.sees(".welcome", "Was möchten Sie tun?")
    await guest.page.locator(".person").click()
    await guest.button("English").click()
    await guest.sees(guest.page.get_by_role("dialog"), "Language")
    await expect(guest.page.locator("html")).to_have_attribute("lang", "en")
    guest.check()


async def test_page_without_its_dictionary_stays_english_and_says_so(
    browser: Browser, shared_server: Server
) -> None:
    async def refuse(route: Route) -> None:
        await route.abort()

    context = await browser.new_context(locale="de")
    page = await context.new_page()
    await page.route("**/assets/german*", refuse)
    tab = await Tab(page, shared_server.url).open()
    await tab.sees(".banner.notice", "The texts of this language could not be loaded.")
    await tab.sees(".welcome", "What would you like to do?")
    await expect(page.locator("html")).to_have_attribute("lang", "en", timeout=WAIT_MS)
    tab.check(outage=True)
