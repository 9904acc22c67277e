"""Two servers over one class of a user's: what was acknowledged stays."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import LeaseHeld, LeaseLost, StoreUnavailable, ThreadNotFound
from sk_agents.persistence.tasks import task_locks, user_tasks
from sk_agents.persistence.tasks.bridge import TaskBridgeStore
from sk_agents.testing.commits import append, append_owned, start_run, thought
from sk_agents.testing.predictable import SettableClock
from tests.chaos.scale import FULL
from tests.patience import seconds
from tests.toy_tasks import ConditionalTasks, JsonTasks, SearchableTasks

AGENT = """
apiVersion: tealagents/v1alpha1
name: Echo
version: 1
spec:
  agent:
    name: default
    model: scripted/talk.yaml
    system_prompt: You answer.
"""
SCRIPT = "turns: [{text: Noted.}]\n"
# Written to the public project's contract. Each call takes a while, as a database's would, so that
# those of two servers fall between each other.
CLASS = """
import asyncio
import random
import threading

from sk_agents.exceptions import PersistenceCreateError, PersistenceUpdateError
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.tealagents.models import AgentTask

KEPT = {}


async def travel():
    await asyncio.sleep(random.uniform(0, 0.01))


class Shared(TaskPersistenceManager):
    async def create(self, task):
        await travel()
        if task.task_id in KEPT:
            raise PersistenceCreateError(message="there already")
        await travel()
        KEPT[task.task_id] = task.model_dump_json()

    async def load(self, task_id):
        await travel()
        text = KEPT.get(task_id)
        await travel()
        return None if text is None else AgentTask.model_validate_json(text)

    async def update(self, task):
        await travel()
        if task.task_id not in KEPT:
            raise PersistenceUpdateError(message="not there")
        KEPT[task.task_id] = task.model_dump_json()
        await travel()

    async def delete(self, task_id):
        await travel()
        KEPT.pop(task_id, None)


class Slow(Shared):
    async def load(self, task_id):
        await asyncio.sleep(0.2)
        return await super().load(task_id)


class Locked(Shared):
    # Its look-up takes a lock which it holds already, as the public project's Redis example does.
    def __init__(self):
        self.lock = threading.Lock()

    async def load(self, task_id):
        with self.lock:
            text = KEPT.get(task_id)
        return None if text is None else AgentTask.model_validate_json(text)

    async def load_by_request_id(self, request_id):
        with self.lock:
            for text in list(KEPT.values()):
                task = AgentTask.model_validate_json(text)
                if request_id in [item.request_id for item in task.items]:
                    return await self.load(task.task_id)
        return None


class Conditional(Shared):
    async def update_if(self, task, version):
        await travel()
        stored = KEPT.get(task.task_id)
        if stored is None or AgentTask.model_validate_json(stored).version != version:
            return False
        KEPT[task.task_id] = task.model_dump_json()
        return True
"""
TURNS = 2_000 if FULL else 200
TASKS = 20
LONGEST = 10
SETTLE = min(seconds(0.2), LONGEST)


@asynccontextmanager
async def servers(
    folder: Path, kept_by: str, number: int = 2, *, settle: float = SETTLE
) -> AsyncIterator[list[httpx.AsyncClient]]:
    for name, text in (("config.yaml", AGENT), ("talk.yaml", SCRIPT), ("shared.py", CLASS)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    settings = Settings(
        store="memory:",
        persistence_module=str(folder / "shared.py"),
        persistence_class=kept_by,
        persistence_settle=settle,
        script_pace=0,
    )
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(number):
            app = create_app(settings, load_agent_files([folder]))
            await stack.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app)
            client = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None)
            clients.append(await stack.enter_async_context(client))
        yield clients


def said(text: str, task_id: str | None = None) -> dict[str, object]:
    items = [{"content_type": "text", "content": text}]
    return {"items": items} if task_id is None else {"items": items, "task_id": task_id}


@pytest.mark.parametrize("kept_by", ["Shared", "Conditional"])
async def test_no_turn_that_was_acknowledged_is_lost_between_two_servers(
    tmp_path: Path, kept_by: str
) -> None:
    """Where the machine takes longer than the pause, most turns are refused, as they should be."""
    async with asyncio.timeout(seconds(120)):
        for times in (1, 5, 25):
            settle = min(times * SETTLE, LONGEST)
            if await acknowledged_turns(tmp_path, kept_by, settle) > TASKS:
                return
    raise AssertionError("hardly any turn was acknowledged")


async def acknowledged_turns(folder: Path, kept_by: str, settle: float) -> int:
    """How many of those that two servers were asked for at the same time. They are all there."""
    async with servers(folder, kept_by, settle=settle) as pair:
        firsts = [pair[number % 2].post("/Echo/1", json=said("first")) for number in range(TASKS)]
        tasks = [reply.json()["task_id"] for reply in await asyncio.gather(*firsts)]
        kept: dict[str, set[str]] = {task_id: {"first"} for task_id in tasks}
        refused: Counter[int] = Counter()

        async def turn(number: int) -> None:
            task_id, text = tasks[number % TASKS], f"turn {number}"
            reply = await pair[number // TASKS % 2].post("/Echo/1", json=said(text, task_id))
            if reply.status_code == 200:
                kept[task_id].add(text)
            else:
                refused[reply.status_code] += 1
                assert reply.json()["detail"]

        for wave in range(0, TURNS, 2 * TASKS):
            await asyncio.gather(*map(turn, range(wave, min(wave + 2 * TASKS, TURNS))))
        assert set(refused) <= {409, 503}, refused
        for client in pair:
            for task_id in tasks:
                task = (await client.get(f"/Echo/1/tasks/{task_id}")).json()
                users = [one["item"]["content"] for one in task["items"] if one["role"] == "user"]
                assert kept[task_id] <= set(users)
                assert len(users) == len(set(users))
        return sum(map(len, kept.values())) - TASKS


async def test_turns_one_after_the_other_go_on_at_the_other_server(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(60)), servers(tmp_path, "Shared") as pair:
        task_id = (await pair[0].post("/Echo/1", json=said("0"))).json()["task_id"]
        for number in range(1, 5):
            reply = await pair[number % 2].post("/Echo/1", json=said(str(number), task_id))
            assert reply.status_code == 200, reply.text
        task = (await pair[0].get(f"/Echo/1/tasks/{task_id}")).json()
        users = [one["item"]["content"] for one in task["items"] if one["role"] == "user"]
        assert users == ["0", "1", "2", "3", "4"]


async def test_class_that_takes_longer_serves_with_a_longer_pause(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(60)), servers(tmp_path, "Slow", 1, settle=2) as [client]:
        task_id = (await client.post("/Echo/1", json=said("0"))).json()["task_id"]
        reply = await client.post("/Echo/1", json=said("1", task_id))
        assert reply.status_code == 200, reply.text


async def test_look_up_that_would_never_return_is_found_out_at_start_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(user_tasks, "LOOKUP_SECONDS", 0.5)
    async with asyncio.timeout(seconds(60)), servers(tmp_path, "Locked") as (first, second):
        ids = (await first.post("/Echo/1", json=said("hello"))).json()
        path = f"/Echo/1/requests/{ids['request_id']}"
        assert (await second.get(path)).status_code == 404
        named = await second.get(path, params={"task_id": ids["task_id"]})
        assert named.json()["output"] == "Noted."
        # The class is as good as before, and nothing of the trial is left in it.
        again = await second.post("/Echo/1", json=said("again", ids["task_id"]))
        assert again.status_code == 200
        said_so = [one for one in caplog.records if "does not return" in one.getMessage()]
        module = str(vars(said_so[0])["store"]).rpartition(".")[0]
        kept = vars(sys.modules[module])["KEPT"]
        assert len(kept) == 1


async def test_look_up_that_returns_is_used(tmp_path: Path) -> None:
    tasks = SearchableTasks()
    store = TaskBridgeStore(tasks, settle=0, build_another=SearchableTasks)
    async with store:
        await store.commit(start_run("t", "r"))
    async with TaskBridgeStore(tasks, settle=0, build_another=SearchableTasks) as again:
        assert (await again.find("run", "r")) is not None


async def test_task_that_another_server_works_on_is_refused_until_its_beats_stop() -> None:
    tasks, clock = JsonTasks(), SettableClock()
    first, second = (TaskBridgeStore(tasks, clock=clock, settle=0) for _ in range(2))
    async with first, second:
        first.renew("o", 1000)
        made = (await first.commit(start_run("t", "r", owner="o"))).thread
        with pytest.raises(LeaseHeld, match="Another server"):
            await second.commit(append(await second.thread("t"), thought()))
        assert await second.orphans() == []
        clock.advance(task_locks.STALE)
        assert [head.thread_id for head in await second.orphans()] == ["t"]
        assert (await second.claim("t", "p")).owner == "p"
        with pytest.raises(LeaseLost):
            await first.commit(append_owned(made, thought()))


async def test_conditional_class_lets_another_server_commit_beside_the_owner() -> None:
    tasks, clock = ConditionalTasks(), SettableClock()
    async with (
        TaskBridgeStore(tasks, clock=clock) as first,
        TaskBridgeStore(tasks, clock=clock) as second,
    ):
        first.renew("o", 1000)
        made = (await first.commit(start_run("t", "r", owner="o"))).thread
        await second.commit(append(await second.thread("t"), thought("from elsewhere", "r")))
        done = await first.commit(append_owned(made, thought("from its owner", "r")))
        assert done.thread.next_seq == 4
        with pytest.raises(LeaseHeld):
            await second.claim("t", "p")
        clock.advance(task_locks.STALE)
        assert (await second.claim("t", "p")).recoveries == 1
        with pytest.raises(LeaseLost):
            await first.commit(append_owned(made, thought("too late", "r")))


async def test_task_that_was_removed_or_set_back_under_a_running_server_is_noticed() -> None:
    tasks = JsonTasks()
    async with TaskBridgeStore(tasks, settle=0) as store:
        made = (await store.commit(start_run("t", "r"))).thread
        older = tasks.texts["t"]
        made = (await store.commit(append(made, thought()))).thread
        newer, tasks.texts["t"] = tasks.texts["t"], older
        with pytest.raises(StoreUnavailable, match="without what was stored"):
            await store.commit(append(made, thought()))
        tasks.texts["t"] = newer
        await store.commit(append(made, thought()))
        del tasks.texts["t"]
        with pytest.raises(ThreadNotFound):
            await store.thread("t")
        assert await store.find("run", "r") is None
