"""The threads this process keeps in memory: their heads and folded states, bounded in size.

A cached thread may be out of date; every commit made on it is conditional, so being wrong costs
a reload, never a wrong write.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sk_agents.engine.events import EVENT_BYTES, Event, size_of
from sk_agents.engine.log.commits import same_thread
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.engine.run.conversation import Transcript
from sk_agents.exceptions import ThreadNotFound

PAGE = 500
TAIL = 128
# What a cached thread takes beside its events, measured, and the bound for all of them together.
THREAD_BYTES = 2_800
MAX_BYTES = 25 * 1024 * 1024

Listener = Callable[[Sequence[Event]], None]


@dataclass(slots=True, eq=False)
class KnownThread:
    """`tail` holds the last events, so that readers in this process need not ask the store.

    `listeners` are called with everything that is new, whichever part of this process read it: a
    driver must learn of a cancel also when a reader found it first.
    """

    head: Thread
    state: ThreadState = field(default_factory=ThreadState)
    tail: deque[Event] = field(default_factory=lambda: deque(maxlen=TAIL))
    transcript: Transcript = field(default_factory=Transcript)
    weight: int = THREAD_BYTES
    listeners: list[Listener] = field(default_factory=list)
    is_deleted: bool = False

    @property
    def incarnation(self) -> str:
        return self.head.incarnation

    def take(self, head: Thread, events: Sequence[Event]) -> None:
        """Apply what is new of these events, which must follow what is known without a gap.

        The one way in which a known thread changes.
        """
        known = self.state.next_seq, self.head.epoch
        for event in events:
            if event.seq >= self.state.next_seq:
                self.state.apply(event)
                self.tail.append(event)
                self.weight += EVENT_BYTES + size_of(event)
        if head.next_seq > self.head.next_seq or _age(head) >= _age(self.head):
            self.head = head
        if self.listeners and (self.state.next_seq, self.head.epoch) != known:
            self._call_listeners([event for event in events if event.seq >= known[0]])

    def mark_deleted(self) -> None:
        """The thread was deleted; another may have its id."""
        self.is_deleted = True
        self._call_listeners(())

    def _call_listeners(self, events: Sequence[Event]) -> None:
        for listener in tuple(self.listeners):
            listener(events)

    def after(self, seq: int) -> list[Event] | None:
        """The events past `seq`, or `None` if the tail does not reach back that far."""
        if seq + 1 >= self.state.next_seq:
            return []
        if not self.tail or self.tail[0].seq > seq + 1:
            return None
        return [self.tail[at] for at in range(seq + 1 - self.state.next_seq, 0)]


class KnownThreads:
    def __init__(self, store: Store, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, KnownThread] = OrderedDict()
        self._weights: dict[str, int] = {}
        self.total_bytes = 0
        self._pinned: dict[str, int] = {}

    def known(self, thread_id: str) -> KnownThread | None:
        return self._known.get(thread_id)

    async def load(self, thread_id: str) -> KnownThread:
        """The thread as the store has it now.

        Raises:
            ThreadNotFound, StateCorrupt: as the store says.
        """
        head = await self._present_head(thread_id)
        known = self._known_as(head) or KnownThread(head)
        await self.catch_up(known, head)
        kept = self._known_as(head)
        if kept is not None and kept is not known:
            # Another task has loaded it too. All must share one, or a driver's goes stale.
            known = kept
            await self.catch_up(known, head)
        self.keep(known)
        return known

    async def _present_head(self, thread_id: str) -> Thread:
        """As the store has it. A thread that was made here while the store was asked is newer than
        the answer, which says nothing about it."""
        while True:
            before = self._known.get(thread_id)
            try:
                head = await self._store.thread(thread_id)
            except ThreadNotFound:
                if self._known.get(thread_id) is before:
                    self._forget_deleted(thread_id)
                raise
            now = self._known.get(thread_id)
            if now is before or now is None or now.incarnation == head.incarnation:
                return head

    async def catch_up(self, known: KnownThread, head: Thread) -> None:
        """Read what `known` lacks up to `head`.

        Raises:
            ThreadNotFound: `head` is that of another thread with the same id, or it was deleted.
        """
        same_thread(head.thread_id, head, known.incarnation)
        while (missing := head.next_seq - known.state.next_seq) > 0:
            # No further than the head, which would be older than the state: a change made from
            # the one would be admitted by the other.
            events = await self._store.events_after(
                head.thread_id,
                known.state.next_seq - 1,
                min(missing, PAGE),
                incarnation=known.incarnation,
            )
            known.take(head, events)
        known.take(head, ())

    def _known_as(self, head: Thread) -> KnownThread | None:
        """What is known of this very thread; another one that had its id is forgotten."""
        known = self._known.get(head.thread_id)
        if known is not None and known.incarnation != head.incarnation:
            self._forget_deleted(head.thread_id)
            return None
        return known

    def note_deleted(self, head: Thread) -> None:
        """This thread is gone. Another one that has got its id since then stays known."""
        known = self._known.get(head.thread_id)
        if known is not None and known.incarnation == head.incarnation:
            self._forget_deleted(head.thread_id)

    def _forget_deleted(self, thread_id: str) -> None:
        if (known := self._known.get(thread_id)) is not None:
            known.mark_deleted()
            self.forget(thread_id)

    def keep(self, known: KnownThread) -> None:
        """Remember it, and forget the longest unused ones beyond the bound."""
        thread_id = known.head.thread_id
        if self._known.get(thread_id) is not known:
            self._known_as(known.head)
        self.total_bytes += known.weight - self._weights.get(thread_id, 0)
        self._weights[thread_id] = known.weight
        self._known[thread_id] = known
        self._known.move_to_end(thread_id)
        while self.total_bytes > self._max_bytes:
            victim = next((key for key in self._known if key not in self._pinned), thread_id)
            if victim == thread_id:
                return
            self.forget(victim)

    def forget(self, thread_id: str) -> None:
        if self._known.pop(thread_id, None) is not None:
            self.total_bytes -= self._weights.pop(thread_id)

    @property
    def pinned(self) -> list[str]:
        return list(self._pinned)

    def pin(self, thread_id: str) -> None:
        """A run of this thread is driven or watched here: do not forget it."""
        self._pinned[thread_id] = self._pinned.get(thread_id, 0) + 1

    def unpin(self, thread_id: str) -> None:
        self._pinned[thread_id] -= 1
        if not self._pinned[thread_id]:
            del self._pinned[thread_id]
            if (known := self._known.get(thread_id)) is not None:
                known.tail.clear()


def _age(head: Thread) -> tuple[int, int, bool]:
    """To compare heads: reads may overtake each other, and a claim or release adds no event. A
    claim begins an epoch and a release ends it; the wall clock may be set back."""
    return head.next_seq, head.epoch, head.owner is None
