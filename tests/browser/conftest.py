"""A browser, a server with the tour, and tabs that look at it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Browser, async_playwright

from sk_agents.config.default_agents import TOUR
from sk_agents.http.page import BUILT, INDEX
from tests.browser.chromium import ARGUMENTS, chromium_path
from tests.browser.server import Server
from tests.browser.tab import Tab
from tests.missing import lacks

FAILED = pytest.StashKey[bool]()
# What a person would look at first.
STATE = """() => JSON.stringify({
  address: location.hash,
  focus: document.activeElement?.outerHTML.slice(0, 200),
  typed: document.getElementById('composer')?.value,
  windows: document.querySelectorAll('dialog[open]').length,
  turns: [...document.querySelectorAll('.turn')].map((turn) => ({
    run: turn.dataset.run, status: turn.dataset.status, text: turn.innerText.slice(0, 300),
  })),
  problems: [...document.querySelectorAll('[role=alert]')].map((part) => part.innerText),
}, null, 1)"""

NewTab = Callable[[], Awaitable[Tab]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chromium lives as long as the session, and so must the event loop that speaks to it."""
    in_session = pytest.mark.asyncio(loop_scope="session")
    here = Path(__file__).parent
    for item in items:  # of the whole suite
        if item.path.parent == here and pytest_asyncio.is_async_test(item):
            item.add_marker(in_session, append=False)


@pytest.fixture(scope="session")
def built() -> None:
    if not (BUILT / INDEX).is_file():
        lacks("page", "the page is not built: make page")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(built: None) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(FAILED, False)
    item.stash[FAILED] |= report.failed
    return report


@pytest_asyncio.fixture(loop_scope="session")
async def browser(
    chromium: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Browser]:
    """Chromium without a page, and without what earlier tests stored: each page has its context.

    A test that fails leaves in its report what its pages showed and its server wrote.
    """
    yield chromium
    has_failed = request.node.stash.get(FAILED, False)
    for context in chromium.contexts:
        for page in context.pages if has_failed else ():
            sys.stdout.write(await page.evaluate(STATE))
        await context.close()
    log = tmp_path / "server.log"
    if has_failed and log.exists():
        sys.stdout.write(log.read_text()[-4_000:])


@pytest.fixture(scope="session")
def quick_tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tour without its pace, which is for people: drawing it would be most of a test's work.
    Its long story keeps it: there is to be time for what is done while it is told. In a very long
    one there is time for several things, also on a busy machine."""
    folder = tmp_path_factory.mktemp("tour") / TOUR
    shutil.copytree(Path(str(files("sk_agents"))) / "agents" / TOUR, folder)
    path = folder / "tour.yaml"
    script = yaml.safe_load(path.read_text())
    pace, script["delay_ms"] = script["delay_ms"], 1
    (story,) = [rule for rule in script["rules"] if "story" in rule["match"]]
    for turn in story["turns"]:
        turn["delay_ms"] = pace
    slow = [{**turn, "delay_ms": 4 * pace} for turn in story["turns"]]
    script["rules"].insert(0, {"match": "very long story", "turns": slow})
    path.write_text(yaml.safe_dump(script, sort_keys=False))
    return folder / "config.yaml"


@pytest.fixture
def server(tmp_path: Path, quick_tour: Path) -> Iterator[Server]:
    server = Server(tmp_path, quick_tour)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory, quick_tour: Path) -> Iterator[Server]:
    """For tests that do not mind what others have said to it."""
    server = Server(tmp_path_factory.mktemp("shared"), quick_tour)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest_asyncio.fixture(loop_scope="session")
async def guest(browser: Browser, shared_server: Server) -> Tab:
    return await Tab(await browser.new_page(), shared_server.url).open()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, server: Server) -> Tab:
    return await Tab(await browser.new_page(), server.url).open()
