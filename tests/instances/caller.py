"""A client of several servers: begins at one, goes on at the next when a connection is lost.

It notes what was answered otherwise than with 200. A connection that could not be made, or that
ended, is tried again elsewhere; nothing else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import httpx_sse

from tests.chaos.chat_client import UNSTORED
from tests.chaos.histories import Frame
from tests.patience import seconds

BOUND = seconds(60)
PAUSE = 0.05
PATIENCE = httpx.Timeout(BOUND, connect=2.0)

_tokens = count(1)


def new_token() -> str:
    """What a message begins with: the model and the ledger know it by that."""
    return f"m{next(_tokens)}"


@dataclass(slots=True)
class Conversation:
    """One message, and all that was read of what came of it, in order."""

    chat: str
    text: str
    frames: list[Frame] = field(default_factory=list)
    deltas: list[tuple[int, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    connections: int = 0
    on_frame: Callable[[Frame], Awaitable[None]] | None = None

    @property
    def names(self) -> list[str]:
        return [frame.name for frame in self.frames]

    @property
    def interaction(self) -> str:
        interaction: str = self.frames[0].data["interaction_id"]
        return interaction

    @property
    def path(self) -> str:
        return f"/chats/{self.chat}/interactions/{self.interaction}"

    @property
    def has_ended(self) -> bool:
        return self.names[-1:] == ["interaction_complete"]

    @property
    def preview(self) -> str:
        """The live text, put together by its offsets as a page does."""
        text = ""
        for offset, piece in self.deltas:
            assert offset <= len(text)
            text = text[:offset] + piece
        return text

    def frame(self, name: str) -> dict[str, Any]:
        return next(frame.data for frame in self.frames if frame.name == name)

    async def go_through(self, urls: Sequence[str]) -> None:
        """From its beginning to its end, at one server after the other."""
        async with asyncio.timeout(BOUND), httpx.AsyncClient(timeout=PATIENCE) as client:
            while not self.has_ended:
                url = urls[self.connections % len(urls)]
                self.connections += 1
                try:
                    await self._connect(client, url)
                except (httpx.TransportError, httpx_sse.SSEError):
                    # The server is gone, or is just coming back.
                    await asyncio.sleep(PAUSE)

    async def _connect(self, client: httpx.AsyncClient, url: str) -> None:
        if self.frames:
            headers = {"Last-Event-ID": self.frames[-1].id}
            request: dict[str, Any] = {"method": "GET", "url": f"{url}{self.path}/events"}
        else:
            headers = {"Idempotency-Key": self.text.split()[0]}
            body = {"user_message": self.text, "on_disconnect": "continue"}
            address = f"{url}/chats/{self.chat}/interactions"
            request = {"method": "POST", "url": address, "json": body}
        async with httpx_sse.aconnect_sse(client, headers=headers, **request) as source:
            if source.response.status_code != 200:
                text = (await source.response.aread()).decode()
                self.refusals.append(f"{source.response.status_code} {text}")
                await asyncio.sleep(PAUSE)
                return
            async for event in source.aiter_sse():
                await self._take(event)

    async def _take(self, event: httpx_sse.ServerSentEvent) -> None:
        if event.event == "answer_delta":
            said = event.json()
            self.deltas.append((said["offset"], said["content"]))
        elif event.data and event.event not in UNSTORED:
            self.frames.append(Frame(event.id, event.event, event.json()))
        if self.on_frame is not None and self.frames:
            await self.on_frame(Frame(event.id, event.event, {}))


async def approve(urls: Sequence[str], conversation: Conversation) -> None:
    """Say yes to what it waits for, at the first of these servers that can be reached."""
    asked = conversation.frame("approval_required")
    body = {"approval_id": asked["approval_id"], "approved": True, "digest": asked["digest"]}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        for url in urls:
            try:
                answer = await client.post(f"{url}{conversation.path}/approve", json=body)
            except httpx.ConnectError:
                continue
            assert answer.status_code == 200, answer.text
            return
    raise AssertionError("no server could be reached")
