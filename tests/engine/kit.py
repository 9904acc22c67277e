"""An engine over a real store, and one user who talks to it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sk_agents.engine.agent import Agent, RunLimits
from sk_agents.engine.commands import Accepted, CancelRun, DecideApproval, EditRun, StartRun
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.log.state import Run, ThreadState, fold
from sk_agents.engine.models import NewThread, Part, Price, RunStatus, UserInput
from sk_agents.engine.ports import (
    Audit,
    Budget,
    Clock,
    Director,
    Model,
    Observer,
    Peers,
    Redaction,
    Signals,
    Store,
)
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.run.context_window import ContextWindow
from sk_agents.engine.threads.retention import RetentionRules
from sk_agents.engine.turns import CallRequested, Prompt, TurnFinished
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.openai_wire import wire_message
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.persistence.store_factory import open_store
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel, ScriptedModelServer, SequentialIds, SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import LOOK, SEND, FakePolicy, FakeTools
from tests.patience import seconds

# As long as a busy machine may take for what takes milliseconds.
BOUND = seconds(20)
# An instance whose leases are this long sweeps only when it is told to, and renews none in a test.
UNSWEPT = 1e7
THREAD = "t"
USER = "ada"
SEND_X = [calls(("Mail-send", {"text": "x"})), says("done")]
Script = Sequence[Turn | Exception]


@dataclass(slots=True)
class Setup:
    """What an engine is made of; two engines on one store share one."""

    script: Script = ()
    tools: FakeTools = field(default_factory=lambda: FakeTools(LOOK, SEND))
    policy: FakePolicy = field(default_factory=FakePolicy)
    limits: RunLimits = field(default_factory=RunLimits)
    on_reject: Literal["continue", "cancel"] = "continue"
    clock: Clock = field(default_factory=SystemClock)
    lease_ttl: float = 15.0
    disconnect_grace: float = 30.0
    reader_period: float = 10.0
    context: ContextWindow = field(default_factory=ContextWindow)
    http: bool = False
    model: Model | None = None
    budget: Callable[[Store, Clock], Budget] | None = None
    price: Price | None = None
    max_tokens: int | None = None
    is_attended: bool = True
    redaction: Redaction | None = None
    retention: RetentionRules | None = None
    director: Director | None = None
    observer: Observer | None = None
    audit: Audit | None = None


class Talk:
    """One user's conversation with an engine; everything bounded in time."""

    def __init__(self, engine: Engine, store: Store, setup: Setup, model: Model) -> None:
        self.engine, self.store, self.setup, self.model = engine, store, setup, model
        self.server: ScriptedModelServer | None = None
        self.runs = 0

    @property
    def tools(self) -> FakeTools:
        return self.setup.tools

    @property
    def prompts(self) -> list[list[dict[str, Any]]]:
        """The messages of every prompt the model got, as OpenAI would get them."""
        if self.server is not None:
            return [request["messages"] for request in self.server.requests]
        assert isinstance(self.model, ScriptedModel)
        return [wire(prompt) for prompt in self.model.prompts]

    def new_run(self) -> str:
        self.runs += 1
        return f"r{self.runs}"

    async def say(self, text: str = "hello", *, thread: str = THREAD, **fields: Any) -> Accepted:
        fields.setdefault("user_id", USER)
        fields.setdefault("run_id", self.new_run())
        new = NewThread(fields["user_id"], agent="a")
        command = StartRun(thread_id=thread, message=said(text), new=new, **fields)
        async with asyncio.timeout(BOUND):
            return await self.engine.start(command)

    async def edit(self, run: str, text: str | None = None, **fields: Any) -> Accepted:
        fields.setdefault("run_id", self.new_run())
        message = said(text) if text is not None else None
        async with asyncio.timeout(BOUND):
            return await self.engine.edit(
                EditRun(thread_id=THREAD, user_id=USER, edited_run=run, message=message, **fields)
            )

    async def result(self, accepted: Accepted) -> Run:
        async with asyncio.timeout(BOUND):
            return await self.engine.result(accepted.thread_id, accepted.run_id)

    async def ask(self, text: str = "hello", **fields: Any) -> Run:
        """Say it and wait for what becomes of it."""
        return await self.result(await self.say(text, **fields))

    async def decide(self, approval_id: str, /, **fields: Any) -> bool:
        fields.setdefault("user_id", USER)
        fields.setdefault("approved", True)
        async with asyncio.timeout(BOUND):
            return await self.engine.decide(DecideApproval(approval_id, **fields))

    async def cancel(self, run_id: str, *, thread: str = THREAD) -> RunStatus:
        async with asyncio.timeout(BOUND):
            return await self.engine.cancel(CancelRun(thread, USER, run_id))

    async def parked(self) -> None:
        """Until nobody holds the thread."""
        signals = self.engine.parts.services.signals
        async with asyncio.timeout(BOUND), signals.subscribe(THREAD) as changes:
            while (await self.store.thread(THREAD)).owner is not None:
                await changes.wait(BOUND)

    async def sweep(self) -> None:
        """What the engine does by itself every few seconds."""
        await self.engine.parts.sweeper.sweep()

    async def until(
        self, condition: Callable[[ThreadState], bool], *, thread: str = THREAD
    ) -> ThreadState:
        """The thread's state as soon as the condition holds."""
        async with asyncio.timeout(BOUND):
            async for _ in self.engine.watch(thread):
                state = fold(await self.log(thread))
                if condition(state):
                    return state
        raise AssertionError("a thread is watched without end")

    async def ended(self, run_id: str, *, thread: str = THREAD) -> Run:
        async with asyncio.timeout(BOUND):
            async for _ in self.engine.watch(thread, run_id=run_id):
                pass
        return fold(await self.log(thread)).run(run_id)

    async def items(self, accepted: Accepted) -> list[Event | LiveDelta]:
        """Everything a reader of this run sees, to its end."""
        async with asyncio.timeout(BOUND):
            watched = self.engine.watch(
                accepted.thread_id, after=accepted.after, run_id=accepted.run_id
            )
            return [item async for items in watched for item in items]

    async def log(self, thread: str = THREAD) -> list[Event]:
        return list(await self.store.events_after(thread, 0, 100_000))

    async def approvals(self, run_id: str, *, thread: str = THREAD) -> list[str]:
        """The open approvals of a run, in the order of its calls."""
        run = fold(await self.log(thread)).run(run_id)
        return [approval.request.approval_id for approval in run.pending_approvals]

    async def results(self, run_id: str, *, thread: str = THREAD) -> list[str | None]:
        """Each call's result, in the order of the calls; `None` if it has none yet."""
        run = fold(await self.log(thread)).run(run_id)
        return [call.finished.result if call.finished else None for call in run.calls.values()]


async def waiting(talk: Talk) -> str:
    """The approval the first run waits for."""
    assert (await talk.ask()).status is RunStatus.WAITING
    (approval_id,) = await talk.approvals("r1")
    return approval_id


def is_asked_anew(old: str) -> Callable[[ThreadState], bool]:
    def asked(state: ThreadState) -> bool:
        open_now = [a.request.approval_id for a in state.run("r1").pending_approvals]
        return bool(open_now) and old not in open_now

    return asked


def raw(*requests: tuple[str, str, str]) -> Turn:
    """Calls exactly as a careless model spells them: id, name, arguments."""
    return [*(CallRequested(*request) for request in requests), TurnFinished("tool_calls")]


def still_clock() -> SettableClock:
    """For a store whose leases are short so that sweeps come often: none of them runs out while
    the machine has no time for us."""
    return SettableClock()


def said(text: str) -> UserInput:
    return UserInput(parts=(Part(content=text),))


def wire(prompt: Prompt) -> list[dict[str, Any]]:
    return [wire_message(message) for message in prompt.messages]


def kinds(events: Sequence[Event | LiveDelta]) -> list[str]:
    return [type(event).__name__ for event in events]


def endings(events: Sequence[Event]) -> list[RunStatus]:
    return [event.status for event in events if isinstance(event, RunEnded)]


@asynccontextmanager
async def talking(
    at: Path | Store | str,
    setup: Setup | None = None,
    *,
    owner: str = "a",
    signals: Signals | None = None,
    peers: Peers | None = None,
    **fields: Any,
) -> AsyncIterator[Talk]:
    """A conversation over the store at this path (sqlite), URL, or over an open store."""
    setup = setup or Setup(**fields)
    async with AsyncExitStack() as stack:
        store = await _opened(at, setup, stack)
        server = None
        model = setup.model
        if model is None and setup.http:
            server = await stack.enter_async_context(ScriptedModelServer(setup.script))
            clients = await stack.enter_async_context(ModelClients())
            endpoint = Endpoint(server.base_url, "m", retry=RetryPolicy(attempts=1))
            model = OpenAIChat(clients, endpoint)
        model = setup.model = model or ScriptedModel(setup.script)
        engine = await stack.enter_async_context(
            engine_of(store, setup, model, owner, signals, peers)
        )
        if setup.lease_ttl >= UNSWEPT:
            # Its first sweep may come as late as any other.
            await engine.parts.sweeper.__aexit__()
        talk = Talk(engine, store, setup, model)
        talk.server = server
        yield talk


def engine_of(
    store: Store,
    setup: Setup,
    model: Model,
    owner: str,
    signals: Signals | None = None,
    peers: Peers | None = None,
) -> Engine:
    agent = Agent(
        "a",
        model,
        setup.tools,
        setup.policy,
        "be kind",
        on_reject=setup.on_reject,
        limits=setup.limits,
        context_window=setup.context,
        price=setup.price,
        max_tokens=setup.max_tokens,
        is_attended=setup.is_attended,
        redaction=setup.redaction,
        director=setup.director,
    )
    return Engine(
        store,
        {"a": agent},
        signals=signals or LocalSignals(),
        peers=peers,
        clock=setup.clock,
        ids=SequentialIds(zlib.crc32(owner.encode()) << 24),
        owner=owner,
        lease_ttl=setup.lease_ttl,
        disconnect_grace=setup.disconnect_grace,
        reader_period=setup.reader_period,
        budget=setup.budget(store, setup.clock) if setup.budget else None,
        retention=setup.retention,
        observer=setup.observer,
        audit=setup.audit,
    )


async def _opened(at: Path | Store | str, setup: Setup, stack: AsyncExitStack) -> Store:
    if isinstance(at, Path):
        at = f"sqlite://{at / 'teal.sqlite'}"
    if isinstance(at, str):
        return await stack.enter_async_context(open_store(at, clock=setup.clock))
    return at
