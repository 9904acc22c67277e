"""A browser, a server with the tour, and tabs that look at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from sk_agents.http.page import BUILT, INDEX
from tests.browser.chromium import ARGUMENTS, chromium_path
from tests.browser.server import Server
from tests.browser.tab import Tab

NewTab = Callable[[], Awaitable[Tab]]


@pytest.fixture
def built() -> None:
    if not (BUILT / INDEX).is_file():
        pytest.skip("the page is not built: make page")


@pytest.fixture
async def browser(built: None) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
async def tab(browser: Browser, server: Server) -> Tab:
    return await Tab(await browser.new_page(), server.url).open()
