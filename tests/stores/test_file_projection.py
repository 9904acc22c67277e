"""The files a person reads: what they say, and that they say what the log says."""

import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import (
    Answered,
    BranchChanged,
    Event,
    RunStarted,
    ThreadChanged,
    ToolFinished,
    ToolStarted,
)
from sk_agents.engine.log.commits import Absent, Claim, Park, Release
from sk_agents.engine.log.state import ThreadState, fold
from sk_agents.engine.models import NewThread, Thread
from sk_agents.interactions import interaction_of
from sk_agents.persistence.file.projection import chat_document
from sk_agents.persistence.file.store import FileStore
from sk_agents.testing.commits import (
    answered,
    append,
    append_owned,
    approval,
    call_proposed,
    decide,
    new_commit,
    run_ended,
    run_started,
    said,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.wire.views import Interaction
from tests.requirements import requirement

ANN = "ann"
CHAT = "chat_abc123"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileStore]:
    async with FileStore(root, clock=SettableClock(), single_user=ANN) as store:
        yield store


async def new_chat(store: FileStore, *events: Event, **metadata: str) -> Thread:
    new = NewThread(ANN, wire_id=CHAT, agent="helper", metadata=metadata)
    return (await store.commit(new_commit("t", Absent(new), *events, lease=Claim("o")))).thread


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def chat_of(root: Path) -> Any:
    return read(root / "chats" / CHAT / "chat.json")


def interactions_of(root: Path) -> dict[str, Any]:
    folder = root / "chats" / CHAT / "interactions"
    return {path.name: read(path) for path in sorted(folder.iterdir())}


async def state_of(store: FileStore) -> ThreadState:
    return fold(await store.events_after("t", 0, 10_000))


async def assert_files_equal_the_fold(root: Path, store: FileStore) -> None:
    state = await state_of(store)
    assert chat_of(root) == chat_document(await store.thread("t"), state)
    assert interactions_of(root) == {
        f"{run_id}.json": interaction_of(state, run_id).model_dump(mode="json")
        for run_id in sorted(state.runs)
    }


@requirement("S004-4.4-chat-file")
async def test_chat_file_names_the_chat_and_its_interactions(root: Path, store: FileStore) -> None:
    head = await new_chat(store, run_started("int_1"), title="Wetter für morgen")
    head = (await store.commit(append_owned(head, run_ended("int_1"), lease=Release()))).thread
    assert chat_of(root) == {
        "format": 1,
        "id": CHAT,
        "created_at": head.created_at.isoformat(),
        "title": "Wetter für morgen",
        "agent": "helper",
        "user_id": ANN,
        "thread_id": "t",
        "interactions": ["int_1"],
        "current_interaction": "int_1",
        "last_seq": 2,
    }
    assert "für" in (root / "chats" / CHAT / "chat.json").read_text()


async def test_chat_without_interactions_has_its_file(root: Path, store: FileStore) -> None:
    new = NewThread(ANN, wire_id=CHAT, metadata={"title": "empty"})
    head = (await store.commit(new_commit("t", Absent(new)))).thread
    assert (chat_of(root)["title"], chat_of(root)["interactions"]) == ("empty", [])
    await store.commit(append(head, ThreadChanged(metadata={"title": "renamed"})))
    assert chat_of(root)["title"] == "renamed"


@requirement("S004-4.4-interaction-files")
async def test_each_interaction_has_its_file_once_it_waits_or_has_ended(
    root: Path, store: FileStore
) -> None:
    head = await new_chat(store, run_started("int_1"))
    assert not (root / "chats" / CHAT / "interactions").exists()
    waiting: list[Event] = [call_proposed("call-of-a", "int_1"), approval("a", "int_1")]
    await store.commit(append_owned(head, *waiting, lease=Park()))
    assert interactions_of(root)["int_1.json"]["status"] == "WAITING_APPROVAL"
    head = (await store.commit(decide("t", "a", run_id="int_1"))).thread
    result = ToolFinished(run_id="int_1", call_id="call-of-a", result="done")
    await store.commit(append(head, result, run_ended("int_1")))
    head = await store.thread("t")
    await store.commit(append(head, run_started("another id"), run_ended("another id")))
    names = list(interactions_of(root))
    assert names[0] == "int_1.json"
    assert names[1].startswith("int_~")
    assert interactions_of(root)["int_1.json"]["status"] == "COMPLETED"


@requirement("S004-4.4-interaction-contents")
async def test_interaction_file_has_the_seven_fields(root: Path, store: FileStore) -> None:
    head = await new_chat(store, run_started("int_1", "Hello"))
    await store.commit(
        append_owned(head, answered("Hi.", "int_1"), run_ended("int_1"), lease=Release())
    )
    (document,) = interactions_of(root).values()
    assert list(document) == [
        "id",
        "status",
        "user_message",
        "agent_events",
        "final_agent_state",
        "created_at",
        "completed_at",
    ]
    assert (document["id"], document["user_message"]) == ("int_1", "Hello")
    assert document["agent_events"] == [{"type": "ANSWER", "content": "Hi."}]
    Interaction.model_validate(document)


@requirement("S004-4.4-final-agent-state")
async def test_file_of_an_ended_interaction_holds_the_whole_conversation(
    root: Path, store: FileStore
) -> None:
    head = await new_chat(store)
    for number, parent in ((1, None), (2, "int_1"), (3, "int_2")):
        run_id = f"int_{number}"
        started = RunStarted(run_id=run_id, message=said(f"q{number}"), parent_run=parent)
        head = (await store.commit(append(head, started))).thread
        ended: list[Event] = [Answered(run_id=run_id, content=f"a{number}"), run_ended(run_id)]
        head = (await store.commit(append(head, *ended))).thread
    messages = interactions_of(root)["int_3.json"]["final_agent_state"]["messages"]
    assert [message["content"] for message in messages] == ["q1", "a1", "q2", "a2", "q3", "a3"]


def random_turn(chance: random.Random, state: ThreadState, number: int) -> list[list[Event]]:
    """The commits of one turn, perhaps on another branch."""
    run_id = f"int_{number}"
    parents = [None, *state.runs]
    parent = chance.choice(parents)
    started = RunStarted(run_id=run_id, message=said(f"question {number} é"), parent_run=parent)
    commits: list[list[Event]] = [[BranchChanged(head_run=parent), started]]
    for call in range(chance.randrange(3)):
        call_id = f"{run_id}-{call}"
        begun = ToolStarted(run_id=run_id, call_id=call_id)
        commits.append([thought("hm", run_id), call_proposed(call_id, run_id), begun])
        commits.append([ToolFinished(run_id=run_id, call_id=call_id, result="x" * call)])
    commits.append([answered(f"answer {number}", run_id), run_ended(run_id)])
    if chance.random() < 0.3:
        commits.append([ThreadChanged(metadata={"title": f"title {number}"})])
    return commits


@requirement("S004-4.4-equals-fold")
@pytest.mark.parametrize("seed", range(4))
async def test_files_equal_the_fold_of_a_random_log(
    root: Path, store: FileStore, seed: int
) -> None:
    chance = random.Random(seed)
    head = await new_chat(store)
    for number in range(1, 7):
        for events in random_turn(chance, await state_of(store), number):
            head = (await store.commit(append_owned(head, *events))).thread
    await store.commit(append_owned(head, lease=Release()))
    await assert_files_equal_the_fold(root, store)


@pytest.mark.parametrize("lost", ["chat.json", "everything", "garbage", "behind"])
@requirement("S004-4.4-equals-fold")
async def test_files_that_are_behind_are_made_again_when_the_thread_is_opened(
    root: Path, lost: str
) -> None:
    folder = root / "chats" / CHAT
    async with FileStore(root, single_user=ANN) as store:
        head = await new_chat(store, run_started("int_1"), run_ended("int_1"))
        head = (await store.commit(append_owned(head, lease=Release()))).thread
        old = (folder / "chat.json").read_bytes()
        second = RunStarted(run_id="int_2", message=said("more"), parent_run="int_1")
        await store.commit(append(head, second, run_ended("int_2")))
    if lost == "garbage":
        (folder / "chat.json").write_text("[]")
    elif lost == "behind":
        (folder / "chat.json").write_bytes(old)
        (folder / "interactions" / "int_2.json").unlink()
    else:
        (folder / "chat.json").unlink()
    if lost == "everything":
        for path in (folder / "interactions").iterdir():
            path.unlink()
    async with FileStore(root, single_user=ANN) as store:
        await store.orphans()
        await assert_files_equal_the_fold(root, store)


async def test_second_handle_writes_the_files_after_the_first_did(
    root: Path, store: FileStore
) -> None:
    head = await new_chat(store, run_started("int_1"), run_ended("int_1"))
    async with FileStore(root, single_user=ANN) as other:
        for number, handle in enumerate((other, store, other, store), 2):
            run_id = f"int_{number}"
            head = await handle.thread("t")
            commit = append(head, run_started(run_id), run_ended(run_id))
            await handle.commit(commit)
        await assert_files_equal_the_fold(root, other)


async def test_files_of_a_chat_that_was_made_again_elsewhere_show_nothing_of_the_old_one(
    root: Path, store: FileStore
) -> None:
    head = await new_chat(store, run_started("int_1"), run_ended("int_1"))
    head = (await store.commit(append_owned(head, lease=Release()))).thread
    log = root / "chats" / CHAT / "log.jsonl"
    kept = root.with_name("kept")
    kept.hardlink_to(log)
    async with FileStore(root, single_user=ANN) as other:
        await other.delete("t", next_seq=head.next_seq)
        head = await new_chat(other, run_started("int_2"), run_ended("int_2"), run_started("int_3"))
    # As disks do, which give a new file the number of one that is gone.
    kept.write_bytes(log.read_bytes())
    kept.replace(log)
    await store.commit(append_owned(head, run_ended("int_3"), lease=Release()))
    await assert_files_equal_the_fold(root, store)


async def test_log_goes_on_when_the_files_cannot_be_written(root: Path, store: FileStore) -> None:
    head = await new_chat(store, run_started("int_1"))
    os.symlink(root, root / "chats" / CHAT / "interactions")
    committed = await store.commit(append_owned(head, run_ended("int_1"), lease=Release()))
    assert committed.thread.next_seq == 3
    os.unlink(root / "chats" / CHAT / "interactions")
    await store.commit(append(committed.thread, ThreadChanged(metadata={"title": "now"})))
    await assert_files_equal_the_fold(root, store)
