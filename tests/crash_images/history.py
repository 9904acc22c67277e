"""What a store was asked to do and what it acknowledged, by the moments of a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import ThreadNotFound

# A thread's events as they were stored; `None` if there is no such thread.
State = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Step:
    asked_at: int
    acknowledged_at: int
    state: State


@dataclass(slots=True)
class History:
    """Each thread has one writer, so at most one step of it is under way."""

    now: Callable[[], int]
    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))

    async def commit(self, store: Store, commit: Commit) -> Thread:
        asked_at = self.now()
        done = await store.commit(commit)
        before = self._state(commit.thread_id) or ()
        self._note(commit.thread_id, asked_at, (*before, *texts(done.events)))
        return done.thread

    def had(self, thread_id: str, state: State) -> None:
        """This thread was there before."""
        self.steps[thread_id].append(Step(0, 0, state))

    async def delete(self, store: Store, head: Thread) -> None:
        asked_at = self.now()
        await store.delete(head.thread_id, next_seq=head.next_seq)
        self._note(head.thread_id, asked_at, None)

    def allowed(self, thread_id: str, point: int) -> list[State]:
        """What may be found of a thread if everything ended at this moment."""
        allowed: list[State] = [None]
        for step in self.steps[thread_id]:
            if step.acknowledged_at <= point:
                allowed = [step.state]
            elif step.asked_at <= point:
                allowed.append(step.state)
        return allowed

    def states(self) -> dict[str, State]:
        """All threads as they are acknowledged now."""
        return {thread_id: self._state(thread_id) for thread_id in self.steps}

    async def problems(self, store: Store, point: int) -> list[str]:
        """What a store that was opened again has lost, made up or kept in part."""
        found = []
        for thread_id in self.steps:
            state, allowed = await state_of(store, thread_id), self.allowed(thread_id, point)
            if state not in allowed:
                found.append(
                    f"{thread_id} at {point}: {_length(state)} events were found,"
                    f" {' or '.join(_length(one) for one in allowed)} are allowed"
                )
        return found

    def _state(self, thread_id: str) -> State:
        steps = self.steps[thread_id]
        return steps[-1].state if steps else None

    def _note(self, thread_id: str, asked_at: int, state: State) -> None:
        self.steps[thread_id].append(Step(asked_at, self.now(), state))


async def state_of(store: Store, thread_id: str) -> State:
    try:
        head = await store.thread(thread_id)
        events = await store.events_after(thread_id, 0, 10_000)
    except ThreadNotFound:
        return None
    assert head.next_seq == len(events) + 1, f"{thread_id}: the head is not the log's"
    return texts(events)


def texts(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(event.model_dump_json() for event in events)


def _length(state: State) -> str:
    return "no" if state is None else str(len(state))
