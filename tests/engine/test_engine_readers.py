"""What becomes of a run when its readers leave."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import CancelRequested, Event, RunEnded, Thinking
from sk_agents.engine.models import RunStatus, Thread
from sk_agents.engine.reading import watch
from sk_agents.engine.reading.live import MOST_CHARACTERS
from sk_agents.engine.run import drivers
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import ThreadNotFound
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.commits import append, thought
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.kit import BOUND, SEND_X, THREAD, UNSWEPT, Talk, talking
from tests.engine.test_engine_streaming import Reader, gated
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds

SOON = 0.01


def held() -> tuple[asyncio.Event, Turn]:
    gate = asyncio.Event()
    return gate, [TextDelta("Once upon"), gate, *says(" a time")]


async def read_a_little(talk: Talk, run_id: str = "r1") -> None:
    """Attach, see something, leave."""
    async with asyncio.timeout(seconds(5)):
        async with aclosing(talk.engine.watch(THREAD, run_id=run_id)) as items:
            await anext(items)


async def test_a_run_ends_with_its_last_reader_if_it_is_to(tmp_path: Path) -> None:
    _, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=SOON) as talk:
        await talk.say(on_disconnect="cancel")
        await read_a_little(talk)
        await talk.until(lambda state: state.run("r1").phase is RunStatus.CANCELLED)
        asked = [event for event in await talk.log() if isinstance(event, CancelRequested)]
        assert [event.reason for event in asked] == ["disconnect"]


async def test_reader_that_is_cut_off_while_it_waits_has_left(tmp_path: Path) -> None:
    _, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=SOON) as talk:
        await talk.say(on_disconnect="cancel")
        has_read = asyncio.Event()

        async def read() -> None:
            async for _ in talk.engine.watch(THREAD, run_id="r1"):
                has_read.set()

        reading = asyncio.create_task(read())
        async with asyncio.timeout(seconds(5)):
            await has_read.wait()
        reading.cancel()
        await talk.until(lambda state: state.run("r1").phase is RunStatus.CANCELLED)


async def test_a_run_goes_on_without_readers_by_default(tmp_path: Path) -> None:
    gate, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=0) as talk:
        await talk.say()
        await read_a_little(talk)
        gate.set()
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_reader_who_comes_back_in_time_keeps_the_run_alive(tmp_path: Path) -> None:
    gate, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=60) as talk:
        await talk.say(on_disconnect="cancel")
        await read_a_little(talk)
        assert talk.engine.parts.readers.ending == ["r1"]
        await read_a_little(talk)
        gate.set()
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_run_that_waits_for_a_person_is_not_ended_by_a_disconnect(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X, disconnect_grace=0) as talk:
        run = await talk.ask(on_disconnect="cancel")
        assert run.status is RunStatus.WAITING
        await read_a_little(talk)
        assert talk.engine.parts.readers.ending == []
        (approval,) = run.pending_approvals
        await talk.decide(approval.request.approval_id)
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_run_nobody_has_read_is_not_disconnected(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("done")], disconnect_grace=0) as talk:
        run = await talk.ask(on_disconnect="cancel")
        assert run.phase is RunStatus.COMPLETED


class CountedStore(MemoryStore):
    """Notes whose logs were read, and after each shared look at heads of how many threads."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.looks: asyncio.Queue[int] = asyncio.Queue()

    async def events_after(self, thread_id: str, *more: Any, **options: Any) -> Sequence[Event]:
        self.read.append(thread_id)
        return await super().events_after(thread_id, *more, **options)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        self.looks.put_nowait(len(thread_ids))
        return await super().heads(thread_ids)


async def test_readers_of_silent_chats_share_their_looks_at_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", SOON)
    async with CountedStore() as store, AsyncExitStack() as stack:
        talk = await stack.enter_async_context(talking(store, script=[says("yes")] * 3))
        chats = [f"chat-{number}" for number in range(3)]
        for chat in chats:
            await talk.ask(thread=chat)
        readers = [
            await stack.enter_async_context(aclosing(talk.engine.watch(chat))) for chat in chats
        ]
        async with asyncio.timeout(seconds(10)):
            for reader in readers:
                assert isinstance((await anext(reader))[-1], RunEnded)
            waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
            for _ in range(2):
                store.read.clear()
                while await store.looks.get() < len(chats):
                    continue
            assert store.read == []
            # Written by an instance that sends no signals.
            head = await store.thread(chats[1])
            await store.commit(append(head, thought()))
            (event,) = await waiting[1]
            assert isinstance(event, Thinking) and set(store.read) == {chats[1]}
            await store.delete(chats[2], next_seq=(await store.thread(chats[2])).next_seq)
            with pytest.raises(ThreadNotFound):
                await waiting[2]
        waiting[0].cancel()


async def test_long_text_is_read_to_its_end_without_a_look_at_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "PERIOD_SECONDS", BOUND * 2)
    text = ["x" * MOST_CHARACTERS] * 5
    turn: Turn = [*map(TextDelta, text), asyncio.Event()]
    async with CountedStore() as store, talking(store, script=[turn]) as talk:
        accepted = await talk.say()
        reader = Reader(talk, after=accepted.after)
        await reader.until_text("".join(text))
        assert len(reader.deltas) >= len(text)
        assert store.looks.empty()
        await reader.close()


@pytest.mark.parametrize("run_id", ["r1", None])
async def test_reader_of_a_run_that_is_driven_here_asks_the_store_for_nothing(
    run_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "PERIOD_SECONDS", BOUND * 2)
    (first, second, end), turn = gated("Hel", "lo", "")
    store = TroubledStore()
    script = [calls(("Files-look", {"text": "x"})), turn]
    async with talking(store, script=script, lease_ttl=UNSWEPT) as talk:
        accepted = await talk.say()
        reader = Reader(talk, after=accepted.after, run_id=run_id)
        store.read.clear()
        store.looked.clear()
        first.set()
        await reader.until_text("Hel")
        second.set()
        await reader.until_text("Hello")
        end.set()
        while not any(isinstance(item, RunEnded) for item in reader.items):
            await reader.step()
        assert (store.read, store.looked) == ([], [])
        await reader.close()


async def test_reading_begins_with_one_look_at_the_log_of_a_thread_that_is_not_known_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "PERIOD_SECONDS", BOUND * 2)
    async with (
        CountedStore() as store,
        talking(store, script=[says("yes")]) as here,
        talking(store, owner="b") as there,
    ):
        await here.ask()
        store.read.clear()
        watched = there.engine.watch(THREAD)
        assert isinstance((await anext(watched))[-1], RunEnded)
        assert (store.read, store.looks.empty()) == ([THREAD], True)
        await watched.aclose()


async def test_reader_that_was_closed_is_given_nothing_more(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("one")]) as talk:
        await talk.ask()
        watched = talk.engine.watch(THREAD)
        assert await anext(watched)
        await watched.aclose()
        await watched.aclose()
        async with asyncio.timeout(seconds(5)):
            assert [items async for items in watched] == []
