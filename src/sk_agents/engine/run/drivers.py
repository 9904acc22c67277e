"""The runs this instance drives, and what happens when driving one goes wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from sk_agents.engine.agent import Agent
from sk_agents.engine.run.driver import Driver
from sk_agents.engine.run.lent_headers import awaits_header
from sk_agents.engine.services import STORE_TROUBLE, Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import InvalidInput, LeaseLost, StateCorrupt, TealError

logger = logging.getLogger(__name__)

GRACE_SECONDS = 8.0


class Drivers:
    """`abandoned` are threads whose lease is ours although we gave up driving them, `failed` those
    of them whose run cannot go on. `left` is set when a queue was left without an owner."""

    def __init__(self, services: Services, agents: Mapping[str, Agent]) -> None:
        self._services = services
        self._agents = agents
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[Driver, asyncio.Task[None]] = {}
        self._lent: dict[str, str] = {}
        # Of threads that another instance drives, until it gives them back.
        self._kept_headers: dict[str, str] = {}
        self.abandoned: set[str] = set()
        self.failed: set[str] = set()
        self.left = asyncio.Event()
        self.draining = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Bring every run to a step where another instance can go on."""
        self.drain()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def drain(self) -> None:
        """Drive nothing anew, and ask every driver to hand over."""
        self.draining = True
        for driver in list(self._tasks):
            driver.drain()

    @property
    def active(self) -> list[Driver]:
        return list(self._drivers.values())

    def is_driven(self, thread_id: str) -> bool:
        driver = self._drivers.get(thread_id)
        return driver is not None and not driver.is_outdated

    def check_agent(self, name: str | None) -> None:
        if (name or self.default_agent) not in self._agents:
            raise InvalidInput(f"There is no agent named {name}.")

    @property
    def default_agent(self) -> str:
        return next(iter(self._agents), "")

    def has_agent_of(self, known: KnownThread) -> bool:
        return self._agent_name(known) in self._agents

    def agent_of(self, known: KnownThread) -> Agent:
        name = self._agent_name(known)
        try:
            return self._agents[name]
        except KeyError:
            raise InvalidInput(f"There is no agent named {name} any more.") from None

    def _agent_name(self, known: KnownThread) -> str:
        run = known.state.runs.get(known.state.active_run or "")
        return (run.agent if run else None) or known.head.agent or self.default_agent

    @contextmanager
    def lending(self, known: KnownThread, authorization: str | None) -> Iterator[None]:
        """Whoever drives the thread here meanwhile, or begins to, has its user's newest header."""
        thread_id = known.head.thread_id
        if authorization is not None:
            self._lent[thread_id] = authorization
            if thread_id in self._drivers:
                self._drivers[thread_id].authorization = authorization
        try:
            yield
            is_ours = known.head.owner == self._services.owner
            if authorization is not None and not is_ours and awaits_header(known):
                self._kept_headers[thread_id] = authorization
        finally:
            self._lent.pop(thread_id, None)

    @property
    def kept_headers(self) -> list[str]:
        """The threads that another instance is to give back to this one, which has the header."""
        return list(self._kept_headers)

    def drop_header(self, thread_id: str) -> None:
        """The call that it was lent to needs it no more."""
        self._kept_headers.pop(thread_id, None)

    def drive(
        self,
        known: KnownThread,
        *,
        authorization: str | None = None,
        header_is_lost: bool = False,
    ) -> None:
        """Drive on what is ours and not driven yet; poke what is."""
        thread_id = known.head.thread_id
        self._services.claiming.pop(thread_id, None)
        driver = self._drivers.get(thread_id)
        head = known.head
        if driver is not None:
            driver.authorization = authorization or driver.authorization
            driver.poke()
            if driver.epoch >= head.epoch and not driver.is_outdated:
                return
            # It was outrun and only waits for its last tools; the thread has come back to us.
        if head.owner != self._services.owner or head.active_run is None or self.draining:
            return
        kept = self._kept_headers.pop(thread_id, None)
        driver = Driver(
            self._services,
            known,
            self.agent_of,
            authorization=authorization or self._lent.get(thread_id) or kept,
            header_is_lost=header_is_lost,
        )
        task = driver.start()
        self._drivers[thread_id] = driver
        self._tasks[driver] = task
        task.add_done_callback(lambda done: self._finished(driver, done))

    def _finished(self, driver: Driver, task: asyncio.Task[None]) -> None:
        thread_id = driver.thread_id
        error = None if task.cancelled() else task.exception()
        del self._tasks[driver]
        if self._drivers.get(thread_id) is not driver:
            return
        del self._drivers[thread_id]
        if task.cancelled() or error is not None:
            # The lease may well be ours still: the sweeper gives it up once the store lets it.
            self.abandoned.add(thread_id)
        elif driver.known.head.runnable:
            # Something was queued just before the last run ended.
            self.drive(driver.known, authorization=driver.authorization)
            self.left.set()
        if error is None:
            return
        if not isinstance(error, (LeaseLost, StateCorrupt, *STORE_TROUBLE)):
            self.failed.add(thread_id)
        level = logging.WARNING if isinstance(error, TealError) else logging.ERROR
        logger.log(
            level,
            "run dropped",
            extra={"thread_id": thread_id, "error": type(error).__name__},
            exc_info=None if isinstance(error, TealError) else error,
        )
