"""Keeps the threads driven here up to date with what other instances commit to them.

A cancel or a decision may be committed at any instance. Signals need not reach the one that drives
the run, so it looks by itself, about once a second, with one read for all of its threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from sk_agents.engine.models import Thread
from sk_agents.engine.run.drivers import Drivers
from sk_agents.engine.run.lent_headers import awaits_header
from sk_agents.engine.services import STORE_TROUBLE, Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import Conflict, NotFound, StateCorrupt

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0


class Follower:
    def __init__(self, services: Services, drivers: Drivers) -> None:
        self._services = services
        self._drivers = drivers
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._look_for_ever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Take over what others have committed; each driver hears of it from its thread."""
        await self._look_at_driven()
        for thread_id in self._drivers.kept_headers:
            await self._look_for(thread_id)

    async def _look_at_driven(self) -> None:
        driven = {driver.thread_id: driver.known for driver in self._drivers.active}
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

    async def _look_for(self, thread_id: str) -> None:
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

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            try:
                await self.look()
            except STORE_TROUBLE as error:
                self._services.look_at(error)
                logger.warning("driven runs not looked at", extra={"error": type(error).__name__})
