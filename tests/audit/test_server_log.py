"""The server's own log: shared, ordered, bounded against outsiders."""

import asyncio
from pathlib import Path

import pytest

from sk_agents.audit import server_log
from sk_agents.audit.reading import server_trail
from sk_agents.audit.server_log import ServerLog, remembered
from sk_agents.engine.defaults import NoCopies, RandomIds, SystemClock
from sk_agents.engine.events import Noted
from sk_agents.engine.models import SERVER_LOG, ThreadStatus
from sk_agents.engine.ports import PortableStore
from sk_agents.engine.threads.retention import Pruned, Pruner, RetentionRules
from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.commits import create, thought
from tests.audit.stores import open_log, opened


async def subjects(store: PortableStore | MemoryStore) -> list[str | None]:
    return [entry.subject async for entry in server_trail(store)]


async def test_logs_of_several_processes_become_one(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/s"
    async with opened(url) as one, opened(url) as other:
        async with open_log(one) as first, open_log(other) as second:
            notes = [
                log.note(Noted(what="exporting", subject=f"{name} {number}"))
                for number in range(20)
                for name, log in (("first", first), ("second", second))
            ]
            await asyncio.gather(*notes)
        found = await subjects(one)
    assert len(found) == len(set(found)) == 40
    for name in ("first", "second"):
        own = [subject for subject in found if subject and subject.startswith(name)]
        assert own == [f"{name} {number}" for number in range(20)]


async def test_table_that_two_processes_look_at_is_noted_once(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/s"
    async with opened(url) as one, opened(url) as other:
        async with open_log(one) as first, open_log(other) as second:
            build = remembered("key", {"k1": "ann"})
            await asyncio.gather(*(log.append(build) for log in (first, second) * 5))
            await second.append(remembered("key", {"k1": "bob", "k2": "eve"}))
        entries = [entry async for entry in server_trail(one)]
    assert [(entry.subject, entry.outcome) for entry in entries] == [
        ("k1", "added"),
        ("k1", "changed"),
        ("k2", "added"),
    ]
    assert entries[1].details == {"before": "ann", "after": "bob"}


async def test_log_goes_on_in_another_thread_and_remembers_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_log, "PART_EVENTS", 4)
    async with opened(f"sqlite://{tmp_path}/s") as store:
        for number in range(5):
            async with open_log(store) as log:
                await log.append(remembered("key", {"k1": "ann"}))
                for step in range(3):
                    await log.note(Noted(what="exporting", subject=f"{number} {step}"))
        parts = await store.all_threads()
        found = [one for one in await subjects(store) if one and not one.startswith(SERVER_LOG)]
    assert len(parts) > 3
    assert found == ["k1", *(f"{number} {step}" for number in range(5) for step in range(3))]


async def test_what_outsiders_cause_is_counted_and_takes_little_room() -> None:
    store = MemoryStore()
    async with ServerLog(store, RandomIds()) as log:
        for number in range(10_000):
            log.count(Noted(what="sign_in_failed", subject=f"10.0.{number % 50}.1"))
        assert await log.write_counted() <= server_log.MOST_COUNTED + 1
        assert await log.write_counted() == 0
        log.count(Noted(what="sign_in_failed", subject="10.0.0.1"))
    entries = [entry async for entry in server_trail(store)]
    assert sum(entry.details.get("count", 1) for entry in entries) == 10_001
    assert any(entry.subject == server_log.OTHERS for entry in entries)


async def test_closed_log_takes_nothing() -> None:
    log = ServerLog(MemoryStore(), RandomIds())
    async with log:
        pass
    with pytest.raises(StoreUnavailable):
        await log.note(Noted(what="exporting"))


async def test_age_removes_no_part_of_it_and_is_noted_of_others(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store, open_log(store) as log:
        await log.note(Noted(what="exporting", subject="first"))
        await store.commit(create("t", thought("old")))
        rules = RetentionRules({ThreadStatus.IDLE: 0.0})
        await Pruner(store, rules, SystemClock(), log, NoCopies()).page("", Pruned())
        assert await store.all_threads() == [SERVER_LOG]
        entries = [entry async for entry in server_trail(store)]
        assert [(entry.what, entry.subject, entry.outcome) for entry in entries] == [
            ("exporting", "first", None),
            ("deleting", "t", "by its age, idle"),
        ]
