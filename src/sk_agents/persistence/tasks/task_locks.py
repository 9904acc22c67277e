"""Which server may change a task of a user's class, said in the class itself.

The four methods have no conditional write, so two servers that load, change and update a task at
the same time would overwrite each other. A server therefore changes a task only while a lock
record is its own: a further task, whose id is made of the first one's. There is no conditional
write for that record either, so it is taken by waiting: found free, written, and, after a pause in
which every other server that had found it free has written too, read again. The last writer has
it. A server whose own write took longer than the pause cannot know, and does not take it.

A holder writes a beat into its records. A record that has not changed for `STALE` seconds, by the
clock of the server that looks at it, belongs to none; a holder that could not write for half of
that time stops writing to the task. So two servers never write at once, unless a single write
takes effect later than half of `STALE` after it was begun. Where the class can update under a
condition, that cannot happen either: there the record only says that its holder is alive.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Self

from sk_agents import exceptions as errors
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Clock
from sk_agents.persistence.liveness import local_process_is_gone, new_owner
from sk_agents.persistence.tasks.user_tasks import UserTasks
from sk_agents.ska_types import AgentTask

logger = logging.getLogger(__name__)

# The pause, in seconds: longer than a load and a write of most classes in good health. It must be
# the same for all servers, since each relies on what the others allow themselves.
SETTLE = 0.2
BEAT = 5.0
STALE = 30.0
MOST_SEEN = 10_000
KEY = "_lock"
USER = "teal lock"
_NAMESPACE = uuid.UUID("5e2f6d0c-7c0e-4a6d-9d4e-2b8a4e0f8a11")

Seen = tuple[object, ...]


@dataclass(slots=True)
class Held:
    """`fresh_at` is when the last beat that was written had been begun."""

    token: str
    fresh_at: float
    beats: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class TaskLocks:
    """Every method may raise what `UserTasks` raises."""

    def __init__(self, tasks: UserTasks, clock: Clock, *, settle: float = SETTLE) -> None:
        self._tasks = tasks
        self._clock = clock
        self._settle = settle
        self._process = new_owner()
        self._held: dict[str, Held] = {}
        # What was last seen of others' locks and leases, and when it was first seen so.
        self._seen: dict[str, tuple[Seen, float]] = {}
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat_repeatedly())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        for thread_id in list(self._held):
            await self.give_back(thread_id)

    def holds(self, thread_id: str) -> bool:
        held = self._held.get(thread_id)
        return held is not None and self._is_fresh(held)

    async def take(self, thread_id: str, *, is_new: bool = False) -> None:
        """Have the lock. No other server can know of a task that is new.

        Raises:
            LeaseHeld: another server has it, or may have it.
        """
        if self.holds(thread_id):
            return
        begun = self._clock.monotonic()
        found = await self._record(thread_id)
        if not self._is_takeable(thread_id, found):
            raise _held_elsewhere(thread_id)
        held = Held(f"{self._process}/{secrets.token_hex(4)}", begun)
        try:
            await self._write(thread_id, held, is_new=found is None)
        except errors.StoreError:
            # It may be there all the same, or another server's, which was made just now.
            there = await self._record(thread_id)
            if there is None:
                raise
            if there != held.token:
                raise _held_elsewhere(thread_id) from None
        if not is_new and not self._tasks.is_conditional and self._settle:
            took = self._clock.monotonic() - begun
            if took >= self._settle:
                logger.warning(
                    "a lock was written too late, so this task takes no turn for half a minute: "
                    "the persistence class took %.2f s to load and write, and "
                    "TA_PERSISTENCE_SETTLE gives it %g s",
                    took,
                    self._settle,
                    extra={"thread_id": thread_id},
                )
                raise _held_elsewhere(thread_id)
            await asyncio.sleep(self._settle * 1.1)
            if await self._record(thread_id) != held.token:
                raise _held_elsewhere(thread_id)
        self._held[thread_id] = held
        self._seen.pop(thread_id, None)

    async def give_back(self, thread_id: str) -> None:
        held = self._held.pop(thread_id, None)
        if held is None or not self._is_fresh(held):
            return
        try:
            async with held.writing:
                await self._tasks.call("delete", lock_id(thread_id))
        except (errors.StoreError, errors.StoreFull) as error:
            self._held[thread_id] = Held(held.token, float("-inf"))
            extra = {"thread_id": thread_id, "error": type(error).__name__}
            logger.warning("a lock is left to go stale", extra=extra)

    async def is_free(self, thread_id: str) -> bool:
        """Whether no other server works on the task."""
        return self._is_takeable(thread_id, await self._record(thread_id))

    async def lives(self, head: Thread) -> bool:
        """Whether the owner of this thread, at another server, may be alive."""
        task = await self._tasks.load(lock_id(head.thread_id))
        seen = (head.owner, head.epoch, task and task.metadata.get(KEY))
        return not self._is_left(head.thread_id, seen, head.owner or "")

    def _is_takeable(self, thread_id: str, found: str | None) -> bool:
        """Whether this record, or none, means that no other server has the lock."""
        if found is None:
            self._seen.pop(thread_id, None)
            return True
        held = self._held.get(thread_id)
        if held is not None and held.token == found:
            return True
        return self._is_left(thread_id, (found,), _process_of(found))

    def _is_left(self, thread_id: str, seen: Seen, process: str) -> bool:
        """Whether all of this has been as it is for so long that its process must be gone."""
        if local_process_is_gone(process):
            return True
        now = self._clock.monotonic()
        before, since = self._seen.get(thread_id, ((), now))
        if before != seen:
            self._seen[thread_id] = seen, now
            if len(self._seen) > MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            return False
        return now - since >= STALE

    def _is_fresh(self, held: Held) -> bool:
        return self._clock.monotonic() - held.fresh_at < STALE / 2

    async def _record(self, thread_id: str) -> str | None:
        """The token in the lock record, with its beat unless it is ours."""
        task = await self._tasks.load(lock_id(thread_id))
        if task is None:
            return None
        lock = task.metadata.get(KEY)
        return str(lock) if not isinstance(lock, dict) else _text(lock, self._process)

    async def _write(self, thread_id: str, held: Held, *, is_new: bool) -> None:
        now = self._clock.now()
        record = AgentTask(
            task_id=lock_id(thread_id),
            session_id=lock_id(thread_id),
            user_id=USER,
            items=[],
            created_at=now,
            last_updated_at=now,
            metadata={KEY: {"token": held.token, "beats": held.beats}},
        )
        await self._tasks.call("create" if is_new else "update", record)

    async def _beat_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            held = [thread_id for thread_id in self._held if self.holds(thread_id)]
            done = await asyncio.gather(*map(self._beat, held), return_exceptions=True)
            for thread_id, error in zip(held, done, strict=True):
                if error is not None:
                    extra = {"thread_id": thread_id, "error": type(error).__name__}
                    logger.warning("a lock's beat was not written", extra=extra)

    async def _beat(self, thread_id: str) -> None:
        """Written over whatever is there: as long as ours is fresh, no other can be good."""
        held = self._held[thread_id]
        async with held.writing:
            begun = self._clock.monotonic()
            found = await self._record(thread_id)
            if self._held.get(thread_id) is not held or not self._is_fresh(held):
                return
            held.beats += 1
            await self._write(thread_id, held, is_new=found is None)
            held.fresh_at = begun


def lock_id(thread_id: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, thread_id))


def _text(lock: dict[str, object], process: str) -> str:
    token = str(lock.get("token"))
    return token if token.startswith(f"{process}/") else f"{token}/{lock.get('beats')}"


def _process_of(record: str) -> str:
    return record.partition("/")[0]


def _held_elsewhere(thread_id: str) -> errors.LeaseHeld:
    return errors.LeaseHeld(
        "Another server works on this task; try again when it has answered.", thread_id=thread_id
    )
