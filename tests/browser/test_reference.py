"""What programs can ask for, shown and tried in a browser that reaches this server alone."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from sk_agents.http.front import TealApp
from sk_agents.http.page import BUILT, page_operations
from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab


async def reference(built: Path, root: str = "") -> httpx.Response:
    app = TealApp()
    app.add_operations(page_operations([], "memory", built))
    transport = httpx.ASGITransport(app, root_path=root)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(f"{root}/docs")


@pytest.mark.parametrize(
    ("path", "operation"), [("/docs", "/chats"), ("/tour/1.0/docs", "/tour/1.0")]
)
async def test_description_is_shown_with_nothing_from_elsewhere(
    browser: Browser, server: Server, path: str, operation: str
) -> None:
    tab = Tab(await browser.new_page(), server.url)
    await tab.page.goto(f"{server.url}{path}")
    await expect(tab.page.locator(".opblock").first).to_be_visible(timeout=WAIT_MS)
    paths = await tab.page.locator(".opblock-summary-path").all_text_contents()
    assert operation in [path.replace("\u200b", "") for path in paths]
    assert (tab.complaints, tab.foreign) == ([], [])


async def test_operation_can_be_tried(browser: Browser, server: Server) -> None:
    tab = Tab(await browser.new_page(), server.url)
    await tab.page.goto(f"{server.url}/docs")
    live = tab.page.locator(".opblock", has_text="/health/live").first
    await live.locator(".opblock-summary-control").click()
    await live.get_by_role("button", name="Try it out").click()
    await live.get_by_role("button", name="Execute").click()
    await tab.sees(live.locator(".live-responses-table .response-col_status").last, "200")
    assert (tab.complaints, tab.foreign) == ([], [])


async def test_description_that_cannot_be_had_is_told(browser: Browser, server: Server) -> None:
    tab = Tab(await browser.new_page(), server.url)
    await tab.page.route("**/openapi.json", lambda route: route.fulfill(status=503))
    await tab.page.goto(f"{server.url}/docs")
    await tab.sees("[role=alert]", "503")


async def test_page_is_found_under_the_path_of_a_proxy(built: None) -> None:
    page = await reference(BUILT, "/teal")
    assert '"/teal/assets/' in page.text
    assert '"/assets/' not in page.text
    assert "unsafe" not in page.headers["Content-Security-Policy"]


async def test_reference_that_is_not_built_leads_to_the_description(tmp_path: Path) -> None:
    page = await reference(tmp_path)
    assert page.status_code == 200
    assert 'href="openapi.json"' in page.text
    assert "make page" in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
