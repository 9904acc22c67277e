"""The runs this instance drives, and what happens when driving one goes wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Self

from sk_agents.engine.agent import Agent
from sk_agents.engine.driver import Driver
from sk_agents.engine.services import Services
from sk_agents.engine.threads import KnownThread
from sk_agents.exceptions import InvalidInput, LeaseLost, TealError

logger = logging.getLogger(__name__)

GRACE_SECONDS = 8.0


class Drivers:
    def __init__(self, services: Services, agents: Mapping[str, Agent]) -> None:
        self._services = services
        self._agents = agents
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.abandoned: set[str] = set()
        self.draining = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Bring every run to a step where another instance can go on."""
        self.draining = True
        for driver in self._drivers.values():
            driver.drain()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def active(self) -> list[Driver]:
        return list(self._drivers.values())

    def check_agent(self, name: str | None) -> None:
        if (name or self.default_agent) not in self._agents:
            raise InvalidInput(f"There is no agent named {name}.")

    @property
    def default_agent(self) -> str:
        return next(iter(self._agents), "")

    def agent_of(self, known: KnownThread) -> Agent:
        run = known.state.runs.get(known.state.active_run or "")
        name = (run.agent if run else None) or known.head.agent or self.default_agent
        try:
            return self._agents[name]
        except KeyError:
            raise InvalidInput(f"There is no agent named {name} any more.") from None

    def drive(self, known: KnownThread, *, authorization: str | None = None) -> None:
        """Drive on what is ours and not driven yet; poke what is."""
        thread_id = known.head.thread_id
        driver = self._drivers.get(thread_id)
        if driver is not None:
            driver.poke()
            return
        head = known.head
        if head.owner != self._services.owner or head.active_run is None or self.draining:
            return
        driver = Driver(self._services, known, self.agent_of(known), authorization=authorization)
        task = driver.start()
        self._drivers[thread_id] = driver
        self._tasks[thread_id] = task
        task.add_done_callback(lambda done: self._finished(thread_id, done))

    def _finished(self, thread_id: str, task: asyncio.Task[None]) -> None:
        self._drivers.pop(thread_id, None)
        self._tasks.pop(thread_id, None)
        if task.cancelled():
            self.abandoned.add(thread_id)
            return
        error = task.exception()
        if error is None:
            return
        if not isinstance(error, LeaseLost):
            # The lease is still ours: the sweeper gives it up once the store lets it.
            self.abandoned.add(thread_id)
        level = logging.WARNING if isinstance(error, TealError) else logging.ERROR
        logger.log(
            level,
            "run dropped",
            extra={"thread_id": thread_id, "error": type(error).__name__},
            exc_info=None if isinstance(error, TealError) else error,
        )
