"""A client of a fleet's chats that does what people do, at whatever instance, and never gives up.

It is written against the documentation only: HTTP by httpx, streams by httpx-sse. What cannot be
right whatever else happens is a problem at once; the rest is for the checker.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import httpx_sse

from sk_agents.engine.ports import Store
from sk_agents.exceptions import StoreError, ThreadNotFound
from sk_agents.interactions import chat_thread_id
from tests.chaos.fleet import Fleet
from tests.chaos.histories import BEGINNING, Deletion, Frame, History, Message, Order, Reading

USER = "dummyuser"
# How long a client waits for bytes before it tries another instance, tries to be heard at all, and
# reads on until something else seems more worth its while.
PATIENCE = httpx.Timeout(4.0, connect=2.0)
PERSISTENCE = 45.0
ATTENTION = 20.0
THINKING = 0.3
# A chat that is not deleted is left for a new one, so that prompts stay short.
CHAT_LENGTH = 25
# What says no without anything being wrong: too late, taken, gone, or not now.
REFUSALS = {400, 404, 409, 429, 503}
UNSTORED = {"answer_delta", "thinking_delta", "tool_output", "stream_end"}
WORDS = [
    *["say"] * 6,
    *["tell:1", "tell:4", "tell:8", "tell:12"] * 2,
    *["pay", "pay:2", "put", "put:1", "sign", "sign:1", "pay put", "pay:8 sign", "put:8 sign"],
]


@dataclass(slots=True)
class Slot:
    """A place for one chat after the other."""

    name: str
    is_fleeting: bool
    number: int = 0
    messages: int = 0

    @property
    def chat(self) -> str:
        return f"{self.name}-{self.number}"

    def move_on(self) -> None:
        self.number += 1
        self.messages = 0


class Client:
    def __init__(
        self, name: str, seed: str, fleet: Fleet, slots: list[Slot], history: History, judge: Store
    ) -> None:
        self.name = name
        self._chance = random.Random(f"{seed} {name}")
        self._fleet = fleet
        self._slots = slots
        self._history = history
        self._judge = judge
        self._http = httpx.AsyncClient(timeout=PATIENCE)
        self._beside: set[asyncio.Task[None]] = set()

    async def live(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                [act] = self._chance.choices(*zip(*self._habits(), strict=True))
                await act()
                await asyncio.sleep(self._chance.expovariate(1 / THINKING))
            await asyncio.gather(*self._beside)
        finally:
            await self._http.aclose()

    def _habits(self) -> list[tuple[Callable[[], Awaitable[object]], int]]:
        return [
            (self._say, 10),
            (self._edit, 2),
            (self._read_along, 4),
            (self._listen, 2),
            (self._look, 4),
            (self._decide, 4),
            (self._delete, 1),
            (self._make_again, 3),
            (self._cancel_something, 2),
        ]

    # What it does.

    async def _say(self) -> None:
        slot = self._chance.choice(self._slots)
        if not slot.is_fleeting and slot.messages >= CHAT_LENGTH:
            slot.move_on()
        await self._say_in(slot)

    async def _say_in(self, slot: Slot) -> None:
        slot.messages += 1
        words = "say" if slot.is_fleeting else self._chance.choice(WORDS)
        message = self._history.new_message(self.name, slot.chat, time.time())
        body = {
            "user_message": f"{message.token} {words}",
            "on_busy": self._chance.choice(["reject", "enqueue", "enqueue", "interrupt"]),
            "on_disconnect": self._chance.choice(["continue", "continue", "continue", "cancel"]),
        }
        await self._begin(message, f"/chats/{slot.chat}/interactions", body)

    async def _edit(self) -> None:
        before = self._chosen(self._history.acked_messages())
        if before is None:
            return
        message = self._history.new_message(self.name, before.chat, time.time())
        body = {
            "new_user_message": f"{message.token} {self._chance.choice(WORDS)}",
            "on_busy": self._chance.choice(["reject", "interrupt"]),
        }
        path = f"/chats/{before.chat}/interactions/{before.interaction}/edit"
        await self._begin(message, path, body)

    async def _read_along(self) -> None:
        """What another client began, from the beginning or from somewhere in its middle."""
        other = self._chosen([one for one in self._history.readings[-60:] if one.frames])
        if other is not None:
            # Without a cursor a chat is listened to from now on.
            beginning = BEGINNING if other.is_of_chat else None
            after = self._chance.choice([beginning, *(frame.id for frame in other.frames[:-1])])
            reading = self._new_reading(other.chat, other.interaction, after)
            await self._follow(reading)

    async def _listen(self) -> None:
        """To all that happens in a chat, from its beginning."""
        chat = self._chance.choice([slot for slot in self._slots if not slot.is_fleeting]).chat
        if self._history.acked_messages(chat):
            reading = self._new_reading(chat, after=BEGINNING)
            await self._follow(reading)

    async def _look(self) -> None:
        """What was acknowledged before is there at every instance."""
        sent = time.time()
        if self._chance.random() < 0.3:
            await self._ask("GET", "/chats?limit=100")
            return
        chat = self._chance.choice(self._slots).chat
        expected = self._history.acked_messages(chat)
        answer, instance = await self._ask("GET", f"/chats/{chat}?include=superseded&state=false")
        if answer is None or answer.status_code not in (200, 404):
            return
        shown = [one["id"] for one in answer.json().get("interactions", [])]
        for message in expected:
            if not self._history.may_be_deleted(message) and message.interaction not in shown:
                self._problem(
                    f"instance {instance} does not show {message.interaction} of {chat}, which was "
                    f"acknowledged {sent - message.acked:.3f} s before: {answer.status_code}"
                )

    async def _make_again(self) -> None:
        """A chat of the same name, as long as the deleted one: an instance may take it for that."""
        slot = await self._delete()
        for _ in range(self._chance.randint(1, 2)):
            await self._say_in(slot)

    async def _delete(self) -> Slot:
        slot = self._chance.choice([slot for slot in self._slots if slot.is_fleeting])
        deletion = Deletion(slot.chat, time.time())
        self._history.deletions.append(deletion)
        answer, _ = await self._ask("DELETE", f"/chats/{slot.chat}")
        if answer is not None and answer.status_code in (204, 404):
            deletion.is_done = answer.status_code == 204
            deletion.acked = time.time()
        else:
            # It may yet happen: no message to this chat would be sure to stay.
            slot.move_on()
        return slot

    async def _decide(self) -> None:
        answer, _ = await self._ask("GET", "/approvals?limit=100")
        if answer is not None and answer.status_code == 200:
            asked = self._chosen(answer.json()["approvals"])
            if asked is not None:
                await self._decide_about(asked["chat_id"], asked)

    async def _cancel_something(self) -> None:
        message = self._chosen(self._history.acked_messages()[-20:])
        if message is not None:
            await self._cancel(message.chat, message.interaction)

    # How it does it.

    async def _begin(self, message: Message, path: str, body: dict[str, Any]) -> None:
        """Send it until it is known to be taken or refused, then read what comes of it."""
        reading = self._new_reading(message.chat)
        reading.message = message
        until = time.monotonic() + PERSISTENCE
        headers = {"Idempotency-Key": message.token}
        if self._chance.random() < (0.5 if _is_slow(str(body)) else 0.1):
            self._meanwhile(self._cancel_soon(reading))
        while time.monotonic() < until and not reading.frames:
            message.attempts += 1
            status = await self._read(reading, "POST", path, headers=headers, json=body)
            if status not in (None, 200, 503):
                if status == 404 and not path.endswith("edit"):
                    self._problem(f"a message to {message.chat} was answered with 404")
                return
        if reading.interaction:
            await self._follow(reading)

    async def _follow(self, reading: Reading) -> None:
        """Read on, at one instance after the other, to the end of the interaction."""
        until = time.monotonic() + ATTENTION
        path = reading.path
        while not reading.has_ended and time.monotonic() < until:
            cursor = reading.last_id
            headers = {"Last-Event-ID": cursor} if cursor is not None else {}
            status = await self._read(reading, "GET", path, headers=headers)
            if status == 404 and self._history.is_deleted_at_times(reading.chat):
                return
            if status not in (None, 200, 503):
                self._problem(f"resuming {path} after {cursor} was answered with {status}")
                return

    async def _read(self, reading: Reading, method: str, path: str, **request: Any) -> int | None:
        """One connection's part of a reading; its status, `None` if there was no answer."""
        member = self._chance.choice(self._fleet.members)
        url = f"{member.server.url}{path}"
        try:
            async with httpx_sse.aconnect_sse(self._http, method, url, **request) as source:
                status = source.response.status_code
                await self._note(source.response, f"{method} {path}", member.number)
                if status == 200:
                    await self._take(reading, source)
                return status
        except (httpx.TransportError, httpx_sse.SSEError):
            return None

    async def _take(self, reading: Reading, source: httpx_sse.EventSource) -> None:
        async for frame in stored_frames(source):
            reading.take(frame, time.time())
            if frame.name == "approval_required" and self._chance.random() < 0.5:
                self._meanwhile(self._decide_about(reading.chat, frame.data))
            if reading.is_unknown:
                self._problem(f"a stream begins with {frame}")
            if reading.has_ended or self._chance.random() < 0.05:
                return

    async def _cancel_soon(self, reading: Reading) -> None:
        await asyncio.sleep(self._chance.uniform(0.2, 3))
        if reading.interaction:
            await self._cancel(reading.chat, reading.interaction)

    async def _cancel(self, chat: str, interaction: str) -> None:
        sent = time.time()
        path = f"/chats/{chat}/interactions/{interaction}/cancel"
        answer, instance = await self._ask("POST", path)
        if answer is not None and answer.status_code == 200:
            await self._ordered(chat, interaction, "", instance, sent)

    async def _decide_about(self, chat: str, asked: dict[str, Any]) -> None:
        interaction = asked["interaction_id"]
        body = {
            "approval_id": asked["approval_id"],
            "approved": self._chance.random() < 0.75,
            "digest": asked["digest"],
        }
        if asked["kind"] == "outcome_unknown" and body["approved"]:
            body["choice"] = self._chance.choice(["done", "give_up", "retry"])
            if body["choice"] == "retry":
                self._history.retries[interaction, asked["call_id"]] += 1
        sent = time.time()
        path = f"/chats/{chat}/interactions/{interaction}/approve"
        answer, instance = await self._ask("POST", path, json=body)
        if answer is not None and answer.status_code == 200:
            await self._ordered(chat, interaction, asked["approval_id"], instance, sent)

    async def _ordered(
        self, chat: str, interaction: str, approval_id: str, instance: int, sent: float
    ) -> None:
        try:
            owner = (await self._judge.thread(chat_thread_id(USER, chat))).owner
        except (ThreadNotFound, StoreError):
            return
        pid = int(owner.split(":")[2]) if owner is not None else None
        order = Order(self.name, chat, interaction, approval_id, instance, sent, pid)
        self._history.orders.append(order)

    async def _ask(
        self, method: str, path: str, **request: Any
    ) -> tuple[httpx.Response | None, int]:
        """Its answer, if there was one in time, and whom it asked."""
        member = self._chance.choice(self._fleet.members)
        try:
            answer = await self._http.request(method, f"{member.server.url}{path}", **request)
        except httpx.TransportError:
            return None, member.number
        await self._note(answer, f"{method} {path}", member.number)
        return answer, member.number

    async def _note(self, answer: httpx.Response, request: str, instance: int) -> None:
        status = answer.status_code
        self._history.answers[f"{request.split()[0]} {status}"] += 1
        if status < 300:
            return
        body = (await answer.aread()).decode(errors="replace")
        is_excused = status in REFUSALS and (status != 503 or "Retry-After" in answer.headers)
        if not is_excused or "state_corrupt" in body:
            self._problem(f"instance {instance} answered {request} with {status}: {body}")
        elif status == 503:
            self._history.answers[f"503 {answer.json()['code']}"] += 1

    def _meanwhile(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _new_reading(self, chat: str, interaction: str = "", after: str | None = None) -> Reading:
        reading = Reading(self.name, chat, interaction, after)
        self._history.readings.append(reading)
        return reading

    def _chosen(self, among: list[Any]) -> Any:
        return self._chance.choice(among) if among else None

    def _problem(self, text: str) -> None:
        self._history.problem(f"{self.name}: {text}")


def _is_slow(text: str) -> bool:
    return re.search(r":[4-9]|:1\d", text) is not None


async def stored_frames(source: httpx_sse.EventSource) -> AsyncIterator[Frame]:
    """Without previews, comments and the end of a stream that is not the interaction's."""
    async for event in source.aiter_sse():
        # By the rules an event without an id repeats the last one, so names must tell.
        if event.data and event.event not in UNSTORED:
            yield Frame(event.id, event.event, event.json())
