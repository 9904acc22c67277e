"""`teal top`: what runs and waits now, and what today has cost; shown again and again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sk_agents.cli.event_printer import money_text
from sk_agents.cli.options import Exit
from sk_agents.cli.server_records import waiting_approvals
from sk_agents.cli.terminal import Screen, print_json
from sk_agents.client import ChatSummary, PendingApproval, ServerUnreachable, TealClient
from sk_agents.wire.views import UsageReport

# The chats that changed last: one that runs is among them.
LOOKED_AT = 200
ENDED = {"COMPLETED", "FAILED", "CANCELLED", ""}
HEADINGS = ("status", "for", "agent", "chat", "title", "waits for")


@dataclass(frozen=True, slots=True)
class Activity:
    """Of one user, at one moment."""

    at: datetime
    chats: list[ChatSummary]
    approvals: list[PendingApproval]
    today: UsageReport

    def document(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "chats": [chat.model_dump(mode="json") for chat in self.chats],
            "approvals": [one.model_dump(mode="json", by_alias=True) for one in self.approvals],
            "today": self.today.model_dump(mode="json"),
        }

    def lines(self) -> list[str]:
        counted = Counter(chat.status for chat in self.chats)
        states = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counted.items()))
        rows = self.today.rows
        tokens = sum(row.prompt_tokens + row.completion_tokens for row in rows)
        cost = money_text(cost for row in rows for cost in row.cost)
        spent = f"{tokens:,} tokens" + (f", {cost}" if cost else "")
        return [f"{self.at:%H:%M:%S} UTC: {states or 'nothing runs'}; today {spent}"]

    def rows(self) -> list[list[str]]:
        waits: dict[str, list[str]] = {}
        for approval in self.approvals:
            waits.setdefault(approval.chat_id, []).append(approval.tool_name)
        own = [self._row(chat, waits.pop(chat.id, [])) for chat in self.chats]
        # Of others, for this user to decide.
        return own + [["WAITING", "", "", "", "", ", ".join(names)] for names in waits.values()]

    def _row(self, chat: ChatSummary, waits: list[str]) -> list[str]:
        age = _age(self.at, chat.updated_at)
        return [chat.status, age, chat.agent, chat.id, chat.title, ", ".join(waits)]


async def show_activity(
    client: TealClient, every: float, *, once: bool, as_json: bool
) -> Exit | None:
    if as_json or once:
        activity = await look(client)
        if as_json:
            print_json(activity.document())
        else:
            screen = Screen()
            screen.line(activity.lines()[0])
            screen.table(HEADINGS, activity.rows())
        return None
    activity = await look(client)
    with Screen().redrawn() as show:
        while True:
            show([*activity.lines(), "Ctrl-C ends.", ""], [HEADINGS, *activity.rows()])
            await asyncio.sleep(every)
            try:
                activity = await look(client)
            except ServerUnreachable:
                show(["The server does not answer; trying again.", ""], [HEADINGS])


async def look(client: TealClient) -> Activity:
    now = datetime.now(UTC)
    chats = await _open_chats(client.chats())
    approvals = [approval async for approval in waiting_approvals(client)]
    return Activity(now, chats, approvals, await client.usage(now.date()))


async def _open_chats(chats: AsyncGenerator[ChatSummary, None]) -> list[ChatSummary]:
    found: list[ChatSummary] = []
    looked_at = 0
    async with aclosing(chats):
        async for chat in chats:
            looked_at += 1
            if chat.status not in ENDED:
                found.append(chat)
            if looked_at == LOOKED_AT:
                break
    return found


def _age(now: datetime, since: str) -> str:
    """How long ago; empty for a time that cannot be read."""
    try:
        seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    except (TypeError, ValueError):
        return ""
    if seconds < 60:
        return f"{max(0, seconds)} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"
