"""A user's four-method class as a store: what it is given, and what is read back from it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sk_agents.engine.log.commits import Claim, Release
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import ThreadStatus
from sk_agents.engine.ports import ThreadQuery
from sk_agents.exceptions import (
    LeaseHeld,
    SchemaTooNew,
    StateCorrupt,
    ThreadNotFound,
)
from sk_agents.persistence.tasks.bridge import TaskBridgeStore
from sk_agents.persistence.tasks.task_log import KEY
from sk_agents.ska_types import AgentTask, AgentTaskItem, MultiModalItem
from sk_agents.testing.commits import (
    USER,
    answered,
    append,
    append_owned,
    ask,
    create,
    run_ended,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from tests.patience import seconds
from tests.toy_tasks import AsyncTasks, JsonTasks, SearchableTasks

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def edit(tasks: JsonTasks, change: Callable[[AgentTask], None], task_id: str = "t") -> None:
    task = tasks.load(task_id)
    assert task is not None
    change(task)
    tasks.texts[task_id] = task.model_dump_json()


async def test_stored_task_tells_its_readers_what_the_log_tells() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t", "r", text="hello", owner="o"))
        task = tasks.load("t")
        assert task is not None
        assert (task.status, [item.item.content for item in task.items]) == ("Running", ["hello"])
        store.renew("o", 10)
        ending = (answered("hi", "r"), run_ended("r"))
        await store.commit(append_owned(made.thread, *ending, lease=Release()))
    task = tasks.load("t")
    assert task is not None
    assert task.status == "Completed"
    assert task.user_id == USER
    assert [(item.role, item.item.content, item.request_id) for item in task.items] == [
        ("user", "hello", "r"),
        ("assistant", "hi", "r"),
    ]


@pytest.mark.parametrize("kept_by", [JsonTasks, AsyncTasks])
async def test_thread_is_known_again_by_the_next_process_when_it_is_loaded(
    kept_by: type[JsonTasks | AsyncTasks],
) -> None:
    tasks = kept_by()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t", "r", owner="o"))
        asked = await store.commit(ask(made.thread, "a"))
        events = await store.events_after("t", 0)
    async with TaskBridgeStore(tasks, settle=0) as again:
        assert await again.orphans() == []
        assert await again.thread("t") == asked.thread
        assert await again.events_after("t", 0) == events
        assert [head.thread_id for head in await again.orphans()] == ["t"]
        entry = await again.find("approval", "a")
        assert entry is not None and entry.thread_id == "t"
        assert (await again.claim("t", "p")).recoveries == 1
    async with TaskBridgeStore(tasks, settle=0) as third:
        assert (await third.thread("t")).recoveries == 1


async def test_commit_sent_again_to_the_next_process_answers_what_it_did() -> None:
    tasks = JsonTasks()
    commit = start_run("t")
    async with TaskBridgeStore(tasks, settle=0) as store:
        first = await store.commit(commit)
    async with TaskBridgeStore(tasks, settle=0) as again:
        assert await again.commit(commit) == first


async def test_run_is_found_by_a_class_that_can_look_for_it() -> None:
    tasks = SearchableTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        await store.commit(start_run("t", "r"))
    async with TaskBridgeStore(tasks, settle=0) as again:
        entry = await again.find("run", "r")
        assert entry is not None and entry.thread_id == "t"
        assert await again.find("run", "other") is None


async def test_run_of_a_thread_not_loaded_is_not_found_by_a_class_that_cannot_look() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        await store.commit(start_run("t", "r"))
    async with TaskBridgeStore(tasks, settle=0) as again:
        assert await again.find("run", "r") is None
        await again.thread("t")
        assert await again.find("run", "r") is not None


async def test_thread_held_by_a_live_owner_is_not_deleted() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, clock=SettableClock(), settle=0) as store:
        store.renew("o", 10)
        await store.commit(create("t", lease=Claim("o")))
        with pytest.raises(LeaseHeld):
            await store.delete("t", next_seq=1)
        assert "t" in tasks.texts


def lose_a_record(task: AgentTask) -> None:
    task.metadata[KEY]["records"] = task.metadata[KEY]["records"][1:]


def lose_the_last_record(task: AgentTask) -> None:
    task.metadata[KEY]["records"] = task.metadata[KEY]["records"][:-1]


def change_a_record(task: AgentTask) -> None:
    record = task.metadata[KEY]["records"][0]
    record["body"] = record["body"].replace("hello", "hullo")


def change_the_head(task: AgentTask) -> None:
    task.metadata[KEY]["head"] = task.metadata[KEY]["head"].replace(USER, "eve")


def change_the_owner(task: AgentTask) -> None:
    task.user_id = "eve"


def make_nonsense(task: AgentTask) -> None:
    task.metadata[KEY] = ["nonsense"]


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_record,
        lose_the_last_record,
        change_a_record,
        change_the_head,
        change_the_owner,
        make_nonsense,
    ],
)
async def test_damaged_task_is_an_error_of_its_own_and_left_as_it_is(
    damage: Callable[[AgentTask], None],
) -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = await store.commit(start_run("t"))
        made = await store.commit(append(made.thread, thought()))
        await store.commit(start_run("u", "run-2"))
    edit(tasks, damage)
    damaged = tasks.texts["t"]
    async with TaskBridgeStore(tasks, settle=0) as again:
        with pytest.raises(StateCorrupt):
            await again.thread("t")
        with pytest.raises(StateCorrupt):
            await again.commit(append(made.thread, thought()))
        assert (await again.thread("u")).next_seq == 2
    assert tasks.texts["t"] == damaged


async def test_log_of_a_newer_version_is_not_touched() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        await store.commit(start_run("t"))
    edit(tasks, lambda task: task.metadata[KEY].update(version=2))
    async with TaskBridgeStore(tasks, settle=0) as again:
        with pytest.raises(SchemaTooNew):
            await again.thread("t")


async def test_task_of_another_id_is_refused() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        await store.commit(start_run("t"))
        tasks.texts["u"] = tasks.texts["t"]
        with pytest.raises(StateCorrupt, match="another task"):
            await store.thread("u")


async def test_task_made_by_another_program_starts_its_log_with_what_it_holds() -> None:
    tasks = JsonTasks()
    item = AgentTaskItem(
        task_id="t",
        role="user",
        item=MultiModalItem(content="hello"),
        request_id="r0",
        updated=NOW,
    )
    foreign = AgentTask(
        task_id="t",
        session_id="s",
        user_id="bob",
        items=[item],
        created_at=NOW,
        last_updated_at=NOW,
        status="Completed",
        metadata={"color": "red"},
    )
    tasks.create(foreign)
    async with TaskBridgeStore(tasks, settle=0) as store:
        head = await store.thread("t")
        assert (head.user_id, head.session_id, head.status) == ("bob", "s", ThreadStatus.COMPLETED)
        await store.commit(append(head, run_started("r1", "more")))
    task = tasks.load("t")
    assert task is not None
    assert [entry.item.content for entry in task.items] == ["hello", "more"]
    assert task.metadata["color"] == "red"
    async with TaskBridgeStore(tasks, settle=0) as again:
        events = await again.events_after("t", 0)
    assert fold(events).imported[0].content == "hello"


async def test_crowded_mirror_lets_go_of_threads_at_rest_and_reads_them_again() -> None:
    async with TaskBridgeStore(JsonTasks(), max_threads=2, settle=0) as store:
        await store.commit(start_run("busy", "run-0"))
        for number in range(5):
            run = f"run-{number + 1}"
            await store.commit(create(f"t{number}", run_started(run), run_ended(run)))
        assert store.metrics()["threads"] == 2
        assert [head.thread_id for head in await store.orphans()] == ["busy"]
        assert (await store.find("run", "run-1")) is not None
        assert (await store.thread("t0")).next_seq == 3
        assert len((await store.threads(ThreadQuery(USER))).threads) == 2


async def test_concurrent_commits_to_one_thread_are_all_kept() -> None:
    tasks = JsonTasks()
    async with asyncio.timeout(seconds(10)), TaskBridgeStore(tasks, settle=0) as store:
        store.renew("o", 60)
        made = (await store.commit(start_run("t", "r", owner="o"))).thread
        await asyncio.gather(
            *(store.commit(append_owned(made, thought(str(n), "r"))) for n in range(20))
        )
    async with TaskBridgeStore(tasks, settle=0) as again:
        thoughts = fold(await again.events_after("t", 0)).run("r").thoughts
    assert sorted(int(said.content) for said in thoughts) == list(range(20))


async def test_unknown_thread_is_not_found() -> None:
    async with TaskBridgeStore(JsonTasks(), settle=0) as store:
        with pytest.raises(ThreadNotFound):
            await store.thread("t")
        with pytest.raises(ThreadNotFound):
            await store.claim("t", "o")
        with pytest.raises(ThreadNotFound):
            await store.delete("t", next_seq=1)
        with pytest.raises(ThreadNotFound):
            made = await store.commit(create("u"))
            await store.commit(append(made.thread._replace(thread_id="t"), thought()))
