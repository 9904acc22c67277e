"""What the built-in tools would do, seen before it is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.sandbox.sandbox import Sandbox
from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations
from tests.missing import lacks

FILES = ["read_file", "write_file", "edit_file", "delete_file"]
LINES = [f"line {number}" for number in range(1, 41)]
# Each line of it tries to look like a part of the difference, or like a part of the page.
HOSTILE = "@@ -1,9 +1,9 @@\n+++ b/harmless.txt\n<img src=x onerror=alert(1)>\nde\u202etcelfer\n"


def asking(word: str, tool: str, **arguments: Any) -> dict[str, Any]:
    turns = [{"calls": [{"tool": tool, "arguments": arguments}]}, {"text": "Result: {result}"}]
    return {"match": word, "turns": turns}


SCRIPT = {
    "rules": [
        asking("edit", "Files-edit_file", path="a.txt", old_text="line 20", new_text="new 20"),
        asking("write", "Files-write_file", path="b/new.txt", content="one\ntwo\n"),
        asking("delete", "Files-delete_file", path="hostile.txt"),
        asking("miss", "Files-edit_file", path="a.txt", old_text="nowhere", new_text="x"),
        asking("long", "Files-delete_file", path="long.txt"),
        asking("python", "Code-run_python", code="import os\nprint(os.getcwd())\n"),
        asking("shell", "Code-run_shell", script="for f in *; do echo $f; done"),
    ],
    "turns": [{"text": "What shall I do?"}],
}


def served(folder: Path, tools: Sequence[str]) -> Iterator[Server]:
    builtin = {"tools": list(tools), "workspace": "work", "workspace_for": "everyone"}
    path = write_agent(folder / "agent", SCRIPT, name="clerk", builtin=builtin)
    work = path.parent / "work"
    work.mkdir()
    (work / "a.txt").write_text("\n".join([*LINES, ""]))
    (work / "hostile.txt").write_text(HOSTILE)
    (work / "long.txt").write_text("\n".join(map(str, range(1, 1001))) + "\n")
    server = Server(folder, path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def clerk(tmp_path: Path) -> Iterator[Server]:
    yield from served(tmp_path, FILES)


@pytest.fixture
def coder(tmp_path: Path) -> Iterator[Server]:
    try:
        Sandbox().check()
    except ConfigurationError as error:
        lacks("sandbox", f"NOT SHOWN HERE: {error}")
    yield from served(tmp_path, ["run_python", "run_shell"])


async def opened(browser: Browser, server: Server) -> Tab:
    return await Tab(await browser.new_page(), server.url).open()


async def rows(card: Locator, kind: str) -> list[str]:
    await expect(card.locator(".difference").first).to_be_visible(timeout=WAIT_MS)
    return await card.locator(f".difference .{kind} .line").all_text_contents()


async def text_of(path: Path) -> str | None:
    def read() -> str | None:
        return path.read_text() if path.exists() else None

    return await asyncio.to_thread(read)


async def test_edit_of_a_file_is_shown_where_it_is_made_and_made_once_approved(
    browser: Browser, clerk: Server, tmp_path: Path
) -> None:
    tab = await opened(browser, clerk)
    await tab.say("edit")
    card = tab.page.locator(".approval")
    await tab.sees(card, "What it would change in a.txt")
    await expect(card.locator(".difference .removed .line")).to_have_text("removed: line 20")
    await expect(card.locator(".difference .added .line")).to_have_text("added: new 20")
    assert await rows(card, "same") == [f"line {at}" for at in (17, 18, 19, 21, 22, 23)]
    numbers = card.locator(".difference .removed .line-numbers span")
    await expect(numbers).to_have_text(["20", ""])
    # The arguments themselves stay in sight: they are what is approved.
    await tab.sees(card, '"old_text": "line 20"')
    file = tmp_path / "agent" / "work" / "a.txt"
    assert "line 20" in (await text_of(file) or "")
    await tab.button("Approve").click()
    await tab.ended()
    assert "new 20" in (await text_of(file) or "")
    tab.check()


async def test_new_file_is_shown_as_lines_that_are_added(
    browser: Browser, clerk: Server, tmp_path: Path
) -> None:
    tab = await opened(browser, clerk)
    await tab.say("write")
    card = tab.page.locator(".approval")
    await tab.sees(card, "b/new.txt")
    assert len(await rows(card, "added")) == 2
    assert await rows(card, "removed") == []
    await tab.button("Reject…").click()
    await tab.button("Reject").click()
    await tab.ended()
    assert await text_of(tmp_path / "agent" / "work" / "b" / "new.txt") is None
    tab.check()


async def test_what_stands_in_a_file_cannot_pass_for_something_else(
    browser: Browser, clerk: Server
) -> None:
    tab = await opened(browser, clerk)
    await tab.say("delete")
    card = tab.page.locator(".approval")
    await tab.sees(card, "What it would change in hostile.txt")
    removed = await rows(card, "removed")
    assert [line.partition(": ")[2] for line in removed] == [
        "@@ -1,9 +1,9 @@",
        "+++ b/harmless.txt",
        "<img src=x onerror=alert(1)>",
        "deU+202E right-to-left overridetcelfer",
    ]
    await tab.sees_count(card.locator(".difference .place"), 1)
    await tab.sees_count(card.locator(".difference .added"), 0)
    await tab.sees_count(card.locator("img"), 0)
    await tab.sees_count(card.locator(".difference .hidden-character"), 1)
    tab.check()


async def test_call_that_would_fail_says_so_beforehand(browser: Browser, clerk: Server) -> None:
    tab = await opened(browser, clerk)
    await tab.say("miss")
    card = tab.page.locator(".approval")
    await tab.sees(card, "This call would fail: old_text is not in 'a.txt'.")
    await tab.sees(card, '"old_text": "nowhere"')
    tab.check()


async def test_long_difference_is_there_to_its_last_line(browser: Browser, clerk: Server) -> None:
    tab = await opened(browser, clerk)
    await tab.say("long")
    card = tab.page.locator(".approval")
    await expect(card.locator(".difference .removed").first).to_be_visible(timeout=WAIT_MS)
    assert len(await rows(card, "removed")) < 1_000
    await card.get_by_role("button", name="Show the other").click()
    await tab.sees_count(card.locator(".difference .removed"), 1_000)
    tab.check()


async def test_inbox_shows_the_difference_too(browser: Browser, clerk: Server) -> None:
    tab = await opened(browser, clerk)
    await tab.say("edit")
    await tab.sees(".inbox-button .count", "1")
    await tab.page.locator(".inbox-button").click()
    inbox = tab.page.get_by_role("dialog")
    await tab.sees(inbox.locator(".difference .added"), "new 20")
    await inbox.get_by_role("button", name="Approve", exact=True).click()
    await tab.ended()
    tab.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_difference_has_no_serious_barrier(
    browser: Browser, clerk: Server, scheme: Any
) -> None:
    page = await browser.new_page(color_scheme=scheme)
    tab = await Tab(page, clerk.url).open()
    await tab.say("delete")
    await expect(page.locator(".difference .hidden-character")).to_be_visible(timeout=WAIT_MS)
    assert await violations(page) == []
    tab.check()


@pytest.mark.parametrize(("word", "coloured"), [("python", "import"), ("shell", "for")])
async def test_code_of_the_built_in_tools_is_coloured(
    browser: Browser, coder: Server, word: str, coloured: str
) -> None:
    tab = await opened(browser, coder)
    await tab.say(word)
    keyword = tab.page.locator(".approval .hljs-keyword").first
    await expect(keyword).to_have_text(coloured, timeout=WAIT_MS)
    await tab.button("Approve").click()
    await tab.ended()
    await tab.sees(tab.turn().locator(".answer"), "exit code 0")
    tab.check()
