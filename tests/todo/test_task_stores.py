"""What every place for tasks promises, over each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from threading import Barrier

import pytest
import pytest_asyncio

from sk_agents.exceptions import ConfigurationError, InvalidInput
from tests.patience import seconds
from todo_server.task_stores import task_store
from todo_server.tasks import Task, TaskNotFound, TaskStore

DAY = date(2030, 1, 2)
WRITERS = 4


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[TaskStore]:
    async with task_store(url) as store:
        yield store


def titles(tasks: list[Task]) -> list[str]:
    return [task.title for task in tasks]


async def test_task_is_listed_as_it_was_added(store: TaskStore) -> None:
    added = await store.add("ada", "buy 'milk'; %s ? \\ --", "zwölf 🥛\n\ttwo", DAY)
    assert await store.list("ada", "open", 9) == [added]
    assert (added.id, added.title, added.notes) == (1, "buy 'milk'; %s ? \\ --", "zwölf 🥛\n\ttwo")
    assert (added.due, added.completed_at) == (DAY, None)


async def test_times_are_utc_to_the_second(store: TaskStore) -> None:
    await store.add("ada", "a", "", None)
    done = await store.complete("ada", 1)
    for text in (done.created_at, done.completed_at):
        assert text is not None and text.endswith("+00:00")
        moment = datetime.fromisoformat(text)
        assert moment.microsecond == 0
        assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)


@pytest.mark.parametrize("day", [date.min, date.max])
async def test_any_day_can_be_the_last(store: TaskStore, day: date) -> None:
    assert (await store.add("ada", "a", "", day)).due == day


async def test_most_urgent_comes_first_then_the_oldest_then_those_without_a_day(
    store: TaskStore,
) -> None:
    days = [None, DAY, DAY - timedelta(1), None, DAY]
    for number, day in enumerate(days, 1):
        await store.add("ada", f"t{number}", "", day)
    await store.update("ada", 2, notes="changed")
    assert titles(await store.list("ada", "all", 9)) == ["t3", "t2", "t5", "t1", "t4"]
    assert titles(await store.list("ada", "all", 2)) == ["t3", "t2"]


async def test_list_shows_what_is_open_what_is_done_or_both(store: TaskStore) -> None:
    await store.add("ada", "a", "", None)
    await store.add("ada", "b", "", None)
    await store.complete("ada", 1)
    assert titles(await store.list("ada", "open", 9)) == ["b"]
    assert titles(await store.list("ada", "done", 9)) == ["a"]
    assert titles(await store.list("ada", "all", 9)) == ["a", "b"]


async def test_done_twice_is_done_once(store: TaskStore) -> None:
    await store.add("ada", "a", "", None)
    assert await store.complete("ada", 1) == await store.complete("ada", 1)


async def test_update_changes_only_what_is_given(store: TaskStore) -> None:
    added = await store.add("ada", "a", "n", DAY)
    later = DAY + timedelta(1)
    assert await store.update("ada", 1, title="b") == added.model_copy(update={"title": "b"})
    changed = await store.update("ada", 1, notes="", due=later)
    assert (changed.title, changed.notes, changed.due) == ("b", "", later)
    assert await store.list("ada", "all", 9) == [changed]


async def test_deleted_task_is_gone_and_its_number_is_not_used_again(store: TaskStore) -> None:
    await store.add("ada", "a", "", None)
    last = await store.add("ada", "b", "", None)
    assert await store.delete("ada", 2) == last
    assert titles(await store.list("ada", "all", 9)) == ["a"]
    assert (await store.add("ada", "c", "", None)).id == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda store, user, id: store.complete(user, id),
        lambda store, user, id: store.update(user, id, title="x"),
        lambda store, user, id: store.delete(user, id),
    ],
    ids=["complete", "update", "delete"],
)
async def test_change_of_a_task_that_is_not_there_changes_nothing(
    store: TaskStore, change: Callable[[TaskStore, str, int], Awaitable[Task]]
) -> None:
    added = await store.add("ada", "a", "", None)
    for id in (2, 2**31, 2**63, 2**70):
        with pytest.raises(TaskNotFound, match=f"no task {id}"):
            await change(store, "ada", id)
    with pytest.raises(TaskNotFound, match="no task 1"):
        await change(store, "bob", 1)
    assert await store.list("ada", "all", 9) == [added]
    assert await store.list("bob", "all", 9) == []


async def test_users_have_numbers_and_tasks_of_their_own(store: TaskStore) -> None:
    names = ["ada", "Ada", "ada ", "ad%", "zoë", "zoe\u0308", "x' OR '1'='1"]
    for name in names:
        assert (await store.add(name, name, "", None)).id == 1
    assert [titles(await store.list(name, "all", 9)) for name in names] == [
        [name] for name in names
    ]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["null", "surrogate"])
async def test_text_that_not_every_database_keeps_is_refused_by_each(
    store: TaskStore, text: str
) -> None:
    await store.add("ada", "a", "n", None)
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: store.add("ada", text, "", None),
        lambda: store.add("ada", "b", text, None),
        lambda: store.add(text, "b", "", None),
        lambda: store.list(text, "all", 9),
        lambda: store.update("ada", 1, title=text),
        lambda: store.update("ada", 1, notes=text),
        lambda: store.complete(text, 1),
        lambda: store.delete(text, 1),
    ]
    for change in changes:
        with pytest.raises(InvalidInput):
            await change()
    assert titles(await store.list("ada", "all", 9)) == ["a"]
    assert (await store.add("ada", "b", "", None)).id == 2


async def test_tasks_outlive_the_store_that_took_them(url: str) -> None:
    async with task_store(url) as store:
        added = await store.add("ada", "a", "", DAY)
    async with task_store(url) as store:
        assert await store.list("ada", "all", 9) == [added]


async def test_several_may_start_at_once_and_write_at_once(url: str) -> None:
    """On an empty database: each finds tables or makes them, and no number is given twice."""
    together = Barrier(WRITERS, timeout=seconds(30))

    async def write(writer: int) -> list[int]:
        together.wait()
        async with task_store(url) as store:
            together.wait()
            return [(await store.add("ada", f"{writer}-{n}", "", None)).id for n in range(10)]

    with ThreadPoolExecutor(WRITERS) as threads:
        writing = [threads.submit(asyncio.run, write(writer)) for writer in range(WRITERS)]
        numbers = [id for ids in map(asyncio.wrap_future, writing) for id in await ids]
    assert sorted(numbers) == list(range(1, WRITERS * 10 + 1))
    async with task_store(url) as store:
        assert [task.id for task in await store.list("ada", "all", 99)] == sorted(numbers)


async def test_many_may_use_a_store_at_once(store: TaskStore) -> None:
    await asyncio.gather(*(store.add("ada", str(n), "", None) for n in range(20)))
    await asyncio.gather(*(store.complete("ada", id) for id in range(1, 21)))
    assert len(await store.list("ada", "done", 99)) == 20


async def test_open_stores_see_each_other_s_changes(url: str) -> None:
    async with task_store(url) as one, task_store(url) as other:
        await one.add("ada", "a", "", None)
        await other.update("ada", 1, title="b")
        assert titles(await one.list("ada", "all", 9)) == ["b"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "todo.sqlite",
        "sqlite:todo.sqlite",
        "sqlite://",
        "sqlite:///",
        "sqlite://secret@host/path",
        "mysql://me:secret@db/x",
        "me:secret",
        "postgresql:secret",
        "postgresql://me:sec/ret@db/x",
        "postgresql://me:secret%zz@db/x",
        "postgresql://me:secret secret@db/x",
        "postgresql://me:secret@[::1/x",
        "postgresql://me:secret@db/x?secret=1",
    ],
)
def test_url_that_names_no_store_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql://user:password@host") as refusal:
        task_store(url)
    assert "secret" not in str(refusal.value) and "ret@" not in str(refusal.value)
    assert "sec/" not in str(refusal.value) and "'sec'" not in str(refusal.value)
