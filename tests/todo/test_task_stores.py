"""What every place for tasks promises, over each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from threading import Barrier

import pytest

from sk_agents.exceptions import ConfigurationError, InvalidInput
from tests.patience import seconds
from todo_server.task_stores import task_store
from todo_server.tasks import Task, TaskNotFound, TaskStore

DAY = date(2030, 1, 2)
WRITERS = 4


@pytest.fixture
def store(url: str) -> Iterator[TaskStore]:
    with task_store(url) as store:
        yield store


def titles(tasks: list[Task]) -> list[str]:
    return [task.title for task in tasks]


def test_task_is_listed_as_it_was_added(store: TaskStore) -> None:
    added = store.add("ada", "buy 'milk'; %s ? \\ --", "zwölf 🥛\n\ttwo", DAY)
    assert store.list("ada", "open", 9) == [added]
    assert (added.id, added.title, added.notes) == (1, "buy 'milk'; %s ? \\ --", "zwölf 🥛\n\ttwo")
    assert (added.due, added.completed_at) == (DAY, None)


def test_times_are_utc_to_the_second(store: TaskStore) -> None:
    store.add("ada", "a", "", None)
    done = store.complete("ada", 1)
    for text in (done.created_at, done.completed_at):
        assert text is not None and text.endswith("+00:00")
        moment = datetime.fromisoformat(text)
        assert moment.microsecond == 0
        assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)


@pytest.mark.parametrize("day", [date.min, date.max])
def test_any_day_can_be_the_last(store: TaskStore, day: date) -> None:
    assert store.add("ada", "a", "", day).due == day


def test_most_urgent_comes_first_then_the_oldest_then_those_without_a_day(store: TaskStore) -> None:
    days = [None, DAY, DAY - timedelta(1), None, DAY]
    for number, day in enumerate(days, 1):
        store.add("ada", f"t{number}", "", day)
    store.update("ada", 2, notes="changed")
    assert titles(store.list("ada", "all", 9)) == ["t3", "t2", "t5", "t1", "t4"]
    assert titles(store.list("ada", "all", 2)) == ["t3", "t2"]


def test_list_shows_what_is_open_what_is_done_or_both(store: TaskStore) -> None:
    store.add("ada", "a", "", None)
    store.add("ada", "b", "", None)
    store.complete("ada", 1)
    assert titles(store.list("ada", "open", 9)) == ["b"]
    assert titles(store.list("ada", "done", 9)) == ["a"]
    assert titles(store.list("ada", "all", 9)) == ["a", "b"]


def test_done_twice_is_done_once(store: TaskStore) -> None:
    store.add("ada", "a", "", None)
    assert store.complete("ada", 1) == store.complete("ada", 1)


def test_update_changes_only_what_is_given(store: TaskStore) -> None:
    added = store.add("ada", "a", "n", DAY)
    later = DAY + timedelta(1)
    assert store.update("ada", 1, title="b") == added.model_copy(update={"title": "b"})
    changed = store.update("ada", 1, notes="", due=later)
    assert (changed.title, changed.notes, changed.due) == ("b", "", later)
    assert store.list("ada", "all", 9) == [changed]


def test_deleted_task_is_gone_and_its_number_is_not_used_again(store: TaskStore) -> None:
    store.add("ada", "a", "", None)
    last = store.add("ada", "b", "", None)
    assert store.delete("ada", 2) == last
    assert titles(store.list("ada", "all", 9)) == ["a"]
    assert store.add("ada", "c", "", None).id == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda store, user, id: store.complete(user, id),
        lambda store, user, id: store.update(user, id, title="x"),
        lambda store, user, id: store.delete(user, id),
    ],
    ids=["complete", "update", "delete"],
)
def test_change_of_a_task_that_is_not_there_changes_nothing(
    store: TaskStore, change: Callable[[TaskStore, str, int], Task]
) -> None:
    added = store.add("ada", "a", "", None)
    for id in (2, 2**31, 2**63, 2**70):
        with pytest.raises(TaskNotFound, match=f"no task {id}"):
            change(store, "ada", id)
    with pytest.raises(TaskNotFound, match="no task 1"):
        change(store, "bob", 1)
    assert store.list("ada", "all", 9) == [added]
    assert store.list("bob", "all", 9) == []


def test_users_have_numbers_and_tasks_of_their_own(store: TaskStore) -> None:
    names = ["ada", "Ada", "ada ", "ad%", "zoë", "zoe\u0308", "x' OR '1'='1"]
    for name in names:
        assert store.add(name, name, "", None).id == 1
    assert [titles(store.list(name, "all", 9)) for name in names] == [[name] for name in names]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["null", "surrogate"])
def test_text_that_not_every_database_keeps_is_refused_by_each(store: TaskStore, text: str) -> None:
    store.add("ada", "a", "n", None)
    changes: list[Callable[[], object]] = [
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
            change()
    assert titles(store.list("ada", "all", 9)) == ["a"]
    assert store.add("ada", "b", "", None).id == 2


def test_tasks_outlive_the_store_that_took_them(url: str) -> None:
    with task_store(url) as store:
        added = store.add("ada", "a", "", DAY)
    with task_store(url) as store:
        assert store.list("ada", "all", 9) == [added]


def test_several_may_start_at_once_and_write_at_once(url: str) -> None:
    """On an empty database: each finds tables or makes them, and no number is given twice."""
    together = Barrier(WRITERS, timeout=seconds(30))

    def write(writer: int) -> list[int]:
        together.wait()
        with task_store(url) as store:
            together.wait()
            return [store.add("ada", f"{writer}-{n}", "", None).id for n in range(10)]

    with ThreadPoolExecutor(WRITERS) as threads:
        numbers = [id for ids in threads.map(write, range(WRITERS)) for id in ids]
    assert sorted(numbers) == list(range(1, WRITERS * 10 + 1))
    with task_store(url) as store:
        assert [task.id for task in store.list("ada", "all", 99)] == sorted(numbers)


def test_threads_may_share_a_store(store: TaskStore) -> None:
    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda n: store.add("ada", str(n), "", None), range(20)))
        list(threads.map(lambda id: store.complete("ada", id), range(1, 21)))
    assert len(store.list("ada", "done", 99)) == 20


def test_open_stores_see_each_other_s_changes(url: str) -> None:
    with ExitStack() as stack:
        one, other = (stack.enter_context(task_store(url)) for _ in range(2))
        one.add("ada", "a", "", None)
        other.update("ada", 1, title="b")
        assert titles(one.list("ada", "all", 9)) == ["b"]


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
