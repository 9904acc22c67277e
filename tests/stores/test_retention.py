"""Threads that are too old are removed from every store that can list its threads."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from sk_agents.config.settings import Settings
from sk_agents.engine.defaults import NoAudit, NoCopies, RandomIds
from sk_agents.engine.log.commits import Absent
from sk_agents.engine.models import NewThread, RunStatus, Thread, ThreadStatus
from sk_agents.engine.ports import ListedStore
from sk_agents.engine.threads.retention import Pruned, Pruner, RetentionRules
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing import SettableClock
from sk_agents.testing.commits import (
    EndStatus,
    append,
    ask,
    create,
    new_commit,
    run_ended,
    start_run,
    thought,
)
from sk_agents.tools.mcp.sign_ins import SignInRecords, sign_in_id
from sk_agents.wiring import prune_store

DAY = 86400.0
RULES = RetentionRules({ThreadStatus.COMPLETED: 90 * DAY, ThreadStatus.FAILED: 30 * DAY})


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest_asyncio.fixture(params=["memory", "sqlite", "file", "postgresql", "redis", "dynamodb"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[ListedStore]:
    urls = {"memory": "memory:", "sqlite": f"sqlite://{tmp_path}/s", "file": f"file://{tmp_path}/f"}
    servers = {"postgresql": "database", "redis": "empty_redis", "dynamodb": "dynamo_url"}
    url = urls.get(request.param) or request.getfixturevalue(servers[request.param])
    async with open_store(url, clock=clock) as opened:
        assert isinstance(opened, ListedStore)
        yield opened


async def ended(store: ListedStore, thread_id: str, status: EndStatus) -> Thread:
    head = (await store.commit(start_run(thread_id, f"run-{thread_id}"))).thread
    return (await store.commit(append(head, run_ended(f"run-{thread_id}", status)))).thread


async def left(store: ListedStore) -> list[str]:
    return list(await store.all_threads())


async def pruned(store: ListedStore, clock: SettableClock, rules: RetentionRules) -> Pruned:
    done, pruner = Pruned(), Pruner(store, rules, clock, NoAudit(), NoCopies())
    after: str | None = ""
    while after is not None:
        after = await pruner.page(after, done)
    return done


async def test_ended_threads_go_at_the_age_of_their_status(
    store: ListedStore, clock: SettableClock
) -> None:
    await ended(store, "done", RunStatus.COMPLETED)
    await ended(store, "failed", RunStatus.FAILED)
    await ended(store, "cancelled", RunStatus.CANCELLED)
    await store.commit(create("empty"))
    await store.commit(start_run("runs"))
    waits = (await store.commit(start_run("waits", "run-waits", owner="o"))).thread
    await store.commit(ask(waits, "a1", park=True))
    clock.advance(30 * DAY - 1)
    assert not (await pruned(store, clock, RULES)).removed
    clock.advance(1)
    assert (await pruned(store, clock, RULES)).removed == {"failed": 1}
    clock.advance(400 * DAY)
    done = await pruned(store, clock, RULES)
    assert (done.seen, done.removed) == (5, {"completed": 1})
    assert await left(store) == ["cancelled", "empty", "runs", "waits"]
    assert await store.find("run", "run-done") is None


async def test_thread_that_went_on_since_it_was_looked_at_stays(
    store: ListedStore, clock: SettableClock
) -> None:
    head = await ended(store, "t", RunStatus.COMPLETED)
    clock.advance(100 * DAY)

    class Late(Pruner):
        async def _remove(self, head: Thread, reason: str, done: Pruned) -> None:
            await store.commit(append(head, thought()))
            await super()._remove(head, reason, done)

    done = Pruned()
    await Late(store, RULES, clock, NoAudit(), NoCopies()).page("", done)
    assert (done.due, done.removed) == ({"completed": 1}, {})
    assert (await store.thread("t")).next_seq == head.next_seq + 1


async def test_task_goes_once_its_time_to_expire_has_passed(
    store: ListedStore, clock: SettableClock
) -> None:
    for name, days in (("soon", 1), ("later", 3)):
        new = NewThread("ann", expires_at=clock.now() + timedelta(days=days))
        await store.commit(new_commit(name, Absent(new)))
    clock.advance(2 * DAY)
    assert not (await pruned(store, clock, RULES)).removed, "only if a rule says so"
    assert (await pruned(store, clock, RetentionRules(expired=0))).removed == {"expired": 1}
    assert await left(store) == ["later"]


async def test_several_processes_at_once_remove_each_thread_once(
    store: ListedStore, clock: SettableClock
) -> None:
    for number in range(12):
        await ended(store, f"t{number:02}", RunStatus.COMPLETED)
    clock.advance(100 * DAY)
    done = await asyncio.gather(*(pruned(store, clock, RULES) for _ in range(3)))
    assert sum(one.removed.total() for one in done) == 12
    assert await left(store) == []


async def test_prune_leaves_sign_ins_at_mcp_servers(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/chats.sqlite"
    async with open_store(url) as opened:
        await opened.commit(new_commit("empty", Absent(NewThread("ann"))))
        await SignInRecords(opened, RandomIds()).change("ann", "notes", lambda before: before)
    done = await prune_store(Settings(store=url), {"idle": 0.0}, lambda seen, removed: None)
    async with open_store(url) as opened:
        assert await SignInRecords(opened, RandomIds()).at(sign_in_id("ann", "notes")) is not None
    assert done.removed == {"idle": 1}
