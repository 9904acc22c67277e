"""The port between an engine and its store: slow, faulty at will, and watched.

`Shadow` is what an observer sees who misses no commit: the log of every thread, of each of its
lives, with the virtual time of each change. A thread that was deleted can still be checked there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Absent, Commit, Committed
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import CommitOutcomeUnknown, StoreFull, StoreUnavailable
from tests.simulation.virtual_loop import Process
from tests.simulation.virtual_threads import running_loop


@dataclass(slots=True)
class Life:
    """One life of a thread, from its making to its deletion."""

    thread_id: str
    made_at: datetime
    began: float
    ended: float | None = None
    # How many events it had when it was deleted. A commit whose sync was refused may have stored
    # some of them, and no sender has learned of them.
    length: int = 0
    events: dict[int, Event] = field(default_factory=dict)
    # The virtual time at which each event was known to be stored.
    stored: dict[int, float] = field(default_factory=dict)
    # Who held the lease from when on.
    owners: list[tuple[float, str | None]] = field(default_factory=list)
    # The next event's number at each claim of a lost owner's work.
    recovered: list[int] = field(default_factory=list)

    def log(self) -> list[Event]:
        return [self.events[seq] for seq in sorted(self.events)]

    @property
    def is_whole(self) -> bool:
        return len(self.events) == max(self.length, *self.events, 0)

    def owner_at(self, moment: float) -> str | None:
        owner = None
        for at, one in self.owners:
            if at <= moment:
                owner = one
        return owner


@dataclass(slots=True)
class Shadow:
    lives: dict[str, list[Life]] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def life_of(self, head: Thread) -> Life:
        lives = self.lives.setdefault(head.thread_id, [])
        for life in lives:
            if life.made_at == head.created_at:
                return life
        lives.append(Life(head.thread_id, head.created_at, running_loop().time()))
        return lives[-1]

    def note(self, head: Thread, events: Sequence[Event]) -> Life:
        life = self.life_of(head)
        now = running_loop().time()
        for event in events:
            known = life.events.setdefault(event.seq, event)
            life.stored.setdefault(event.seq, now)
            if known != event:
                self.contradictions.append(
                    f"{head.thread_id}: event {event.seq} was {known!r} and is {event!r}"
                )
        if not life.owners or life.owners[-1][1] != head.owner:
            life.owners.append((now, head.owner))
        return life

    def note_end(self, thread_id: str, next_seq: int) -> None:
        for life in self.lives.get(thread_id, ()):
            if life.ended is None and max(life.events, default=0) < next_seq:
                life.ended, life.length = running_loop().time(), next_seq - 1
                return

    def living(self) -> list[Life]:
        return [life for lives in self.lives.values() for life in lives if life.ended is None]

    def runs(self) -> dict[str, Life]:
        """The life that each run lies in."""
        return {
            event.run_id: life
            for lives in self.lives.values()
            for life in lives
            for event in life.events.values()
            if event.run_id
        }


@dataclass(slots=True)
class Trouble:
    """What the port does to the next calls of one instance."""

    unknown_before: int = 0
    unknown_after: int = 0
    late: int = 0
    is_away: bool = False
    is_full: bool = False


class StorePort:
    """Implements `Store` for one process by passing on to `inner`, whatever methods that has."""

    def __init__(
        self, inner: Store, process: Process, shadow: Shadow, trouble: Trouble, latency: float
    ) -> None:
        self.durability = inner.durability
        self._inner = inner
        self._process = process
        self._shadow = shadow
        self._trouble = trouble
        self._latency = latency

    def __getattr__(self, name: str) -> Any:
        """Whatever is asked of a store beside a commit: slow, and away when the store is."""
        passed = getattr(self._inner, name)
        if not iscoroutinefunction(passed):
            return passed

        async def asked(*arguments: Any, **options: Any) -> Any:
            await self._delay()
            self._check()
            result = await passed(*arguments, **options)
            await self._delay()
            return result

        return asked

    async def __aenter__(self) -> StorePort:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        return None

    async def commit(self, commit: Commit) -> Committed:
        trouble = self._trouble
        await self._delay()
        self._check()
        if trouble.is_full and commit.events:
            raise StoreFull
        if trouble.unknown_before:
            trouble.unknown_before -= 1
            raise CommitOutcomeUnknown
        if trouble.late and not isinstance(commit.guard, Absent):
            trouble.late -= 1
            self._send_later(commit)
            raise CommitOutcomeUnknown
        done = await self._inner.commit(commit)
        self._shadow.note(done.thread, done.events)
        if trouble.unknown_after:
            trouble.unknown_after -= 1
            raise CommitOutcomeUnknown
        await self._delay()
        return done

    async def claim(self, thread_id: str, owner: str) -> Thread:
        await self._delay()
        self._check()
        head = await self._inner.claim(thread_id, owner)
        life = self._shadow.note(head, ())
        if head.recoveries:
            life.recovered.append(head.next_seq)
        await self._delay()
        return head

    def renew(self, owner: str, ttl: float) -> None:
        self._check()
        self._inner.renew(owner, ttl)

    async def delete(self, thread_id: str, *, next_seq: int, **options: Any) -> None:
        await self._delay()
        self._check()
        await self._inner.delete(thread_id, next_seq=next_seq, **options)
        self._shadow.note_end(thread_id, next_seq)
        await self._delay()

    async def _delay(self) -> None:
        random = running_loop().random
        if random.random() < 0.7:
            await asyncio.sleep(random.random() * self._latency / 2)

    def _check(self) -> None:
        if self._trouble.is_away:
            raise StoreUnavailable("away")

    def _send_later(self, commit: Commit) -> None:
        """Its sender hears nothing of it; what the process sent is no longer the process's own.

        Not of a commit that makes a thread: arriving after the thread's deletion, it would make
        it again, which only a store that lets commits overtake each other can do.
        """
        loop = running_loop()

        async def send() -> None:
            await asyncio.sleep(loop.random.uniform(0.0, 3.0))
            if not self._trouble.is_away:
                done = await self._inner.commit(commit)
                self._shadow.note(done.thread, done.events)

        task = loop.create_task(send(), context=self._process.context.copy())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
