"""What the seeds promise about stored conversations, shown on every store that keeps them."""

import asyncio
import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from sk_agents.engine.events import Event, ThreadChanged
from sk_agents.engine.log.commits import ClaimIfFree, Commit, Release
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import RunStatus
from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    InvalidInput,
    SequenceConflict,
    StoreError,
)
from sk_agents.persistence.file.encryption import IN_USE
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import (
    answered,
    append,
    append_owned,
    approval,
    ask,
    cancel_requested,
    create,
    decide,
    run_ended,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import snapshot
from tests.patience import seconds
from tests.requirements import requirement

Reopened = Callable[[], Store]

WRITE_A_PAUSED_RUN = """
import asyncio, sys
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import ask, start_run

async def main():
    async with open_store(sys.argv[1]) as store:
        head = (await store.commit(start_run("t", text="delete it", owner="o"))).thread
        await store.commit(ask(head, "a", park=True))

asyncio.run(main())
"""


def write_in_another_process(url: str) -> None:
    subprocess.run([sys.executable, "-c", WRITE_A_PAUSED_RUN, url], check=True, timeout=seconds(60))


@requirement("S000-task-lifecycle", "S002-paused-history")
async def test_paused_run_of_an_ended_process_is_whole_for_the_next_one(durable_url: str) -> None:
    write_in_another_process(durable_url)
    async with open_store(durable_url) as store:
        run = fold(await store.events_after("t", 0)).runs["run-1"]
        assert run.status is RunStatus.WAITING
        assert run.message is not None
        assert run.message.text == "delete it"
        assert [call.proposal.arguments for call in run.unresolved_calls] == [{"path": "notes.txt"}]
        assert [a.request.approval_id for a in run.pending_approvals] == ["a"]
        committed = await store.commit(decide("t", "a", lease=ClaimIfFree("p")))
        await store.commit(append_owned(committed.thread, thought("going on")))


@requirement("S000-request-idempotency", "S002-approval-users")
async def test_first_decision_stands_and_names_who_decided(reopened: Reopened) -> None:
    async with reopened() as store:
        head = (await store.commit(start_run("t", user="ann"))).thread
        await store.commit(ask(head, "a", park=True))
        entry = await store.find("approval", "a")
        assert entry is not None
        assert (entry.user_id, await store.open_entries("approval", "eve")) == ("ann", [])
        await store.commit(decide("t", "a", "rejected", decided_by="boss"))
    async with reopened() as store:
        with pytest.raises(ApprovalAlreadyDecided):
            await store.commit(decide("t", "a", "approved", decided_by="eve"))
        call = fold(await store.events_after("t", 0)).runs["run-1"].calls["call-of-a"]
        assert call.approval is not None
        assert call.approval.decision is not None
        assert (call.approval.state, call.approval.decision.decided_by) == ("rejected", "boss")


@requirement("S000-request-auditing")
async def test_log_lists_every_action_in_order_and_only_grows(reopened: Reopened) -> None:
    actions: list[list[Event]] = [
        [thought("first")],
        [approval("a")],
        [cancel_requested()],
        [ThreadChanged(metadata={"title": "x"})],
        [answered("done"), run_ended()],
    ]
    async with reopened() as store:
        head = (await store.commit(start_run("t"))).thread
    seen = ["run_started"]
    for events in actions:
        async with reopened() as store:
            before = list(await store.events_after("t", 0))
            head = (await store.commit(append(head, *events))).thread
            with pytest.raises(SequenceConflict):
                await store.commit(append(head._replace(next_seq=1), thought()))
            after = list(await store.events_after("t", 0))
        seen += [event.type for event in events]
        assert after[: len(before)] == before
        assert [event.type for event in after] == seen
        assert [event.seq for event in after] == list(range(1, len(seen) + 1))


@requirement("S001-persistence-failure")
def test_store_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    async def opened(url: str) -> None:
        async with open_store(url):
            pass

    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    for url in (f"sqlite://{blocked}/teal.sqlite", f"file://{blocked}/store"):
        with pytest.raises(StoreError):
            asyncio.run(opened(url))
    assert blocked.read_text() == "not a folder"
    assert list(tmp_path.iterdir()) == [blocked]


@requirement("S001-persistence-failure", "S004-11.2-single-write")
async def test_commit_is_stored_as_a_whole_or_not_at_all(reopened: Reopened) -> None:
    async with reopened() as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        before = await snapshot(store, "t")
        changes = (thought(), approval("a"), ThreadChanged(metadata={"title": "new"}))
        refused: list[tuple[Commit, type[Exception]]] = [
            (append_owned(head, *changes, lease=Release(), next_seq=9), SequenceConflict),
            (append_owned(head, *changes, answered("\ud800"), lease=Release()), InvalidInput),
        ]
        for commit, error in refused:
            with pytest.raises(error):
                await store.commit(commit)
            assert await snapshot(store, "t") == before
    async with reopened() as store:
        assert await snapshot(store, "t") == before
        await store.commit(append_owned(head, *changes, lease=Release()))
    async with reopened() as store:
        head = await store.thread("t")
        assert (head.next_seq, head.owner, head.metadata) == (5, None, {"title": "new"})
        assert [entry.key for entry in await store.open_entries("approval", "ann")] == ["a"]


@requirement("S004-3.3-signal")
async def test_cancel_stored_by_one_handle_is_seen_by_the_owner(reopened: Reopened) -> None:
    async with reopened() as owners, reopened() as cancellers:
        owners.renew("o", 60)
        head = (await owners.commit(start_run("t", owner="o"))).thread
        seen_by_canceller = await cancellers.thread("t")
        cancel = append(seen_by_canceller, cancel_requested(), lease=ClaimIfFree("c"))
        committed = await cancellers.commit(cancel)
        assert committed.thread.owner == "o"
        assert list(await owners.events_after("t", 1)) == list(committed.events)
        run = fold(await owners.events_after("t", 0)).runs["run-1"]
        assert run.cancel_requested is not None
        await owners.commit(append_owned(head, run_ended(status=RunStatus.CANCELLED)))


@requirement("S004-11.3-on-demand")
async def test_any_part_of_a_long_log_is_read_by_itself(reopened: Reopened) -> None:
    async with reopened() as store:
        head = (await store.commit(create("t"))).thread
        for number in range(20):
            events = [thought(f"{number}.{n}") for n in range(50)]
            head = (await store.commit(append(head, *events))).thread
    async with reopened() as store:
        for start in (0, 1, 499, 777, 999):
            page = await store.events_after("t", start, 7)
            assert [event.seq for event in page] == list(range(start + 1, min(start + 8, 1001)))
        assert list(await store.events_after("t", 1000, 7)) == []


@requirement("S004-11.2-async-io")
async def test_loop_goes_on_while_a_commit_waits_for_a_lock(durable_url: str) -> None:
    async with open_store(durable_url) as store, asyncio.timeout(seconds(30)):
        head = (await store.commit(start_run("t"))).thread
        with all_locks_of(durable_url):
            commit = asyncio.ensure_future(store.commit(append(head, thought())))
            for _ in range(20):
                await asyncio.to_thread(lambda: None)
            assert not commit.done()
        assert (await commit).thread.next_seq == 3


@contextmanager
def all_locks_of(url: str) -> Iterator[None]:
    """Hold every lock of the store, as another process would in the middle of its own work."""
    path = Path(urlsplit(url).path)
    with ExitStack() as stack:
        if url.startswith("sqlite"):
            database = apsw.Connection(str(path))
            stack.callback(database.close)
            database.execute("BEGIN IMMEDIATE")
            stack.callback(database.execute, "ROLLBACK")
        else:
            # A process that has the store open holds this one all the time, shared.
            own = path.joinpath(*IN_USE)
            for file in (file for file in path.rglob("*") if file.is_file() and file != own):
                held = stack.enter_context(file.open("rb"))
                fcntl.flock(held, fcntl.LOCK_EX)
        yield
