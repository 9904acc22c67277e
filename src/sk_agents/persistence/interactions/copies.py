"""Every interaction that has ended, handed to the operator's own `InteractionStore`.

The log is the truth, and the class gets a copy: after the commit that ended an interaction, again
and again until the class has taken it. What waits is kept in memory as ids alone; what a process
had not handed over when it ended is found by a look through the store, at each start and by one
instance every ten minutes. The other way round, a chat that the store does not know is looked for
in the class, and restored from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Self
from weakref import WeakValueDictionary

from sk_agents import exceptions as errors
from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import TERMINAL, NewThread, Thread
from sk_agents.engine.ports import Clock, Count, ListedStore, Store
from sk_agents.engine.services import STORE_TROUBLE, BackgroundTask
from sk_agents.interactions import chat_thread_id, interaction_of
from sk_agents.persistence.interaction_store import SURFACE, past_of
from sk_agents.persistence.interactions.user_interactions import UserInteractions

logger = logging.getLogger(__name__)

# Between two tries, in seconds.
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
AT_ONCE = 8
PAGE = 500
LOOK_EVERY_SECONDS = 600.0
# What was changed so shortly before the last look may have been on its way then.
MARGIN = timedelta(minutes=1)
# How long a server that ends tries to hand over what is left.
CLOSING_SECONDS = 5.0

Restore = Callable[[str, NewThread, Sequence[Event]], Awaitable[object]]


class InteractionCopies(BackgroundTask):
    """Implements `Copies`. To be entered once the store is open, and left before it is closed.

    `agent` answers when a chat that was restored is continued.
    """

    def __init__(
        self, interactions: UserInteractions, store: Store, clock: Clock, *, agent: str = ""
    ) -> None:
        self._interactions = interactions
        self._store = store
        self._clock = clock
        self._agent = agent
        # The runs to hand over, by thread; `None` are all that the class does not have.
        self._due: dict[str, set[str] | None] = {}
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._is_failing = False
        self._look: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return str(self._interactions)

    def facts(self) -> dict[str, object]:
        """For a readiness check: how many chats have something that the class has not taken."""
        return {"class": str(self), "chats_waiting": len(self._due)}

    async def __aenter__(self) -> Self:
        """Raises ConfigurationError, StoreUnavailable: the class cannot be used."""
        await self._interactions.probe()
        if not self._interactions.deletes:
            logger.warning(
                "the class for interactions has no delete_chat: no chat can be deleted",
                extra={"store": str(self)},
            )
        self._look = asyncio.get_running_loop().create_task(self._look_repeatedly())
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)
        await super().__aexit__(*exc_info)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._hand_over()
        if self._due:
            logger.warning(
                "chats are not handed over yet; the next start looks for them",
                extra={"chats": len(self._due), "store": str(self)},
            )

    def stored(self, thread: Thread, events: Sequence[Event]) -> None:
        if thread.surface != SURFACE:
            return
        ended = {event.run_id for event in events if isinstance(event, RunEnded)}
        if ended:
            self._add(thread.thread_id, ended)

    @asynccontextmanager
    async def removing(self, thread: Thread) -> AsyncGenerator[None]:
        if thread.surface != SURFACE:
            yield
            return
        async with self._lock(thread.thread_id):
            await self._interactions.delete_chat(thread)
            yield
            # Another instance may have handed something over in between.
            try:
                await self._interactions.delete_chat(thread)
            except errors.StoreUnavailable as error:
                self._note_failure(error)

    async def bring(self, user_id: str, chat_id: str, restore: Restore) -> None:
        """Restore a chat that the class has and the store does not know.

        Raises:
            StoreUnavailable: the class does not answer, so what it has is not known.
            StateCorrupt: what it has is no chat that can be gone on with.
        """
        thread_id = chat_thread_id(user_id, chat_id)
        if await self._store.heads([thread_id]):
            return
        found = await self._interactions.load_chat(user_id, chat_id)
        ended = [one for one in found or () if one.completed_at is not None]
        if not ended:
            return
        new = NewThread(user_id, wire_id=chat_id, surface=SURFACE, agent=self._agent)
        try:
            await restore(thread_id, new, list(past_of(ended)))
        except errors.ThreadExists:
            return
        except errors.InvalidInput as error:
            raise errors.StateCorrupt(
                f"{self} has a chat that cannot be gone on with: {error}", thread_id=thread_id
            ) from error
        extra = {"thread_id": thread_id, "interactions": len(ended)}
        logger.info("chat restored from the class for interactions", extra=extra)

    def _add(self, thread_id: str, run_ids: set[str] | None) -> None:
        before = self._due.get(thread_id, set())
        self._due[thread_id] = None if before is None or run_ids is None else before | run_ids
        self._arrived.set()
        self._idle.clear()

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            for pause in chain(PAUSES, repeat(PAUSES[-1])):
                await self._hand_over()
                if not self._due:
                    break
                await asyncio.sleep(pause)
            self._idle.set()

    async def _hand_over(self) -> None:
        """Try once with each chat that waits; what the class does not take goes on waiting."""
        waiting = list(self._due)
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            outcomes = await asyncio.gather(*map(self._hand_over_chat, some))
            if not any(outcomes):
                # The class is away: the others would fail too.
                return

    async def _hand_over_chat(self, thread_id: str) -> bool:
        run_ids = self._due.pop(thread_id, set())
        try:
            async with self._lock(thread_id):
                await self._copy(thread_id, run_ids)
        except errors.StateCorrupt as error:
            logger.error("a chat cannot be handed over: %s", error, extra={"thread_id": thread_id})
            return True
        except asyncio.CancelledError:
            self._add(thread_id, run_ids)
            raise
        except STORE_TROUBLE as error:
            self._add(thread_id, run_ids)
            self._note_failure(error)
            return False
        self._note_success()
        return True

    async def _copy(self, thread_id: str, run_ids: set[str] | None) -> None:
        """Hand over these runs of the thread, or all that the class does not have."""
        try:
            head, state = await self._read(thread_id)
        except errors.ThreadNotFound:
            return
        user_id, chat_id = head.user_id, head.wire_id
        if run_ids is None:
            found = await self._interactions.load_chat(user_id, chat_id)
            run_ids = state.runs.keys() - {one.id for one in found or ()}
        ended = [state.runs[id] for id in run_ids if id in state.runs]
        ended = [run for run in ended if run.phase in TERMINAL]
        for run in sorted(ended, key=lambda run: run.last_seq):
            await self._interactions.save(user_id, chat_id, interaction_of(state, run.run_id))
        is_deleted = not await self._store.heads([thread_id])
        if is_deleted and self._interactions.deletes:
            # It was deleted at another instance, whose deletion at the class may have come first.
            await self._interactions.delete_chat(head)

    async def _read(self, thread_id: str) -> tuple[Thread, ThreadState]:
        head = await self._store.thread(thread_id)
        state = ThreadState()
        while state.next_seq < head.next_seq and (
            events := await self._store.events_after(
                thread_id, state.next_seq - 1, incarnation=head.incarnation
            )
        ):
            for event in events:
                state.apply(event)
        return head, state

    async def _look_repeatedly(self) -> None:
        store = self._store
        if not isinstance(store, ListedStore):
            return
        since: datetime | None = None
        while True:
            began = self._clock.now()
            try:
                if since is None or await self._has_turn():
                    await self._look_through(store, since)
                    since = began - MARGIN
            except STORE_TROUBLE as error:
                logger.warning("a look through the chats failed: %s", error)
                await asyncio.sleep(PAUSES[-1])
                continue
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def _has_turn(self) -> bool:
        try:
            await self._store.count([Count("interactions", 1, LOOK_EVERY_SECONDS, at_most=1)])
        except errors.CounterFull:
            return False
        return True

    async def _look_through(self, store: ListedStore, since: datetime | None) -> None:
        """Add each chat that was changed since, and wait until it is looked at."""
        after = ""
        while ids := await store.all_threads(after=after, limit=PAGE):
            for head in await store.heads(ids):
                if head.surface == SURFACE and (since is None or head.updated_at >= since):
                    self._add(head.thread_id, None)
            after = ids[-1]
            if self._due:
                await self._idle.wait()

    def _lock(self, thread_id: str) -> asyncio.Lock:
        """One change of a chat's copy at a time."""
        return self._locks.setdefault(thread_id, asyncio.Lock())

    def _note_failure(self, error: BaseException) -> None:
        if not self._is_failing:
            logger.error("the class for interactions takes nothing: %s", error)
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            logger.info("the class for interactions takes interactions again")
        self._is_failing = False
