"""A task and the log behind it: runs, concurrent holders, what an update may change."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from sk_agents.engine.events import RunStarted
from sk_agents.engine.log.commits import Release
from sk_agents.engine.models import Part, RunStatus, ThreadStatus, UserInput
from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    Conflict,
    InvalidInput,
    ThreadBusy,
    ThreadNotFound,
)
from sk_agents.persistence.store_factory import open_store
from sk_agents.persistence.tasks.view import SURFACE, StoreTasks
from sk_agents.ska_types import AgentTask
from sk_agents.testing.commits import (
    answered,
    append,
    append_owned,
    ask,
    create,
    run_ended,
    run_queued,
    run_started,
    start_run,
)
from sk_agents.testing.predictable import SettableClock
from tests.patience import seconds
from tests.requirements import requirement
from tests.task_builders import NOW, contents, item, stored, task

Ending = Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=["memory:", "sqlite:///{}/kept", "file:///{}/kept"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[Store]:
    async with open_store(request.param.format(tmp_path), clock=clock) as opened:
        yield opened


@pytest.fixture
def manager(store: Store) -> StoreTasks:
    return StoreTasks(store)


async def test_thread_of_another_surface_is_no_task(manager: StoreTasks, store: Store) -> None:
    await store.commit(create("t", surface="chats"))
    assert await manager.load("t") is None
    with pytest.raises(ThreadNotFound):
        await manager.update(task())
    with pytest.raises(ThreadNotFound):
        await manager.delete("t")


async def test_one_task_object_can_be_updated_again_and_again(manager: StoreTasks) -> None:
    kept = task()
    await manager.create(kept)
    for number in range(3):
        kept.items.append(item(str(number)))
        await manager.update(kept)
    assert contents(await stored(manager)) == ["hello", "0", "1", "2"]


async def test_task_that_came_through_json_can_be_updated(manager: StoreTasks) -> None:
    await manager.create(task())
    copy = AgentTask.model_validate_json((await stored(manager)).model_dump_json())
    copy.items.append(item("more"))
    copy.metadata["a"] = 1
    await manager.update(copy)
    found = await stored(manager)
    assert (contents(found), found.metadata) == (["hello", "more"], {"a": 1})


@pytest.mark.parametrize("through_json", [False, True])
@pytest.mark.parametrize("damage", ["change", "remove", "swap", "replace"])
async def test_update_that_changes_or_removes_an_item_is_refused(
    manager: StoreTasks, damage: str, through_json: bool
) -> None:
    await manager.create(task(items=[item("a"), item("b")]))
    loaded = await stored(manager)
    if through_json:
        loaded = AgentTask.model_validate_json(loaded.model_dump_json())
    match damage:
        case "change":
            loaded.items[1].item.content = "c"
        case "remove":
            loaded.items.pop()
        case "swap":
            loaded.items.reverse()
        case "replace":
            loaded.items[0:1] = []
            loaded.items.append(item("c"))
    with pytest.raises(Conflict, match="changed or removed"):
        await manager.update(loaded)
    assert contents(await stored(manager)) == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [{"user_id": "eve"}, {"session_id": "x"}, {"expires_at": NOW}, {"created_at": NOW.replace(2)}],
)
async def test_update_of_what_is_fixed_is_refused(
    manager: StoreTasks, change: dict[str, Any]
) -> None:
    await manager.create(task())
    changed = (await stored(manager)).model_copy(update=change)
    with pytest.raises(InvalidInput, match=next(iter(change))):
        await manager.update(changed)


async def test_concurrent_appends_both_survive(manager: StoreTasks) -> None:
    await manager.create(task())
    holders = [await stored(manager) for _ in range(8)]
    for number, holder in enumerate(holders):
        holder.items.append(item(str(number)))
    async with asyncio.timeout(seconds(10)):
        await asyncio.gather(*map(manager.update, holders))
    assert sorted(contents(await stored(manager))) == [*map(str, range(8)), "hello"]


async def test_update_keeps_what_another_holder_changed(manager: StoreTasks) -> None:
    await manager.create(task(metadata={"a": 1}))
    mine, theirs = await stored(manager), await stored(manager)
    theirs.status = "Failed"
    theirs.metadata["a"] = 2
    await manager.update(theirs)
    mine.items.append(item("more"))
    await manager.update(mine)
    found = await stored(manager)
    assert (found.status, found.metadata, contents(found)) == (
        "Failed",
        {"a": 2},
        ["hello", "more"],
    )


@requirement("S000-task-timestamps", "S000-state-last-updated")
async def test_every_write_moves_the_last_update_forward_and_leaves_the_creation(
    manager: StoreTasks, store: Store, clock: SettableClock
) -> None:
    given = task(created_at=NOW - timedelta(days=2), last_updated_at=NOW - timedelta(days=1))
    await manager.create(given)
    times = [(await stored(manager)).last_updated_at]
    assert times == [NOW - timedelta(days=1)]
    for _ in range(2):
        clock.advance(1)
        await manager.update(await stored(manager))
        times.append((await stored(manager)).last_updated_at)
    clock.advance(1)
    await store.commit(append(await store.thread("t"), run_started("r1")))
    found = await stored(manager)
    times.append(found.last_updated_at)
    assert times == sorted(set(times))
    assert times[-1] == clock.now()
    assert found.created_at == NOW - timedelta(days=2)


@requirement("S000-task-history", "S002-models-request-id")
async def test_task_holds_what_was_said_in_its_runs_each_with_its_request(
    manager: StoreTasks, store: Store
) -> None:
    await manager.create(task(items=[item("before", request_id="r0")]))
    parts = (Part(content="look"), Part(kind="image", content="data:image/png;base64,"))
    started = RunStarted(run_id="r1", message=UserInput(parts=parts))
    thread = (await store.commit(append(await store.thread("t"), started))).thread
    thread = (await store.commit(append(thread, run_queued("r2", "and then?")))).thread
    events = (answered("a picture", "r1"), run_ended("r1"), RunStarted(run_id="r2"))
    thread = (await store.commit(append(thread, *events))).thread
    await store.commit(append(thread, answered("nothing", "r2"), run_ended("r2")))
    found = await stored(manager)
    assert [(i.role, i.item.content_type, i.item.content, i.request_id) for i in found.items] == [
        ("user", "text", "before", "r0"),
        ("user", "text", "look", "r1"),
        ("user", "image", "data:image/png;base64,", "r1"),
        ("assistant", "text", "a picture", "r1"),
        ("user", "text", "and then?", "r2"),
        ("assistant", "text", "nothing", "r2"),
    ]
    found.items.append(item("after", request_id="r3"))
    await manager.update(found)
    assert (await stored(manager)).items == found.items


@requirement("S002-models-chronology")
async def test_items_stay_in_their_order_when_their_times_are_equal(manager: StoreTasks) -> None:
    words = [str(number) for number in range(600)]
    kept = task(items=[item(word) for word in words[:300]])
    await manager.create(kept)
    kept.items.extend(item(word) for word in words[300:])
    await manager.update(kept)
    assert contents(await stored(manager)) == words


async def test_long_log_is_read_whole(manager: StoreTasks, store: Store) -> None:
    await manager.create(task(items=[]))
    thread = await store.thread("t")
    answers = [answered(str(number), "r") for number in range(1100)]
    await store.commit(append(thread, run_started("r"), *answers))
    assert contents(await stored(manager)) == ["hello", *map(str, range(1100))]


@requirement("S000-task-status")
async def test_status_is_that_of_the_last_run(manager: StoreTasks, store: Store) -> None:
    await manager.create(task(items=[]))
    assert (await stored(manager)).status == "Running"
    thread = await store.thread("t")
    assert thread.status is ThreadStatus.IDLE
    endings: list[tuple[Ending, str]] = [
        (RunStatus.COMPLETED, "Completed"),
        (RunStatus.FAILED, "Failed"),
        (RunStatus.CANCELLED, "Canceled"),
    ]
    for status, word in endings:
        thread = (await store.commit(append(thread, run_started(status.value)))).thread
        assert (await stored(manager)).status == "Running"
        thread = (await store.commit(append(thread, run_ended(status.value, status)))).thread
        assert (await stored(manager)).status == word
    thread = (await store.commit(append(thread, run_started("run-1")))).thread
    await store.commit(ask(thread, "a", park=True))
    assert (await stored(manager)).status == "Paused"


async def test_status_of_an_active_run_is_not_changed_from_outside(
    manager: StoreTasks, store: Store
) -> None:
    await manager.create(task())
    await store.commit(append(await store.thread("t"), run_started("r1")))
    loaded = await stored(manager)
    loaded.status = "Completed"
    with pytest.raises(ThreadBusy):
        await manager.update(loaded)
    loaded.status = "Running"
    loaded.items.append(item("aside"))
    await manager.update(loaded)
    assert contents(await stored(manager)) == ["hello", "hello", "aside"]


async def test_update_does_not_disturb_the_owner_of_a_run(store: Store) -> None:
    manager = StoreTasks(store)
    store.renew("o", 10)
    commit = start_run("t", "r", owner="o")
    head = (await store.commit(commit)).thread
    assert head.surface != SURFACE
    await manager.create(task("u"))
    thread = await store.claim("u", "o")
    loaded = await stored(manager, "u")
    loaded.items.append(item("aside", task_id="u"))
    await manager.update(loaded)
    await store.commit(append_owned(thread, run_started("r2"), lease=Release()))
    assert contents(await stored(manager, "u")) == ["hello", "aside", "hello"]
