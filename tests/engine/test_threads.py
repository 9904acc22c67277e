"""What an engine keeps of threads at rest: bounded, and no more than a turn needs."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sk_agents.engine.log.commits import Release
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import Thread
from sk_agents.engine.run.conversation import Transcript
from sk_agents.engine.threads.known import KnownThread, KnownThreads
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.commits import append_owned, start_run
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.scripted_model import says
from tests.engine.heads import HELD
from tests.engine.kit import THREAD, USER, Talk, talking
from tests.requirements import requirement

ROOM = 200_000


@requirement("S003-3c-memory")
async def test_threads_at_rest_are_forgotten_beyond_the_bound(tmp_path: Path) -> None:
    script = [says("a word " * 50) for _ in range(60)]
    async with talking(tmp_path, script=script) as talk:
        services = talk.engine.parts.services
        services.threads = KnownThreads(talk.store, max_bytes=ROOM)
        for number in range(60):
            await talk.ask(thread=f"t{number}")
            assert services.threads.total_bytes <= ROOM
        kept = [services.threads.known(f"t{n}") for n in range(60)]
        known = [n for n, thread in enumerate(kept) if thread is not None]
        assert known == list(range(60 - len(known), 60))
        assert 0 < len(known) < 60
        assert all(not thread.tail for thread in kept if thread is not None)
        assert services.live == {}
        forgotten = await talk.engine.thread("t0", USER)
        assert len(forgotten.state.branch()) == 1


async def test_thread_is_kept_although_it_alone_is_larger_than_the_bound(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("ok"), says("ok")]) as talk:
        for thread in ("t0", "t1"):
            await talk.ask(thread=thread)
        threads = KnownThreads(talk.store, max_bytes=1)
        threads.pin("t0")
        first = await threads.load("t0")
        assert await threads.load("t1") is not first
        # What is driven or read stays, and so does what was asked for last.
        assert await threads.load("t0") is first
        threads.unpin("t0")
        await threads.load("t1")
        assert threads.known("t0") is None


async def test_a_thread_is_counted_as_what_it_takes(tmp_path: Path) -> None:
    names = ("t0", "t1", "t2")
    script = [says("a word " * 50) for _ in range(60)]
    async with talking(tmp_path, script=script) as talk:
        threads = talk.engine.parts.services.threads
        for number in range(60):
            await talk.ask(thread=names[number % 3])
        with traced_memory() as used:
            for name in names:
                threads.forget(name)
                await threads.load(name)
            counted, before = threads.total_bytes, used()
            for name in names:
                threads.forget(name)
            assert threads.total_bytes == 0
            # A model client would keep each message as it sends it, too.
            assert 0.6 < (before - used()) / counted < 1


class OvertakenStore:
    """A store in which the thread has changed once more when its head has been read."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def thread(self, thread_id: str) -> Thread:
        head = await self._talk.store.thread(thread_id)
        await self._talk.engine.catalog.label(thread_id, USER, {"title": "newer"})
        return head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._talk.store, name)


async def test_a_thread_is_not_known_further_than_its_head(tmp_path: Path) -> None:
    """Or what is made of the old head would be admitted as made of the newest state."""
    async with talking(tmp_path, script=[says("ok")]) as talk:
        await talk.ask()
        overtaken: Any = OvertakenStore(talk)
        known = await KnownThreads(overtaken).load(THREAD)
        assert known.state.next_seq == known.head.next_seq


async def test_released_thread_is_known_as_free_also_when_the_wall_clock_was_set_back() -> None:
    clock = SettableClock()
    async with MemoryStore(clock=clock) as store:
        threads = KnownThreads(store)
        driven = (await store.commit(start_run(THREAD, owner="a"))).thread
        assert (await threads.load(THREAD)).head.owner == "a"
        clock.set_wall(clock.now() - timedelta(hours=1))
        await store.commit(append_owned(driven, lease=Release()))
        assert (await threads.load(THREAD)).head.owner is None


async def test_tail_gives_what_follows_from_its_first_event_on(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("ok")]) as talk:
        await talk.ask()
        log = await talk.log()
        known = await KnownThreads(talk.store).load(THREAD)
        known.tail.popleft()
        assert known.after(0) is None
        assert known.after(1) == log[1:]
        assert known.after(log[-2].seq) == log[-1:]
        assert known.after(log[-1].seq) == []


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    def used() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield used
    finally:
        tracemalloc.stop()


@requirement("S001-performance-history")
async def test_a_turn_adds_only_its_own_messages_to_the_transcript(tmp_path: Path) -> None:
    script = [says(f"answer {number}") for number in range(30)]
    async with talking(tmp_path, script=script) as talk:
        rebuilt: list[int] = []
        for number in range(30):
            await talk.ask(f"question {number}")
            known = await talk.engine.thread(THREAD, USER)
            before = known.transcript.past
            known.transcript.follow(known.state)
            rebuilt.append(before is not known.transcript.past)
            fresh = followed_afresh(known.state)
            assert known.transcript == fresh
            assert known.transcript.past.messages == fresh.past.messages
        assert not any(rebuilt)


def followed_afresh(state: ThreadState) -> Transcript:
    transcript = Transcript()
    transcript.follow(state)
    return transcript


def test_thread_that_is_kept_under_the_id_of_a_deleted_one_takes_its_place() -> None:
    threads = KnownThreads(MemoryStore())
    first, again = KnownThread(HELD), KnownThread(HELD._replace(incarnation="another"))
    told: list[bool] = []
    first.listeners.append(lambda events: told.append(first.is_deleted))
    threads.keep(first)
    threads.keep(again)
    assert (told, again.is_deleted) == ([True], False)
    assert threads.known(HELD.thread_id) is again
    assert threads.total_bytes == again.weight
