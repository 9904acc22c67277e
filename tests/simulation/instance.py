"""One instance of the server: a process with its engine, its store and its chats API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import apsw
from fastapi import FastAPI

from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.chats.requests import SURFACE, ChatResources
from sk_agents.chats.routes import chat_operations
from sk_agents.config.settings import Settings
from sk_agents.engine.agent import Agent
from sk_agents.engine.engine import Engine
from sk_agents.engine.ports import Store
from sk_agents.exceptions import TealError
from sk_agents.http.caller import CallerCheck
from sk_agents.http.front import TealApp
from sk_agents.http.limits import Limits, Quotas, StreamSlots
from sk_agents.signals.local import LocalSignals
from sk_agents.tools.mcp.context import McpContext
from sk_agents.wire.views import AgentView, BudgetReport, UsageRow
from tests.simulation.network import Server
from tests.simulation.store_port import Shadow, StorePort, Trouble
from tests.simulation.substitution import WORLD, SeededIds
from tests.simulation.virtual_loop import PROCESS, Process, VirtualLoop
from tests.simulation.virtual_threads import EPOCH, START

logger = logging.getLogger(__name__)

AGENT = "a"
RESTART_SECONDS = 1.0
ZERO = datetime.fromtimestamp(EPOCH, UTC)


class ProcessClock:
    """The clock of whichever process looks at it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        process = PROCESS.get()
        skew = process.skew if process is not None else 0.0
        return ZERO + timedelta(seconds=self._loop.time() + skew)

    def monotonic(self) -> float:
        return START + self._loop.time()


class FaultySignals(LocalSignals):
    """Wake-ups that may be lost or come late."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self.lost = False
        self.late = False

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        if self.lost:
            return
        if self.late:
            delay = self._loop.random.random() * 3.0
            self._loop.call_later(delay, super().notify, thread_id)
            return
        super().notify(thread_id, local=local)


@dataclass(slots=True)
class Chats:
    """The chats API; its routes are made once and serve one history after the other."""

    app: FastAPI
    resources: ChatResources

    def begin(self, engine: Engine) -> None:
        self.app.state.engines = SimpleNamespace(main=engine, copies=None)
        limits = _limits()
        self.resources.quotas, self.resources.slots = limits.quotas[SURFACE], limits.slots


def _limits() -> Limits:
    return Limits(
        StreamSlots(None), {SURFACE: Quotas(SURFACE, chats=10_000, pending=None, calls=16)}
    )


async def _no_usage(since: date, user_id: str | None) -> list[UsageRow]:
    return []


async def _no_budgets(user_id: str | None) -> BudgetReport:
    return BudgetReport(at="", rows=[])


def chats_app() -> Chats:
    app = TealApp(title="", openapi_url=None)
    app.state.settings = Settings()
    app.state.parts = SimpleNamespace(agents={})
    app.state.limits = _limits()
    app.state.caller_check = CallerCheck(DummyAuthorizer(), allow_insecure=True)
    view = AgentView(name=AGENT, description="", model="m", examples=[], tools=[])
    resources = ChatResources(lambda: [view], app.state.limits, _no_usage, _no_budgets)
    app.add_operations(chat_operations(resources, McpContext({})))
    return Chats(app, resources)


@dataclass(slots=True)
class Instance:
    """It can be killed, stalled and started again; each start is a process of its own."""

    index: int
    loop: VirtualLoop
    chats: Chats
    agent: Agent
    shadow: Shadow
    latency: float
    open_store: Callable[[], Store]
    # Whether other instances see at once that its process is gone.
    is_on_same_host: bool = True
    server: Server = field(init=False)
    trouble: Trouble = field(default_factory=Trouble)
    signals: FaultySignals = field(init=False)
    process: Process = field(init=False)
    owner: str = ""
    boots: int = 0
    wants_to_run: bool = True
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _life: asyncio.Task[None] | None = None
    _engine: Engine | None = None

    def __post_init__(self) -> None:
        self.server = Server(self.index)
        self.signals = FaultySignals(self.loop)

    @property
    def is_alive(self) -> bool:
        return self.server.app is not None and self.process.state != "dead"

    def start(self) -> None:
        """Begin a new life, now."""
        self.boots += 1
        self.owner = f"i{self.index}b{self.boots}"
        self.process = Process(self.owner)
        self.signals = FaultySignals(self.loop)
        self.wants_to_run = True
        self._stopping = asyncio.Event()
        self._life = self.loop.create_task(self._live(), context=self.process.context.copy())
        self._life.add_done_callback(self._died, context=self.loop.world.context)

    def revive(self) -> None:
        """Start it if it does not run."""
        if self._life is not None and self._life.done():
            self.loop.kill(self.process)
        if self.process.state == "dead":
            self.start()

    def kill(self) -> None:
        self.wants_to_run = False
        self.server.app = None
        self.loop.kill(self.process)
        self.server.cut()
        if self.is_on_same_host:
            WORLD.gone.add(self.owner)

    async def stop(self) -> None:
        """As on SIGTERM: hand over, then end."""
        self.wants_to_run = False
        if self._engine is not None and self.process.state == "running":
            self._engine.drain()
        self._stopping.set()
        life = self._life
        if life is not None and self.process.state == "running":
            await asyncio.wait([life], timeout=60.0)

    def shift_clock(self, seconds: float) -> None:
        self.process.skew += seconds

    async def _live(self) -> None:
        while True:
            try:
                await self._serve()
            except (TealError, apsw.FullError) as error:
                # When SQLite closes it ignores a full disk; a VFS in Python raises it all the same.
                logger.info("no start", extra={"error": type(error).__name__})
                await asyncio.sleep(RESTART_SECONDS)
                continue
            if self.wants_to_run:
                # It has ended by itself: whoever looks after it starts it again.
                self.loop.call_later(RESTART_SECONDS, self.revive, context=self.loop.world.context)
            return

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            inner = self.open_store()
            await stack.enter_async_context(inner)
            port = StorePort(inner, self.process, self.shadow, self.trouble, self.latency)
            engine = Engine(
                port,
                {AGENT: self.agent},
                signals=self.signals,
                clock=ProcessClock(self.loop),
                ids=SeededIds(),
                owner=self.owner,
            )
            await stack.enter_async_context(engine)
            self._engine = engine
            self.chats.begin(engine)
            self.server.process, self.server.app = self.process, self.chats.app
            await self._until_it_must_end(engine)
            self.server.app = None

    async def _until_it_must_end(self, engine: Engine) -> None:
        """Until it is told to, or its store is of no use to it any more."""
        broken = self.loop.create_task(engine.broken())
        told = self.loop.create_task(self._stopping.wait())
        await asyncio.wait([broken, told], return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        told.cancel()

    def _died(self, life: asyncio.Task[None]) -> None:
        self.server.app = None
        self.server.cut()
        if not life.cancelled() and life.exception() is not None:
            self.loop.unhandled.append(f"{self.owner} ended: {life.exception()!r}")
