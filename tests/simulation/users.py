"""What users do, through the Python client, and what they see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from sk_agents.client.errors import ClientError, TealServerError
from sk_agents.client.teal_client import Chat, TealClient
from sk_agents.interactions import chat_thread_id
from sk_agents.wire import events as seen
from tests.simulation.network import Connection, Server, SimulatedLink
from tests.simulation.plan import Action
from tests.simulation.virtual_loop import VirtualLoop

Outcome = Literal["ok", "refused", "unknown"]


class SimulatedClient(TealClient):
    def __init__(self, link: SimulatedLink, user: str) -> None:
        super().__init__("http://simulated", user=user)
        self._connection = link


@dataclass(slots=True)
class Done:
    """One thing a user did: when, to what, and how it ended as far as they know."""

    kind: str
    thread_id: str
    invoked: float
    instance: int
    text: str = ""
    run_id: str | None = None
    approval: seen.ApprovalRequired | None = None
    outcome: Outcome | None = None
    completed: float | None = None
    code: str = ""
    # When the message was acknowledged.
    acknowledged: float | None = None
    events: list[seen.Event] = field(default_factory=list)


@dataclass(slots=True)
class Known:
    """What a user remembers of a chat."""

    runs: list[str] = field(default_factory=list)
    approvals: dict[str, seen.ApprovalRequired] = field(default_factory=dict)
    cursors: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Users:
    loop: VirtualLoop
    servers: list[Server]
    done: list[Done] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    trace: Callable[..., None] = lambda *_: None
    _known: dict[tuple[int, int], Known] = field(default_factory=dict)
    _words: int = 0

    async def act(self, action: Action) -> None:
        await asyncio.sleep(max(0.0, action.at - self.loop.time()))
        doing = _Doing(self, action)
        known = self._known.setdefault((action.user, action.chat), Known())
        work = getattr(doing, action.kind)
        await work(known)

    def chats(self) -> list[tuple[int, int]]:
        return list(self._known)

    async def told(self, server: Server, user: int, chat: int) -> str:
        """What one instance says of a chat."""
        link = SimulatedLink(
            lambda: server, user_of(user), seen=self.connections, errors=self.errors
        )
        try:
            history = await Chat(link, f"c{chat}").history(superseded=True, state=False)
        except TealServerError as error:
            return f"{error.status} {error.code}"
        except ClientError as error:
            return type(error).__name__
        runs = [(one.id, one.status, one.superseded, one.answer) for one in history.interactions]
        return f"{history.status} {history.last_seq} {runs}"

    def word(self) -> str:
        self._words += 1
        return f"m{self._words}"

    def link(self, action: Action, *, authorization: str | None = None) -> SimulatedLink:
        """First to the action's instance; after a failure, to any."""
        random = Random(action.number)
        first = [action.instance]

        def choose() -> Server:
            if first:
                return self.servers[first.pop() % len(self.servers)]
            return random.choice(self.servers)

        return SimulatedLink(
            choose,
            user_of(action.user),
            authorization=authorization,
            seen=self.connections,
            errors=self.errors,
        )


def user_of(user: int) -> str:
    return f"u{user}"


def thread_of(user: int, chat: int) -> str:
    return str(chat_thread_id(user_of(user), f"c{chat}"))


class _Doing:
    """One action, begun."""

    def __init__(self, users: Users, action: Action) -> None:
        self.users = users
        self.action = action
        self.random = Random(action.number)
        self.chat_id = f"c{action.chat}"
        self.done = Done(
            action.kind,
            thread_of(action.user, action.chat),
            users.loop.time(),
            action.instance,
        )

    def chat(self, *, authorization: str | None = None) -> Chat:
        return Chat(self.users.link(self.action, authorization=authorization), self.chat_id)

    def client(self) -> TealClient:
        return SimulatedClient(self.users.link(self.action), user_of(self.action.user))

    async def start(self, known: Known) -> None:
        await self._say(known, lambda chat: chat.say(self._message(), key=self._key()))

    async def enqueue(self, known: Known) -> None:
        await self._say(
            known, lambda chat: chat.say(self._message(), key=self._key(), on_busy="enqueue")
        )

    async def interrupt(self, known: Known) -> None:
        await self._say(
            known, lambda chat: chat.say(self._message(), key=self._key(), on_busy="interrupt")
        )

    async def edit(self, known: Known) -> None:
        if run_id := self._some(known.runs):
            self.done.run_id = run_id
            await self._say(
                known,
                lambda chat: chat.edit(
                    run_id, self._message(), key=self._key(), on_busy="interrupt"
                ),
            )

    async def regenerate(self, known: Known) -> None:
        if run_id := self._some(known.runs):
            self.done.run_id = run_id
            await self._say(known, lambda chat: chat.regenerate(run_id, key=self._key()))

    async def switch(self, known: Known) -> None:
        if run_id := self._some(known.runs):
            self.done.run_id = run_id
            await self._call(self.chat().switch(run_id))

    async def approve(self, known: Known) -> None:
        await self._decide(known, True)

    async def approve_edited(self, known: Known) -> None:
        await self._decide(known, True, is_edited=True)

    async def reject(self, known: Known) -> None:
        await self._decide(known, False)

    async def cancel(self, known: Known) -> None:
        if known.runs:
            self.done.run_id = known.runs[-1]
            await self._call(self.chat().cancel(known.runs[-1]))

    async def stop_after_step(self, known: Known) -> None:
        if known.runs:
            self.done.run_id = known.runs[-1]
            await self._call(self.chat().cancel(known.runs[-1], after="step"))

    async def steer(self, known: Known) -> None:
        if known.runs:
            self.done.run_id = known.runs[-1]
            await self._call(self.chat().steer(known.runs[-1], self._message(), key=self._key()))

    async def delete(self, known: Known) -> None:
        await self._call(self.chat().delete())

    async def make(self, known: Known) -> None:
        await self._call(self.client().create(self.chat_id, title="made"))

    async def resume(self, known: Known) -> None:
        if known.cursors:
            run_id, after = known.cursors[self.random.randrange(len(known.cursors))]
            self.done.run_id = run_id
            await self._read(known, self.chat().watch(run_id, after=after))

    async def watch(self, known: Known) -> None:
        after: str | int | None = 0 if self.random.random() < 0.5 else None
        if known.cursors and self.random.random() < 0.5:
            after = self.random.choice(known.cursors)[1]
        stays = min(self.action.stays, 20.0)
        await self._read(known, self.chat().watch(after=after), stays=stays)

    async def read(self, known: Known) -> None:
        await self._call(self.chat().history(superseded=True))

    async def listing(self, known: Known) -> None:
        async def all_chats() -> list[Any]:
            return [chat async for chat in self.client().chats()]

        await self._call(all_chats())

    async def inbox(self, known: Known) -> None:
        async def all_approvals() -> list[Any]:
            return [approval async for approval in self.client().approvals()]

        await self._call(all_approvals())

    async def carry(self, known: Known) -> None:
        """Take the chat away and bring it back as another."""

        async def carried() -> None:
            document = await self.chat().export()
            name = f"{self.chat_id}x{self.action.number}"
            await self.client().import_chat(document, chat_id=name)

        await self._call(carried())

    def _message(self) -> str:
        self.done.text = self.done.text or f"{self.users.word()} {self.action.script}"
        return self.done.text

    def _key(self) -> str:
        return f"k{self.action.number}-{self.action.at}"

    def _some(self, items: list[str]) -> str | None:
        return self.random.choice(items[-4:]) if items else None

    async def _decide(self, known: Known, approved: bool, *, is_edited: bool = False) -> None:
        """What was seen and not decided yet; the user waits for it, for a while."""
        for _ in range(20):
            if known.approvals:
                break
            await asyncio.sleep(0.5)
        else:
            return
        self.done.invoked = self.users.loop.time()
        approval = known.approvals.pop(self.random.choice(list(known.approvals)))
        self.done.approval, self.done.run_id = approval, approval.interaction_id
        verdict: dict[str, Any] = {}
        authorization = None
        if approved and approval.kind == "outcome_unknown":
            verdict["choice"] = self.random.choice(("done", "retry", "give_up"))
        if approved and approval.kind == "auth":
            authorization = "secret"
        if is_edited and approval.kind == "tool":
            verdict["edited_arguments"] = {"text": f"e{self.action.number}", "seconds": 0.5}
        self.done.text = str(verdict)
        chat = self.chat(authorization=authorization)
        decide = chat.approve if approved else chat.reject
        await self._call(decide(approval, **verdict))

    async def _call(self, work: Awaitable[object]) -> None:
        self._begun()
        try:
            result = await work
        except ClientError as error:
            self._failed(error)
        else:
            # Cancelling what has ended by itself is told by the answer.
            self.done.code = "already_terminal" if result is False else ""
            self._ended("ok")

    async def _say(
        self, known: Known, talk: Callable[[Chat], AsyncGenerator[seen.Event, None]]
    ) -> None:
        await self._read(known, talk(self.chat()))

    async def _read(
        self,
        known: Known,
        stream: AsyncGenerator[seen.Event, None],
        *,
        stays: float | None = None,
    ) -> None:
        self._begun()
        seconds = self.action.stays if stays is None else stays
        try:
            async with asyncio.timeout(seconds), aclosing(stream) as events:
                async for event in events:
                    self._saw(known, event)
        except TimeoutError:
            self._ended("unknown" if self.done.acknowledged is None else "ok")
        except ClientError as error:
            self._failed(error)
        else:
            self._ended("ok")

    def _saw(self, known: Known, event: seen.Event) -> None:
        self.done.events.append(event)
        if event.seq is None:
            return
        now = self.users.loop.time()
        if self.done.acknowledged is None:
            self.done.acknowledged = now
            if self.done.kind not in ("resume", "watch"):
                self.done.run_id = event.interaction_id
                known.runs.append(event.interaction_id)
        if event.interaction_id:
            known.cursors.append((event.interaction_id, event.event_id or ""))
        match event:
            case seen.ApprovalRequired():
                known.approvals[event.approval_id] = event
            case seen.Approved() | seen.Rejected():
                known.approvals.pop(event.approval_id or "", None)
            case _:
                pass

    def _begun(self) -> None:
        self.users.done.append(self.done)
        self.users.trace("does", self.action.kind, self.chat_id, f"at i{self.action.instance}")

    def _ended(self, outcome: Outcome) -> None:
        self.done.outcome, self.done.completed = outcome, self.users.loop.time()
        self.users.trace(
            "has done", self.done.kind, self.done.run_id or "", outcome, self.done.code
        )

    def _failed(self, error: ClientError) -> None:
        if isinstance(error, TealServerError):
            self.done.code = f"{error.status} {error.code}"
            self._ended("refused" if error.status < 500 else "unknown")
        else:
            self.done.code = type(error).__name__
            self._ended("unknown")
