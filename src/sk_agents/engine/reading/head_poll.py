"""Readers that look by themselves whether their thread has changed: one read for many."""

from __future__ import annotations

import asyncio

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store

# A question waits so long for others. 500 readers that each asked alone, once a second, took 7 % of
# a core.
COLLECT_SECONDS = 0.1


class HeadPoll:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[Thread | None], str] = {}
        self._task: asyncio.Task[None] | None = None

    async def head(self, thread_id: str) -> Thread | None:
        """As the store has it; `None` if there is none, or it is damaged.

        Raises:
            StoreError: as the store says.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Thread | None] = loop.create_future()
        self._waiting[answer] = thread_id
        if self._task is None:
            self._task = loop.create_task(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        await asyncio.sleep(COLLECT_SECONDS)
        waiting, self._waiting, self._task = self._waiting, {}, None
        try:
            heads = await self._store.heads(set(waiting.values()))
        except Exception as error:  # each of them is told, and decides for itself
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        found = {head.thread_id: head for head in heads}
        for answer, thread_id in waiting.items():
            if not answer.done():
                answer.set_result(found.get(thread_id))
