"""A tab of the browser, and what a person does and sees in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import ConsoleMessage, Download, Locator, Page, Request, expect

from tests.patience import seconds

WAIT_MS = seconds(20) * 1000
# What a browser writes into its console when a server is away, whatever the page does about it.
OUTAGE = re.compile(r"net::ERR_|Failed to load resource")

# Each turn as its reader sees it: what was said, thought, called and answered, in this order.
SHOWN = """() => [...document.querySelectorAll('.turn[data-run]')].map((turn) => ({
  run: turn.dataset.run,
  said: turn.querySelector('.said')?.innerText ?? '',
  status: turn.dataset.status,
  steps: [...turn.querySelectorAll('.reply > :is(.thinking, .remark, .call, .answer)')]
    .map((step) => step.matches('.call')
      ? ['call', step.querySelector('code').textContent]
      : [step.matches('.answer') ? 'answer' : step.matches('.remark') ? 'remark' : 'thought',
         step.querySelector('.markdown').textContent]),
}))"""


class Tab:
    """Keeps what the page complained about, and every request that left for elsewhere."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._on_request)

    async def open(self, chat: str | None = None) -> Tab:
        await self.page.goto(f"{self.url}/#/{chat or ''}")
        await expect(self.page.locator("#composer")).to_be_editable(timeout=WAIT_MS)
        if chat is None:
            await expect(self.page.locator(".agent").first).to_be_visible(timeout=WAIT_MS)
        return self

    async def say(self, text: str) -> None:
        await self.page.fill("#composer", text)
        await self.page.press("#composer", "Enter")

    def turn(self, at: int = -1) -> Locator:
        turns = self.page.locator(".turn[data-run]")
        return turns.last if at == -1 else turns.nth(at)

    def call(self, tool: str) -> Locator:
        return self.page.locator(".call", has_text=tool).last

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def ended(self, status: str = "COMPLETED", at: int = -1) -> None:
        await expect(self.turn(at)).to_have_attribute("data-status", status, timeout=WAIT_MS)

    async def sign_out(self) -> None:
        await self.page.locator(".person").click()
        await self.button("Sign out").click()

    async def sees(self, where: Locator | str, text: str | re.Pattern[str]) -> None:
        place = self.page.locator(where) if isinstance(where, str) else where
        await expect(place).to_contain_text(text, timeout=WAIT_MS)

    async def sees_count(self, where: Locator | str, count: int) -> None:
        place = self.page.locator(where) if isinstance(where, str) else where
        await expect(place).to_have_count(count, timeout=WAIT_MS)

    async def chat_id(self) -> str:
        await self.page.wait_for_function("location.hash.length > 10")
        address: str = await self.page.evaluate("location.hash")
        return address.removeprefix("#/")

    async def shown(self) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = await self.page.evaluate(SHOWN)
        return [_plain(turn) for turn in turns]

    def check(self, *, outage: bool = False) -> None:
        """Nothing went wrong; after an `outage`, nothing that cannot be helped."""
        unexpected = [text for text in self.complaints if not (outage and OUTAGE.search(text))]
        assert unexpected == []
        assert self.foreign == []

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.foreign.append(request.url)


def told(chat: dict[str, Any]) -> list[dict[str, Any]]:
    """The same as `Tab.shown`, from what the server says of the chat."""
    return [
        _plain(
            {
                "run": entry["id"],
                "said": entry["user_message"],
                "status": entry["status"],
                "steps": _steps(entry["agent_events"]),
            }
        )
        for entry in chat["interactions"]
    ]


def _steps(events: Sequence[dict[str, Any]]) -> list[list[str]]:
    names = {"THINKING": "thought", "ANSWER": "answer"}
    return [
        ["call", event["tool_name"]]
        if event["type"] == "TOOL_CALL"
        else ["remark" if event.get("spoken") else names[event["type"]], event["content"]]
        for event in events
        if event["type"] != "TOOL_RESULT"
    ]


async def saved(download: Download) -> str:
    """The text of a file that the page handed out."""
    path = await download.path()
    return await asyncio.to_thread(Path(path).read_text)


def _plain(turn: dict[str, Any]) -> dict[str, Any]:
    """Without what Markdown and layout do to a text: its letters and digits alone."""
    steps = [(kind, "".join(re.findall(r"\w+", text))) for kind, text in turn["steps"]]
    return {**turn, "steps": steps}
