"""A store in memory that fails where a test says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import StateCorrupt, StoreUnavailable, TealError
from sk_agents.persistence.memory.store import MemoryStore

Hook = Callable[[], Awaitable[None]]


class TroubledStore(MemoryStore):
    """Errors in a list are raised once each, before or after the work is done.

    Threads in `damaged` cannot be read, owners in `silent` cannot renew their leases. `on_claim`
    runs once, just before the next claim, and the hook of `before_such` just before the next commit
    that it is meant for. `looked` and `read` name the threads whose heads and events were asked
    for, `commits` what was sent.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.unavailable = 0
        self.damaged: set[str] = set()
        self.silent: set[str] = set()
        self.before_read: list[TealError] = []
        self.before_claim: list[TealError] = []
        self.after_claim: list[TealError] = []
        self.before_commit: list[TealError] = []
        self.after_commit: list[TealError] = []
        self.before_retire: list[TealError] = []
        self.on_claim: Hook | None = None
        self.before_such: tuple[Callable[[Commit], bool], Hook] | None = None
        self.looked: list[str] = []
        self.read: list[str] = []
        self.commits: list[Commit] = []

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        if self.unavailable:
            self.unavailable -= 1
            raise StoreUnavailable
        return await super().orphans(limit)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        self.looked += thread_ids
        return await super().heads(thread_ids)

    async def thread(self, thread_id: str) -> Thread:
        self.looked.append(thread_id)
        return await super().thread(thread_id)

    async def events_after(self, thread_id: str, *more: Any, **options: Any) -> Sequence[Event]:
        self.read.append(thread_id)
        _raise_one(self.before_read)
        if thread_id in self.damaged:
            raise StateCorrupt(thread_id=thread_id)
        return await super().events_after(thread_id, *more, **options)

    async def claim(self, thread_id: str, owner: str) -> Thread:
        hook, self.on_claim = self.on_claim, None
        if hook is not None:
            await hook()
        _raise_one(self.before_claim)
        head = await super().claim(thread_id, owner)
        _raise_one(self.after_claim)
        return head

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        if self.before_such is not None and self.before_such[0](commit):
            (_, hook), self.before_such = self.before_such, None
            await hook()
        _raise_one(self.before_commit)
        done = await super().commit(commit)
        _raise_one(self.after_commit)
        return done

    def renew(self, owner: str, ttl: float) -> None:
        if owner in self.silent:
            raise StoreUnavailable
        super().renew(owner, ttl)

    async def retire(self, owner: str) -> None:
        _raise_one(self.before_retire)
        await super().retire(owner)


def _raise_one(errors: list[TealError]) -> None:
    if errors:
        raise errors.pop()
