"""A server removes old threads by itself: one instance at a time, if the time can be trusted."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sk_agents.engine.defaults import NoAudit, NoCopies
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import SERVER_LOG, NewThread, Thread, ThreadStatus
from sk_agents.engine.threads import retention
from sk_agents.engine.threads.retention import Pruned, Pruner, RetentionRules
from sk_agents.exceptions import StoreBroken, StoreUnavailable, TealError, ThreadNotFound
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import says
from tests.engine.builders import START
from tests.engine.heads import HELD
from tests.engine.kit import THREAD, USER, Setup, talking
from tests.patience import seconds

DAY = 86400.0
RULES = RetentionRules({ThreadStatus.COMPLETED: 90 * DAY})


EXPIRING = RetentionRules({ThreadStatus.COMPLETED: 10 * DAY}, expired=3 * DAY)


def rested(**fields: Any) -> Thread:
    """A thread in which nothing is left to do since `START`."""
    at_rest: dict[str, Any] = {"status": ThreadStatus.COMPLETED, "runnable": False, "owner": None}
    at_rest |= {"active_run": None, "queued": 0, "updated_at": START}
    return HELD._replace(**at_rest | fields)


@pytest.mark.parametrize(
    ("thread", "days", "reason"),
    [
        ({}, 10, "completed"),
        ({}, 9.99, None),
        ({"status": ThreadStatus.FAILED}, 99, None),
        ({"expires_at": START}, 3, "expired"),
        ({"expires_at": START}, 2.99, None),
        ({"expires_at": START + timedelta(days=90)}, 20, "completed"),
        ({"status": ThreadStatus.IDLE, "expires_at": START}, 3, "expired"),
        ({"runnable": True}, 99, None),
        ({"queued": 1}, 99, None),
        ({"active_run": "r1"}, 99, None),
        ({"status": ThreadStatus.WAITING, "expires_at": START}, 99, None),
        ({"status": ThreadStatus.RUNNING, "expires_at": START}, 99, None),
        ({"thread_id": f"{SERVER_LOG}-1"}, 99, None),
        ({"surface": "sign-ins"}, 99, None),
    ],
)
def test_thread_goes_by_its_status_and_age_or_by_its_own_time_and_only_at_rest(
    thread: dict[str, Any], days: float, reason: str | None
) -> None:
    rules = replace(EXPIRING, spared=frozenset({"sign-ins"}))
    assert rules.reason(rested(**thread), START + timedelta(days=days)) == reason


def test_thread_that_expires_goes_by_its_age_where_its_time_is_not_asked_about() -> None:
    rules = RetentionRules({ThreadStatus.COMPLETED: 10 * DAY})
    thread = rested(expires_at=START)
    assert rules.reason(thread, START + timedelta(days=9)) is None
    assert rules.reason(thread, START + timedelta(days=10)) == "completed"


async def sweep(engine: Engine) -> Pruned | None:
    keeper = engine.parts.retention
    assert keeper is not None
    return await keeper.sweep()


async def test_old_thread_is_gone_for_everybody_and_a_new_one_can_have_its_id(
    tmp_path: Path,
) -> None:
    clock = SettableClock()
    async with talking(
        tmp_path, clock=clock, script=[says("a"), says("b")], retention=RULES
    ) as talk:
        await talk.ask()
        await talk.parked()
        watched = talk.engine.watch(THREAD)
        await anext(watched)
        reading = asyncio.ensure_future(anext(watched))
        clock.advance(91 * DAY)
        done = await sweep(talk.engine)
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await reading
        assert done is not None
        assert done.removed == done.due == {"completed": 1}
        assert done.seen == 1
        with pytest.raises(ThreadNotFound):
            await talk.engine.thread(THREAD, USER)
        await talk.ask("again")
        assert len(talk.prompts[1]) == 2, "nothing of the old conversation is in the prompt"


async def test_instances_take_turns(tmp_path: Path) -> None:
    clock = SettableClock()
    setup = Setup(clock=clock, retention=RULES)
    async with (
        talking(tmp_path, setup, owner="a") as one,
        talking(tmp_path, setup, owner="b") as other,
    ):
        assert await sweep(one.engine) is not None
        assert await sweep(other.engine) is None
        clock.advance(retention.PASS_EVERY_SECONDS + 1)
        assert await sweep(other.engine) is not None
        assert await sweep(one.engine) is None


async def test_wall_clock_that_was_set_forward_removes_nothing(tmp_path: Path) -> None:
    clock = SettableClock()
    # The host has been up for longer.
    clock.advance(400 * DAY)
    async with talking(tmp_path, clock=clock, script=[says("a")], retention=RULES) as talk:
        await talk.ask()
        await talk.parked()
        clock.set_wall(clock.now() + timedelta(days=365))
        assert await sweep(talk.engine) is None
        assert (await talk.store.thread(THREAD)).status is ThreadStatus.COMPLETED


async def test_pass_that_takes_too_long_goes_on_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 1)
    monkeypatch.setattr(retention, "BREATH_SECONDS", 0)
    clock = SettableClock()
    script = [says("a"), says("b")]
    async with talking(tmp_path, clock=clock, script=script, retention=RULES) as talk:
        for name in ("t1", "t2"):
            await talk.result(await talk.say(thread=name))
        await talk.store.retire("a")
        clock.advance(91 * DAY)
        monkeypatch.setattr(retention, "PASS_SECONDS", 0.0)
        done = await sweep(talk.engine)
        assert done is not None and done.seen == 0
        monkeypatch.setattr(retention, "PASS_SECONDS", 60.0)
        clock.advance(retention.PASS_EVERY_SECONDS + 1)
        done = await sweep(talk.engine)
        assert done is not None and done.removed == {"completed": 2}


async def test_each_pass_begins_with_the_first_thread_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 1)
    monkeypatch.setattr(retention, "BREATH_SECONDS", 0)
    clock = SettableClock()
    async with talking(tmp_path, clock=clock, retention=RULES) as talk:
        for name in ("t1", "t2", "t3"):
            await talk.engine.catalog.make(name, NewThread(USER, agent="a"))
        for _ in range(2):
            done = await sweep(talk.engine)
            assert done is not None and done.seen == 3
            clock.advance(retention.PASS_EVERY_SECONDS + 1)


async def test_pass_that_took_too_long_goes_on_after_the_last_thread_that_it_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "PAGE", 1)
    monkeypatch.setattr(retention, "BREATH_SECONDS", 0)
    clock = SettableClock()
    looked: list[str] = []

    class Slow(MemoryStore):
        async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
            found = await super().all_threads(after=after, limit=limit)
            looked.extend(found)
            clock.advance(retention.PASS_EVERY_SECONDS)
            return found

    names = ["t1", "t2", "t3"]
    async with talking(Slow(clock=clock), clock=clock, retention=RULES) as talk:
        for name in names:
            await talk.engine.catalog.make(name, NewThread(USER, agent="a"))
        for _ in names:
            await sweep(talk.engine)
    assert looked == names


async def test_log_says_how_many_threads_were_removed_and_nothing_if_none_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=retention.__name__)
    clock = SettableClock()
    async with talking(tmp_path, clock=clock, script=[says("a")], retention=RULES) as talk:
        await talk.ask()
        await talk.parked()
        said = []
        for days in (1, 91):
            clock.advance(days * DAY)
            await sweep(talk.engine)
            said.append([getattr(one, "removed", None) for one in caplog.records])
        assert said == [[], [None, 1]]


class AwayAudit(NoAudit):
    async def deleting(self, thread: Thread, *, who: str | None, reason: str) -> None:
        raise StoreUnavailable


async def test_thread_whose_removal_cannot_be_noted_stays() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    async with talking(store, clock=clock, script=[says("a")]) as talk:
        await talk.ask()
        await talk.parked()
        clock.advance(91 * DAY)
        with pytest.raises(StoreUnavailable):
            await Pruner(store, RULES, clock, AwayAudit(), NoCopies()).page("", Pruned())
        assert (await store.thread(THREAD)).status is ThreadStatus.COMPLETED


async def test_thread_is_gone_so_long_after_it_was_to_expire(tmp_path: Path) -> None:
    clock = SettableClock()
    rules = RetentionRules(expired=7 * DAY)
    soon = clock.now() + timedelta(days=1)
    async with talking(tmp_path, clock=clock, retention=rules) as talk:
        await talk.engine.catalog.make("expiring", NewThread(USER, agent="a", expires_at=soon))
        await talk.engine.catalog.make("lasting", NewThread(USER, agent="a"))
        removed = []
        for days in (7, 1):
            clock.advance(days * DAY)
            done = await sweep(talk.engine)
            assert done is not None
            removed.append(dict(done.removed))
        assert removed == [{}, {"expired": 1}]
        assert (await talk.engine.thread("lasting", USER)).head.expires_at is None


async def test_thread_in_which_something_is_said_meanwhile_is_not_removed() -> None:
    clock = SettableClock()

    class GoesOn(MemoryStore):
        async def delete(self, thread_id: str, **fields: Any) -> None:
            await talk.engine.catalog.label(THREAD, USER, {"title": "kept"})
            await super().delete(thread_id, **fields)

    async with talking(
        GoesOn(clock=clock), clock=clock, script=[says("a")], retention=RULES
    ) as talk:
        await talk.ask()
        await talk.parked()
        clock.advance(91 * DAY)
        done = await sweep(talk.engine)
        assert done is not None
        assert (done.due, done.removed) == ({"completed": 1}, {})
        assert (await talk.store.thread(THREAD)).metadata == {"title": "kept"}


async def test_server_looks_by_itself_and_again_after_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "PASS_EVERY_SECONDS", 0.01)
    clock, removed = SettableClock(), asyncio.Event()

    class Away(MemoryStore):
        errors: ClassVar[list[TealError]] = [StoreUnavailable()]

        async def count(self, *arguments: Any) -> Any:
            if self.errors:
                raise self.errors.pop()
            return await super().count(*arguments)

        async def delete(self, thread_id: str, **fields: Any) -> None:
            await super().delete(thread_id, **fields)
            removed.set()

    store = Away(clock=clock)
    async with talking(store, clock=clock, script=[says("a")], retention=RULES) as talk:
        await talk.ask()
        clock.advance(91 * DAY)
        async with asyncio.timeout(seconds(10)):
            await removed.wait()
        assert store.errors == []


async def test_server_that_finds_its_store_broken_while_it_looks_for_old_threads_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "PASS_EVERY_SECONDS", 0.01)

    class Broken(MemoryStore):
        async def count(self, *arguments: Any) -> Any:
            raise StoreBroken

    async with talking(Broken(), retention=RULES) as talk:
        async with asyncio.timeout(seconds(10)):
            await talk.engine.broken()


async def test_nothing_is_removed_unless_rules_are_given(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        assert talk.engine.parts.retention is None
