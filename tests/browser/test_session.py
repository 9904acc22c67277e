"""A first visit of a person who has read nothing: ten tasks, and the clicks that each takes.

The table in `docs/page.md` is what this test counts; with `TEAL_PICTURES=1` it is written anew.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.browser.server import Server
from tests.browser.tab import WAIT_MS, Tab
from tests.forked_python import PYTHON
from tests.patience import seconds

PAGE = Path(__file__).parents[2] / "docs/page.md"
BEGIN, END = "<!-- clicks: begin -->\n", "<!-- clicks: end -->\n"


class Person:
    """Does what the page offers: presses what is labelled, and types."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.tasks: dict[str, tuple[int, int]] = {}
        self._clicks = self._typed = 0

    async def click(self, what: str | Locator) -> None:
        target = self.tab.button(what) if isinstance(what, str) else what
        await target.click()
        self._clicks += 1

    async def type(self, text: str, *, send: bool = False) -> None:
        await self.tab.page.keyboard.type(text)
        if send:
            await self.tab.page.keyboard.press("Enter")
        self._typed += 1

    async def say(self, text: str) -> None:
        await self.tab.page.locator("#composer").focus()
        await self.type(text, send=True)

    def has_done(self, task: str) -> None:
        self.tasks[task] = (self._clicks, self._typed)
        self._clicks = self._typed = 0

    def table(self) -> str:
        rows = [f"| {task} | {clicks} | {typed} |" for task, (clicks, typed) in self.tasks.items()]
        total = [sum(numbers) for numbers in zip(*self.tasks.values(), strict=True)]
        head = ["| task | clicks | texts typed |", "|---|---|---|"]
        return "\n".join([*head, *rows, f"| all ten | {total[0]} | {total[1]} |", ""])


@pytest.mark.timeout(seconds(240))
async def test_first_visit_leads_to_an_exported_test_in_few_clicks(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    context = await browser.new_context(
        viewport={"width": 1280, "height": 900},
        locale="en-GB",
        permissions=["clipboard-read", "clipboard-write"],
    )
    tab = await Tab(await context.new_page(), server.url).open()
    person = Person(tab)
    await begin(person)
    await look_back(person)
    await put_in_order(person)
    await export(person, tmp_path)
    assert len(person.tasks) == 10
    tab.check()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    if os.environ.get("TEAL_PICTURES"):
        PAGE.write_text(f"{before}{BEGIN}{person.table()}{END}{after}")
    assert f"{BEGIN}{person.table()}{END}" in PAGE.read_text()


async def begin(person: Person) -> None:
    tab, page = person.tab, person.tab.page
    await person.click(page.locator(".examples button").first)
    await tab.sees(tab.call("Desk-send_postcard"), "Ada")
    await person.click("Approve")
    await tab.ended()
    person.has_done("try what an agent offers, and approve what it asks about")
    await person.say("What time is it?")
    await tab.sees_count(".turn[data-status=COMPLETED]", 2)
    person.has_done("ask something of one's own")
    await person.say("Tell me a long story")
    await tab.sees(tab.turn().locator(".answer"), "Press Stop")
    await person.click("Stop")
    await tab.ended("CANCELLED")
    person.has_done("stop an answer")


async def look_back(person: Person) -> None:
    tab, page = person.tab, person.tab.page
    await tab.turn().hover()
    await person.click(tab.turn().get_by_label("Edit message"))
    await page.keyboard.press("Control+a")
    await person.type("Send a postcard to Grace", send=True)
    await person.click("Approve")
    await tab.ended()
    await person.click("Compare versions")
    await tab.sees_count(".version", 2)
    await person.click("Close")
    person.has_done("say it differently, and compare the two")
    await person.click(tab.turn().get_by_label("Show timeline"))
    await tab.sees(".steps", "waiting for you")
    person.has_done("see what took how long, and what each step used")
    await person.click("Replay step by step")
    step = page.get_by_role("dialog").get_by_role("status")
    await tab.sees(step, "The run begins")
    await person.click("Step on")
    await person.click("Step on")
    await tab.sees(step, "3 of")
    await person.click("Close")
    person.has_done("go through the run step by step")


async def put_in_order(person: Person) -> None:
    tab, page = person.tab, person.tab.page
    await person.click(page.get_by_label("Chat menu"))
    await person.click("Share…")
    await person.click("Make a link")
    link = await page.get_by_label(re.compile("^Link of")).input_value()
    other = await page.context.new_page()
    await other.goto(link)
    await expect(other.locator(".set-aside")).to_contain_text("only read", timeout=WAIT_MS)
    await other.close()
    await person.click("Close")
    person.has_done("let a colleague read the chat")
    await person.click(page.locator("#search"))
    await person.type("Grace")
    await person.click(page.locator(".passage").first)
    await tab.sees(".turn[data-found]", "Grace")
    person.has_done("find again what was said")
    await person.click(page.locator(".person"))
    await person.click("Deutsch")
    await tab.sees(page.get_by_role("dialog"), "Sprache")
    await person.click("Dunkel")
    await person.click("English")
    await person.click("Close")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    person.has_done("choose another language and darker colours, and go back to English")


async def export(person: Person, folder: Path) -> None:
    tab, page = person.tab, person.tab.page
    await person.click(tab.turn().get_by_label("Show timeline"))
    await person.click("Copy command")
    program, *arguments = shlex.split(await page.evaluate("navigator.clipboard.readText()"))
    assert program == "teal"
    for command in (
        [PYTHON, "-m", "sk_agents", *arguments],
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", arguments[-1]],
    ):
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await asyncio.wait_for(process.communicate(), seconds(60))
        assert process.returncode == 0, said.decode()
    assert "1 passed" in said.decode()
    person.has_done("export the run as a test, and run it")
