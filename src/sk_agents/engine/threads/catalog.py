"""A user's threads as a whole: made, listed, named, switched, removed, and what waits in them.

Nothing here drives a run: each method is one read, or one conditional commit that is tried again
when another writer was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sk_agents.engine.calls import reviews
from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.events import (
    BranchChanged,
    Event,
    GrantChanged,
    Noted,
    Rated,
    ThreadChanged,
)
from sk_agents.engine.log.commits import Absent, Commit, Committed, Unchanged
from sk_agents.engine.log.state import Run, ThreadState, fold
from sk_agents.engine.models import (
    ALL_RATINGS,
    TERMINAL,
    ApprovalState,
    Entry,
    EntryKind,
    NewThread,
    Rating,
    Thread,
    UserInput,
    approval_of,
)
from sk_agents.engine.ports import ThreadPage, ThreadQuery
from sk_agents.engine.run import lifecycle
from sk_agents.engine.run.redacting import redacted_input
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    ApprovalNotFound,
    Conflict,
    GrantNotFound,
    InvalidInput,
    LeaseHeld,
    NotFound,
    RunNotFound,
    SequenceConflict,
    ThreadNotFound,
)

T = TypeVar("T")

# Each lost race means that another commit succeeded.
RACES = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """An approval with everything a person needs to see before deciding it."""

    thread: Thread
    run: Run
    call: Call
    approval: Approval


@dataclass(frozen=True, slots=True)
class Granted:
    """A standing approval and the thread it holds in."""

    thread: Thread
    grant: GrantChanged


@dataclass(frozen=True, slots=True)
class RatedRun:
    """What the person who asked thinks of a run."""

    thread: Thread
    run: Run
    rated: Rated


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`after` continues the listing; `None` at its end. A page may be short, even empty."""

    items: list[T]
    after: str | None


class ThreadCatalog:
    """What takes a thread and a user raises `ThreadNotFound` if it is no thread of this user."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        return await self._services.store.threads(query)

    async def head(self, thread_id: str, user_id: str, *, lasting: bool = False) -> Thread:
        """The thread's head, without its log. With `lasting` what is kept in memory will do, for
        callers that only look at what never changes; a deletion is found by the next commit."""
        known = self._services.threads.known(thread_id) if lasting else None
        head = known.head if known is not None else await self._services.store.thread(thread_id)
        if head.user_id != user_id:
            raise ThreadNotFound(thread_id=thread_id, owner=head.user_id)
        return head

    async def events(
        self, thread: Thread, after: int, limit: int, *, max_bytes: int | None = None
    ) -> Sequence[Event]:
        """A part of this thread's log. The caller has checked whose thread it is.

        Raises:
            ThreadNotFound: it was deleted since.
        """
        return await self._services.store.events_after(
            thread.thread_id, after, limit, incarnation=thread.incarnation, max_bytes=max_bytes
        )

    async def make(self, thread_id: str, new: NewThread) -> Thread:
        """An empty thread. Raises `ThreadExists` if this id is taken."""
        done = await self._made(thread_id, new, (ThreadChanged(metadata=dict(new.metadata)),))
        await self._services.learn(KnownThread(done.thread), done)
        return done.thread

    def redacted(self, agent: str, message: UserInput) -> UserInput:
        """A message to this agent, or of it, as it may be stored and sent."""
        redaction = self._services.redaction(agent)
        return message if redaction is None else redacted_input(redaction, message)

    def _as_shown(self, asked: Asked, user_id: str) -> Asked:
        """With the arguments that a reviewer chose as others than the requester may see them: where
        they left what was shown, these hold the secrets that were not."""
        decision = asked.approval.decision
        redaction = self._services.redaction(asked.run.agent or asked.thread.agent)
        if redaction is None or decision is None or asked.thread.user_id == user_id:
            return asked
        hidden = decision.model_copy(
            update={"edited_arguments": redaction.value(decision.edited_arguments)}
        )
        return replace(asked, approval=replace(asked.approval, decision=hidden))

    async def restore(self, thread_id: str, new: NewThread, events: Sequence[Event]) -> Thread:
        """A thread with a past: events that keep the dates they come with.

        Raises:
            ThreadExists: this id is taken.
            StateCorrupt: the events cannot have happened in this order.
            InvalidInput: they leave a run unfinished.
        """
        # A long past takes a while to look at, and is not kept in memory until it is asked for.
        past = await asyncio.to_thread(_whole_past, events)
        # What they say of calls happened elsewhere, if it did.
        await self._services.audit.note(
            Noted(
                what="importing",
                who=new.user_id,
                subject=thread_id,
                user_id=new.user_id,
                agent=new.agent or None,
                details={"events": len(past)},
            )
        )
        return (await self._made(thread_id, new, past)).thread

    async def label(self, thread_id: str, user_id: str, metadata: Mapping[str, Any]) -> Thread:
        """Change the thread's title and free metadata; `None` removes a key."""
        return await self.relabel(thread_id, user_id, lambda head: metadata)

    async def relabel(
        self, thread_id: str, user_id: str, change: Callable[[Thread], Mapping[str, Any]]
    ) -> Thread:
        """The same, where what is changed depends on what the thread has now."""

        def changed(known: KnownThread) -> Event:
            return ThreadChanged(metadata=dict(change(known.head)))

        return (await self._commit(thread_id, user_id, changed)).head

    async def switch(self, thread_id: str, user_id: str, run_id: str) -> KnownThread:
        """Show the branch this run is on, down to its newest end.

        Raises:
            RunNotFound: no such run in it, or it has not ended.
            ThreadBusy: a run is active or waits for its turn.
        """

        def switched(known: KnownThread) -> Event:
            lifecycle.refuse_busy(known)
            run = known.state.runs.get(run_id)
            if run is None or run.phase not in TERMINAL:
                raise RunNotFound(run_id=run_id)
            return BranchChanged(head_run=newest_end(known.state, run_id))

        return await self._commit(thread_id, user_id, switched)

    async def rate(
        self, thread_id: str, user_id: str, run_id: str, rating: Rating | None, note: str | None
    ) -> Rated | None:
        """Keep what the user thinks of a run that has ended; without a rating nothing any more.
        What it is now.

        Raises:
            RunNotFound: no such run in it, or it has not ended.
        """
        known = await self._owned(thread_id, user_id)
        run = known.state.runs.get(run_id)
        if run is None or run.phase not in TERMINAL:
            raise RunNotFound(run_id=run_id)
        redaction = self._services.redaction(run.agent or known.head.agent)
        if note is not None and redaction is not None:
            stream = redaction.stream(known.state.secrets.values())
            note = stream.feed(note) + stream.end()
        before = (run.rated.rating, run.rated.note) if run.rated is not None else (None, None)
        if before == (rating, note):
            return run.rated
        event = Rated(run_id=run_id, rating=rating, note=note)
        known = await self._commit(thread_id, user_id, lambda _: event)
        return known.state.run(run_id).rated

    async def ratings(self, *, after: str | None, limit: int) -> Page[RatedRun]:
        """Those of all users, by the ids of the runs. For callers who may read them."""
        return await self._page("rating", ALL_RATINGS, after, limit, self._rated)

    async def remove(
        self, thread_id: str, user_id: str, stop: Callable[[str], Awaitable[object]]
    ) -> None:
        """Delete the thread with its log; `stop` ends a run of it."""
        for _ in range(RACES):
            known = await self._owned(thread_id, user_id)
            for run_id in (*reversed(known.state.queue), known.state.active_run):
                if run_id is not None:
                    await stop(run_id)
            known = await self._owned(thread_id, user_id)
            await self._services.audit.deleting(known.head, who=user_id, reason="asked for")
            try:
                async with self._services.copies.removing(known.head):
                    await self._services.store.delete(
                        thread_id, next_seq=known.state.next_seq, incarnation=known.incarnation
                    )
            except (SequenceConflict, LeaseHeld):
                continue
            self._services.threads.note_deleted(known.head)
            self._services.signals.notify(thread_id)
            return
        raise Conflict(thread_id=thread_id)

    async def inbox(
        self,
        user_id: str,
        memberships: Set[str] = frozenset(),
        *,
        after: str | None,
        limit: int,
    ) -> Page[Asked]:
        """What waits in this user's threads and for the audiences this user belongs to, by
        approval id, so the oldest first; what just ended is left out."""
        store = self._services.store
        own = await store.open_entries("approval", user_id, after=after, limit=limit)
        found = {entry.key: entry for entry in own}
        # Everything of this approval is listed behind it, and before the next one.
        behind = f"{after}@\uffff" if after is not None else None
        for key in sorted(reviews.keys_of(user_id, memberships)):
            for entry in await store.open_entries("review", key, after=behind, limit=limit):
                found.setdefault(approval_of(entry.key), entry)
        chosen = sorted(found)[:limit]
        items = [item for key in chosen if (item := await self._waiting(found[key])) is not None]
        return Page(items, chosen[-1] if len(chosen) == limit else None)

    async def _waiting(self, entry: Entry) -> Asked | None:
        asked = await self._asked(entry)
        is_open = asked is not None and asked.approval.state is ApprovalState.PENDING
        if asked is None or not is_open:
            return None
        if entry.kind == "review" and entry.user_id not in asked.approval.audience.keys:
            return None
        return asked

    async def waiting(self, user_id: str, limit: int) -> int:
        """How many approvals wait for this user, counted up to `limit`."""
        return len(await self._services.store.open_entries("approval", user_id, limit=limit))

    async def asked(
        self, approval_id: str, user_id: str, memberships: Set[str] = frozenset()
    ) -> Asked:
        """One approval as it stands.

        Raises:
            ApprovalNotFound: none that this user may see, or its call has a newer one.
        """
        asked = await self._asked(await self.approval(approval_id, user_id, memberships))
        if asked is None:
            raise ApprovalNotFound(approval_id=approval_id)
        return self._as_shown(asked, user_id)

    async def approval(
        self, approval_id: str, user_id: str, memberships: Set[str] = frozenset()
    ) -> Entry:
        """Where an approval lies.

        Raises:
            ApprovalNotFound: none in this user's threads, and none that concerns this user: the
                log says that, not the index.
        """
        entry = await self._services.store.find("approval", approval_id)
        if entry is None:
            raise ApprovalNotFound(approval_id=approval_id)
        if entry.user_id != user_id:
            asked = await self._asked(entry)
            if asked is None or not reviews.is_concerned(asked.approval, user_id, memberships):
                raise ApprovalNotFound(approval_id=approval_id)
        return entry

    async def run(self, run_id: str) -> Entry | None:
        """Where a run lies. The caller checks whose it is."""
        return await self._services.store.find("run", run_id)

    async def grants(self, user_id: str, *, after: str | None, limit: int) -> Page[Granted]:
        """The user's standing approvals that still hold, by grant id."""
        return await self._page("grant", user_id, after, limit, self._granted)

    async def revoke(self, grant_id: str, user_id: str) -> None:
        """Take a standing approval back: from now on its tool is asked about again.

        Raises:
            GrantNotFound: no such grant of this user, or it was taken back before.
        """
        entry = await self._services.store.find("grant", grant_id)
        if entry is None or entry.user_id != user_id:
            raise GrantNotFound(grant_id=grant_id)

        def revoked(known: KnownThread) -> Event:
            grant = known.state.grants.get(grant_id)
            if grant is None:
                raise GrantNotFound(grant_id=grant_id)
            return GrantChanged(
                run_id=grant.run_id,
                grant_id=grant_id,
                tool=grant.tool,
                scope=grant.scope,
                granted=False,
                changed_by=user_id,
            )

        await self._commit(entry.thread_id, user_id, revoked)

    async def _page(
        self,
        kind: EntryKind,
        user_id: str,
        after: str | None,
        limit: int,
        look_up: Callable[[Entry], Awaitable[T | None]],
    ) -> Page[T]:
        store = self._services.store
        entries = await store.open_entries(kind, user_id, after=after, limit=limit)
        items = [item for entry in entries if (item := await look_up(entry)) is not None]
        return Page(items, entries[-1].key if len(entries) == limit else None)

    async def _made(self, thread_id: str, new: NewThread, events: tuple[Event, ...]) -> Committed:
        services = self._services
        done = await services.send(Commit(thread_id, services.ids.new(), Absent(new), events))
        services.signals.notify(thread_id)
        return done

    async def _commit(
        self, thread_id: str, user_id: str, change: Callable[[KnownThread], Event]
    ) -> KnownThread:
        """Commit what `change` makes of the thread, again if the thread was out of date."""
        for _ in range(RACES):
            known = await self._owned(thread_id, user_id)
            guard = Unchanged(known.state.next_seq)
            try:
                await self._services.commit(known, guard, change(known))
            except SequenceConflict:
                continue
            return known
        raise Conflict(thread_id=thread_id)

    async def _owned(self, thread_id: str, user_id: str) -> KnownThread:
        known = await self._services.threads.load(thread_id)
        lifecycle.check_owner(known, user_id)
        return known

    async def _asked(self, entry: Entry) -> Asked | None:
        """None if the entry dangles, or its call has another approval by now."""
        known = await self._loaded(entry)
        run = known.state.runs.get(entry.run_id) if known is not None else None
        approval_id = approval_of(entry.key)
        for call in run.calls.values() if run is not None else ():
            if call.approval is not None and call.approval.request.approval_id == approval_id:
                assert known is not None and run is not None
                return Asked(known.head, run, call, call.approval)
        return None

    async def _granted(self, entry: Entry) -> Granted | None:
        """None if the entry dangles, or the grant has ended with its run."""
        known = await self._loaded(entry)
        grant = known.state.grants.get(entry.key) if known is not None else None
        if known is None or grant is None:
            return None
        if grant.scope == "run" and known.state.run(grant.run_id).phase in TERMINAL:
            return None
        return Granted(known.head, grant)

    async def _rated(self, entry: Entry) -> RatedRun | None:
        """None if the entry dangles, or the rating was taken back."""
        known = await self._loaded(entry)
        run = known.state.runs.get(entry.run_id) if known is not None else None
        if known is None or run is None or run.rated is None:
            return None
        return RatedRun(known.head, run, run.rated)

    async def _loaded(self, entry: Entry) -> KnownThread | None:
        with suppress(NotFound):
            return await self._services.threads.load(entry.thread_id)
        return None


def _whole_past(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events, numbered. Raises as `restore` does."""
    numbered = [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1)]
    state = fold(numbered)
    if state.active_run is not None or state.queue:
        raise InvalidInput("A conversation can only be restored with all its runs ended.")
    return tuple(numbered)


def newest_end(state: ThreadState, run_id: str) -> str:
    """The last run of the newest line of runs that goes through this one."""
    children: dict[str, str] = {}
    for run in state.runs.values():
        if run.parent_run is not None and run.phase in TERMINAL:
            children[run.parent_run] = run.run_id
    while run_id in children:
        run_id = children[run_id]
    return run_id
