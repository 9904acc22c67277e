"""The runs this instance drives, and what other instances commit to their threads.

A cancel or a decision may be committed at any instance. Signals need not reach the one that drives
the run, so it looks by itself, about once a second, with one read for all of its threads.

A header that a user lends to a call is held in memory by the instance that took the decision and is
never stored. So it is the run that moves: its owner finishes what it has begun and gives the run
back, and the instance with the header claims it. Should that one be gone, the header is asked for
again after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from sk_agents.engine.agent import Agent
from sk_agents.engine.models import Thread
from sk_agents.engine.run.driver import Driver
from sk_agents.engine.run.run_context import UserHeader
from sk_agents.engine.services import STORE_TROUBLE, BackgroundTask, Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.engine.threads.titling import Titling
from sk_agents.exceptions import (
    Conflict,
    InvalidInput,
    LeaseLost,
    NotFound,
    StateCorrupt,
    TealError,
)

logger = logging.getLogger(__name__)

# How long a driver may take to hand its run over when the instance stops.
GRACE_SECONDS = 8.0
PERIOD_SECONDS = 1.0


class Drivers:
    """`abandoned` are threads whose lease is ours although we gave up driving them, `failed` those
    of them whose run cannot go on."""

    def __init__(self, services: Services, agents: Mapping[str, Agent]) -> None:
        self._services = services
        self._agents = agents
        self.titling = Titling(services)
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[Driver, asyncio.Task[None]] = {}
        self._lent: dict[str, str] = {}
        # Of threads that another instance drives, until it gives them back.
        self._kept_headers: dict[str, str] = {}
        self.abandoned: set[str] = set()
        self.failed: set[str] = set()
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
        await self.titling.close()

    def drain(self) -> None:
        """Ask every driver to hand over, and each that begins from now on."""
        self.draining = True
        for driver in list(self._tasks):
            driver.drain()

    @property
    def active(self) -> list[Driver]:
        return list(self._drivers.values())

    def is_driven(self, thread_id: str) -> bool:
        driver = self._drivers.get(thread_id)
        return driver is not None and not driver.is_outdated

    def settled(self, thread_id: str) -> None:
        """Its lease is given up, or nothing can be done about it."""
        self.abandoned.discard(thread_id)
        self.failed.discard(thread_id)

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
        """A driver of the thread that is at work here, or begins to be, has this header."""
        thread_id = known.head.thread_id
        if authorization is not None:
            self._lent[thread_id] = authorization
            if thread_id in self._drivers:
                self._drivers[thread_id].header.value = authorization
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
        """Drive on what is ours and not driven yet; poke what is.

        One that is at work has the header already: it was lent before the decision was stored.
        """
        thread_id = known.head.thread_id
        self._services.claiming.pop(thread_id, None)
        driver = self._drivers.get(thread_id)
        head = known.head
        if driver is not None:
            driver.poke()
            if driver.epoch >= head.epoch and not driver.is_outdated:
                return
            # It lost the thread and only waits for its last tools; the thread has come back to us.
        if head.owner != self._services.owner or head.active_run is None:
            return
        if known.is_deleted:
            # Its driver would end at once.
            return
        kept = self._kept_headers.pop(thread_id, None)
        lent = authorization or self._lent.get(thread_id) or kept
        header = UserHeader(lent, is_lost=header_is_lost)
        driver = Driver(self._services, known, self.agent_of, header, self.titling.ended)
        task = driver.start()
        self._drivers[thread_id] = driver
        self._tasks[driver] = task
        task.add_done_callback(lambda done: self._finished(driver, done))
        if self.draining:
            # Its lease was on its way when we were asked to drain: it hands the run over at once.
            driver.drain()

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


def awaits_header(known: KnownThread) -> bool:
    """Whether a call of the active run has been lent a header."""
    run = known.state.runs.get(known.state.active_run or "")
    return run is not None and any(call.has_lent_header for call in run.unresolved_calls)


class Follower(BackgroundTask):
    def __init__(self, services: Services, drivers: Drivers) -> None:
        self._services = services
        self._drivers = drivers
        # Driven threads to which another instance says that it has committed.
        self._notified: set[str] = set()
        self._was_notified = asyncio.Event()
        services.signals.listen(self._notice)

    def _notice(self, thread_id: str) -> None:
        if self._drivers.is_driven(thread_id):
            self._notified.add(thread_id)
            self._was_notified.set()

    async def look(self) -> None:
        """Take over what others have committed; each driver hears of it from its thread."""
        await self._look_at({driver.thread_id for driver in self._drivers.active})
        for thread_id in self._drivers.kept_headers:
            await self._reclaim(thread_id)

    async def _look_at(self, thread_ids: set[str]) -> None:
        driven = {
            driver.thread_id: driver.known
            for driver in self._drivers.active
            if driver.thread_id in thread_ids
        }
        if not driven:
            return
        for head in await self._services.store.heads(driven):
            known = driven[head.thread_id]
            if head.incarnation != known.incarnation:
                known.mark_deleted()
            elif head.next_seq > known.state.next_seq or head.epoch > known.head.epoch:
                await self._take_over(known, head)

    async def _take_over(self, known: KnownThread, head: Thread) -> None:
        try:
            await self._services.threads.catch_up(known, head)
        except (NotFound, StateCorrupt):
            # Its driver meets the same at its next commit.
            return
        self._services.signals.notify(head.thread_id, local=True)

    async def _reclaim(self, thread_id: str) -> None:
        """Claim a run that another instance has given back to us, who hold its user's header."""
        try:
            known = await self._services.threads.load(thread_id)
            if not awaits_header(known):
                self._drivers.drop_header(thread_id)
            elif known.head.owner is None and not self._drivers.draining:
                await self._services.claim(known)
                self._drivers.drive(known)
        except Conflict:
            # Another instance was faster: it gives the run back as the first one did.
            pass
        except (NotFound, StateCorrupt):
            self._drivers.drop_header(thread_id)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + PERIOD_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._was_notified.wait()
                is_due = False
            except TimeoutError:
                is_due, due = True, loop.time() + PERIOD_SECONDS
            self._was_notified.clear()
            notified, self._notified = self._notified, set()
            try:
                await (self.look() if is_due else self._look_at(notified))
            except STORE_TROUBLE as error:
                self._services.look_at(error)
                logger.warning("driven runs not looked at", extra={"error": type(error).__name__})
