"""A user's class that fails, dawdles or forgets, and what its store makes of it."""

import asyncio
from typing import Any

import pytest

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    StateCorrupt,
    StoreUnavailable,
)
from sk_agents.persistence.tasks.bridge import TaskBridgeStore
from sk_agents.ska_types import AgentTask
from sk_agents.testing.commits import (
    USER,
    append,
    ask,
    start_run,
    thought,
)
from tests.patience import seconds
from tests.requirements import requirement
from tests.toy_tasks import AsyncTasks, JsonTasks, Moody, fail


@requirement("S001-message-persistence")
async def test_failure_of_the_class_names_it_and_what_it_could_not_do() -> None:
    tasks = Moody()
    async with TaskBridgeStore(tasks, settle=0) as store:
        tasks.moods["create"] = fail
        with pytest.raises(StoreUnavailable, match=r"Moody: create failed with OSError") as failed:
            await store.commit(start_run("t"))
        assert "password" not in str(failed.value)


async def test_nothing_of_a_failed_commit_is_visible() -> None:
    tasks = Moody()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t", "r", owner="o"))
        tasks.moods["update"] = fail
        with pytest.raises(StoreUnavailable):
            await store.commit(ask(made.thread, "a"))
        assert await store.thread("t") == made.thread
        assert list(await store.events_after("t", 0)) == list(made.events)
        assert await store.find("approval", "a") is None
        assert await store.open_entries("approval", USER) == []
        with pytest.raises(StoreUnavailable):
            await store.claim("t", "p")
        assert (await store.thread("t")).owner == "o"
        tasks.moods.clear()
        await store.commit(ask(made.thread, "a"))
        assert await store.find("approval", "a") is not None


async def test_nothing_of_a_commit_is_visible_before_the_class_has_kept_it() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Slow(AsyncTasks):
        slow = False

        async def update(self, task: AgentTask) -> None:
            if self.slow:
                entered.set()
                await leave.wait()
            await super().update(task)

    tasks = Slow()
    async with asyncio.timeout(seconds(5)), TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t", "r"))
        tasks.slow = True
        writing = asyncio.create_task(store.commit(ask(made.thread, "a")))
        await entered.wait()
        assert await store.thread("t") == made.thread
        assert len(await store.events_after("t", 0)) == 1
        assert await store.find("approval", "a") is None
        leave.set()
        assert (await writing).thread == await store.thread("t")


async def test_cancelled_commit_is_finished_and_known() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Slow(AsyncTasks):
        async def create(self, task: AgentTask) -> None:
            if task.task_id == "t":
                entered.set()
                await leave.wait()
            await super().create(task)

    async with asyncio.timeout(seconds(5)):
        async with TaskBridgeStore(Slow(), settle=0) as store:
            writing = asyncio.create_task(store.commit(start_run("t")))
            await entered.wait()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            leave.set()
        assert (await store.thread("t")).next_seq == 2


async def test_write_that_failed_after_it_was_kept_counts_as_done() -> None:
    tasks = Moody()
    async with TaskBridgeStore(tasks, settle=0) as store:
        tasks.moods.update(created=fail, updated=fail)
        made = await store.commit(start_run("t"))
        await store.commit(append(made.thread, thought()))
        assert (await store.thread("t")).next_seq == 3


async def test_write_of_unknown_outcome_is_told_by_sending_it_again() -> None:
    tasks = Moody()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t"))
        commit = append(made.thread, thought())

        def break_off() -> None:
            tasks.moods["load"] = fail
            fail()

        tasks.moods["updated"] = break_off
        with pytest.raises(CommitOutcomeUnknown):
            await store.commit(commit)
        with pytest.raises(StoreUnavailable):
            await store.thread("t")
        with pytest.raises(StoreUnavailable):
            await store.ping()
        tasks.moods.clear()
        await store.ping()
        assert (await store.commit(commit)).thread.next_seq == 3
        assert (await store.thread("t")).next_seq == 3


async def test_failed_deletion_leaves_the_thread() -> None:
    tasks = Moody()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t", "r"))
        tasks.moods["delete"] = fail
        with pytest.raises(StoreUnavailable):
            await store.delete("t", next_seq=2)
        assert await store.thread("t") == made.thread
        assert await store.find("run", "r") is not None
        tasks.moods.clear()
        await store.delete("t", next_seq=2)
        assert (tasks.texts, await store.find("run", "r")) == ({}, None)


async def test_answer_that_is_no_task_is_refused() -> None:
    class Dicts(AsyncTasks):
        def load(self, task_id: str) -> Any:
            return {"task_id": task_id}

    with pytest.raises(StateCorrupt, match="returned dict"):
        async with TaskBridgeStore(Dicts(), settle=0):
            pass


async def test_class_that_loses_metadata_does_not_start() -> None:
    class Forgetful(JsonTasks):
        def update(self, task: AgentTask) -> None:
            stored = self.load(task.task_id)
            assert stored is not None
            super().update(task.model_copy(update={"metadata": stored.metadata}))

    tasks = Forgetful()
    with pytest.raises(ConfigurationError, match=r"TA_PERSISTENCE_CLASS.*Forgetful.*metadata"):
        async with TaskBridgeStore(tasks, settle=0):
            pass
    assert tasks.texts == {}


async def test_class_that_does_not_delete_does_not_start() -> None:
    class Hoarder(JsonTasks):
        def delete(self, task_id: str) -> None:
            pass

    with pytest.raises(ConfigurationError, match="does not delete"):
        async with TaskBridgeStore(Hoarder(), settle=0):
            pass


async def test_class_that_fails_at_start_does_not_start() -> None:
    tasks = Moody()
    tasks.moods["load"] = fail
    with pytest.raises(StoreUnavailable, match="load failed"):
        async with TaskBridgeStore(tasks, settle=0):
            pass
    assert tasks.texts == {}


async def test_probe_leaves_nothing_behind() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0):
        assert tasks.texts == {}
