"""The four methods over our stores, and the in-memory manager."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    InvalidInput,
    StoreFull,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.persistence.in_memory_persistence_manager import InMemoryPersistenceManager
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.persistence.store_factory import open_store
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import ContentType
from sk_agents.testing.predictable import SettableClock
from tests.patience import seconds
from tests.requirements import requirement
from tests.task_builders import NOW, contents, item, stored, task


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


@requirement("S001-persistence-abstract")
@pytest.mark.parametrize("missing", ["create", "load", "update", "delete"])
def test_manager_lacking_one_of_the_four_methods_cannot_be_built(missing: str) -> None:
    methods = {
        name: getattr(StoreTasks, name)
        for name in ("create", "load", "update", "delete")
        if name != missing
    }
    partial = type("Partial", (TaskPersistenceManager,), methods)
    with pytest.raises(TypeError, match=missing):
        partial()


@requirement("S001-persistence-create", "S000-task-user-identity")
async def test_created_task_is_loaded_as_it_was_given(manager: StoreTasks) -> None:
    picture = item("data:image/png;base64,", role="assistant")
    picture.item.content_type = ContentType.IMAGE
    made = task(
        items=[item("hello"), picture],
        status="Paused",
        metadata={"a": 1},
        created_at=NOW - timedelta(days=1),
        expires_at=NOW + timedelta(days=1),
    )
    await manager.create(made)
    assert await manager.load("t") == made
    assert (await stored(manager)).user_id == "ann"


@requirement("S001-persistence-create")
async def test_task_whose_id_is_taken_is_refused(manager: StoreTasks) -> None:
    await manager.create(task())
    with pytest.raises(ThreadExists):
        await manager.create(task(user_id="eve"))
    assert (await stored(manager)).user_id == "ann"


async def test_task_with_another_tasks_item_is_refused(manager: StoreTasks) -> None:
    with pytest.raises(InvalidInput):
        await manager.create(task(items=[item("x", task_id="u")]))
    assert await manager.load("t") is None


@requirement("S001-persistence-load")
async def test_unknown_task_is_loaded_as_none(manager: StoreTasks) -> None:
    assert await manager.load("t") is None


@requirement("S001-persistence-update")
async def test_update_stores_new_items_and_status(manager: StoreTasks) -> None:
    await manager.create(task())
    loaded = await stored(manager)
    loaded.items.append(item("hi", role="assistant"))
    loaded.status = "Completed"
    await manager.update(loaded)
    found = await stored(manager)
    assert (contents(found), found.status) == (["hello", "hi"], "Completed")


@requirement("S001-persistence-update")
async def test_update_of_an_unknown_task_is_refused(manager: StoreTasks) -> None:
    with pytest.raises(ThreadNotFound):
        await manager.update(task())
    assert await manager.load("t") is None


@requirement("S001-persistence-delete")
async def test_deleted_task_is_gone(manager: StoreTasks) -> None:
    await manager.create(task())
    await manager.create(task("u"))
    await manager.delete("t")
    assert await manager.load("t") is None
    assert await manager.load("u") is not None
    with pytest.raises(ThreadNotFound):
        await manager.delete("t")
    await manager.create(task())


@requirement("S001-persistence-copies")
async def test_changing_a_task_does_not_change_what_is_stored(manager: StoreTasks) -> None:
    given = task(metadata={"deep": {"n": 1}})
    await manager.create(given)
    loaded = await stored(manager)
    for held in (given, loaded):
        held.items[0].item.content = "changed"
        held.items.append(item("more"))
        held.metadata["deep"]["n"] = 2
        held.status = "Failed"
    found = await stored(manager)
    assert (contents(found), found.metadata) == (["hello"], {"deep": {"n": 1}})
    assert found.status == "Running"


@requirement("S000-task-metadata")
async def test_metadata_comes_back_as_it_was_given(manager: StoreTasks) -> None:
    metadata = {"none": None, "float": 2.0, "text": "\u00e9\U0001f600", "list": [1, {"a": []}]}
    await manager.create(task(metadata=metadata))
    found = await stored(manager)
    assert found.metadata == metadata
    assert isinstance(found.metadata["float"], float)
    found.metadata["other"] = None
    del found.metadata["text"]
    await manager.update(found)
    assert (await stored(manager)).metadata == found.metadata


@pytest.mark.parametrize("value", [NOW, {1: 2}, float("nan"), "\ud800", {1, 2}])
async def test_metadata_that_is_not_json_is_refused(manager: StoreTasks, value: Any) -> None:
    with pytest.raises(InvalidInput):
        await manager.create(task(metadata={"value": value}))
    assert await manager.load("t") is None


@requirement("S000-state-no-cleanup")
async def test_task_stays_until_somebody_deletes_it(
    manager: StoreTasks, clock: SettableClock
) -> None:
    await manager.create(task(expires_at=NOW + timedelta(hours=1)))
    await manager.create(task("u"))
    clock.advance(100 * 365 * 24 * 3600)
    assert contents(await stored(manager)) == ["hello"]
    assert contents(await stored(manager, "u")) == ["hello"]


@requirement("S001-persistence-thread-safe")
def test_threads_with_their_own_loops_lose_and_mix_nothing() -> None:
    manager = InMemoryPersistenceManager()
    workers, rounds = 8, 10
    barrier = threading.Barrier(workers)

    async def work(worker: int) -> None:
        await manager.create(task(f"t{worker}", items=[]))
        for number in range(rounds):
            for task_id in ("shared", f"t{worker}"):
                held = await stored(manager, task_id)
                held.items.append(item(f"{worker}-{number}", task_id=task_id))
                await manager.update(held)

    def in_thread(worker: int) -> None:
        barrier.wait(timeout=seconds(10))
        asyncio.run(work(worker))

    asyncio.run(manager.create(task("shared", items=[])))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(in_thread, range(workers)))

    async def check() -> None:
        mine = [[f"{worker}-{number}" for number in range(rounds)] for worker in range(workers)]
        for worker in range(workers):
            assert contents(await stored(manager, f"t{worker}")) == mine[worker]
        shared = contents(await stored(manager, "shared"))
        for worker in range(workers):
            assert [word for word in shared if word.startswith(f"{worker}-")] == mine[worker]
        assert len(shared) == workers * rounds

    asyncio.run(check())


@requirement("S001-persistence-memory-bound")
async def test_full_memory_refuses_a_task_and_keeps_what_it_has() -> None:
    manager = InMemoryPersistenceManager(max_tasks=2)
    await manager.create(task("a"))
    await manager.create(task("b"))
    with pytest.raises(StoreFull, match="full"):
        await manager.create(task("c"))
    assert await manager.load("c") is None
    assert contents(await stored(manager, "a")) == ["hello"]
    await manager.delete("a")
    await manager.create(task("c"))


@requirement("S001-persistence-memory-bound", "S001-persistence-monitoring")
async def test_memory_is_bounded_in_bytes_and_tells_what_it_holds() -> None:
    manager = InMemoryPersistenceManager(max_tasks=10, max_bytes=2000)
    empty = {"tasks": 0, "tasks_max": 10, "bytes": 0, "bytes_max": 2000, "refused": 0}
    assert dict(manager.metrics()) == empty
    await manager.create(task())
    held = manager.metrics()
    assert held["tasks"] == 1
    assert 0 < held["bytes"] < 2000
    loaded = await stored(manager)
    loaded.items.append(item("x" * 3000))
    with pytest.raises(StoreFull):
        await manager.update(loaded)
    with pytest.raises(StoreFull):
        await manager.create(task("u", metadata={"x": "x" * 3000}))
    assert dict(manager.metrics()) == dict(held) | {"refused": 2}
    await manager.delete("t")
    assert manager.metrics()["bytes"] == 0


async def test_manager_named_by_the_seed_is_a_memory_store_of_its_own() -> None:
    one, other = InMemoryPersistenceManager(), InMemoryPersistenceManager()
    await one.create(task())
    assert await other.load("t") is None
    async with MemoryStore() as third:
        assert await StoreTasks(third).load("t") is None
