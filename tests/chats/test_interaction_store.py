"""The seed's `InteractionStore`: four methods, files that people can read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import (
    Conflict,
    InvalidInput,
    RunNotFound,
    ThreadBusy,
    ThreadNotFound,
)
from sk_agents.persistence.interaction_store import (
    FileInteractionStore,
    InteractionStore,
    StoredInteractions,
)
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.scripted_model import calls, says
from sk_agents.wire.events import (
    AnswerEvent,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from sk_agents.wire.views import AgentState, ChatMessage, Interaction, StoredChat
from tests.chats.serving import id_of, serving
from tests.chats.test_steering import SPAIN, at_work, held
from tests.requirements import requirement

ONE = Interaction(
    id="int_001",
    status=InteractionStatus.COMPLETED,
    user_message="How is Oslo?",
    agent_events=[
        ThinkingEvent(content="I look."),
        ToolCallEvent(id="call_1", tool_name="Web-search", tool_input='{"query":"Oslo"}'),
        ToolCallEvent(id="call_2", tool_name="clock", tool_input="{}"),
        ToolResultEvent(id="call_2", tool_name="clock", tool_output="noon"),
        ToolResultEvent(id="call_1", tool_name="Web-search", tool_output="cold"),
        ThinkingEvent(content="So."),
        AnswerEvent(content="Cold, at nöön."),
    ],
    final_agent_state=None,
    created_at="2025-01-15T10:00:00Z",
    completed_at="2025-01-15T10:00:05Z",
)
SAID = AgentState(
    messages=[
        ChatMessage(role="user", content="How is Oslo?"),
        ChatMessage(role="assistant", content="", tool_calls=[
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in (
                ("call_1", "Web-search", '{"query": "Oslo"}'), ("call_2", "clock", "{}"),
            )
        ]),
        ChatMessage(role="tool", content="cold", tool_call_id="call_1"),
        ChatMessage(role="tool", content="noon", tool_call_id="call_2"),
        ChatMessage(role="assistant", content="Cold, at nöön."),
    ]
)  # fmt: skip


def answered(id: str, text: str, **fields: Any) -> Interaction:
    return ONE.model_copy(
        update={"id": id, "user_message": text, "agent_events": [AnswerEvent(content="ok")]}
        | fields
    )


@asynccontextmanager
async def interactions(kind: str, folder: Path) -> AsyncIterator[InteractionStore]:
    if kind == "files":
        async with FileInteractionStore(folder) as opened:
            yield opened
    else:
        url = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/x.sqlite"}[kind]
        async with open_store(url) as store:
            yield StoredInteractions(store)


KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite", "files"])


@requirement("S004-4.5-interface")
@pytest.mark.parametrize(
    "missing", ["save_interaction", "load_interaction", "load_chat", "get_previous_state"]
)
def test_a_store_without_one_of_the_methods_cannot_be_built(missing: str) -> None:
    names = {"save_interaction", "load_interaction", "load_chat", "get_previous_state"} - {missing}
    methods = {name: lambda self, *arguments: None for name in names}
    incomplete = type("Incomplete", (InteractionStore,), methods)
    with pytest.raises(TypeError, match=missing):
        incomplete()


@requirement("S004-4.5-save-interaction", "S004-4.5-load-interaction")
@KINDS
async def test_what_was_saved_is_loaded_with_its_state(kind: str, tmp_path: Path) -> None:
    given = ONE.model_copy(update={"final_agent_state": SAID})
    async with interactions(kind, tmp_path) as store:
        await store.save_interaction("chat_123", given)
        loaded = await store.load_interaction("chat_123", "int_001")
        await store.save_interaction("chat_123", loaded)
        chat = await store.load_chat("chat_123")
    undated = {"created_at", "completed_at", "agent_events"}
    assert loaded.model_dump(exclude=undated) == given.model_dump(exclude=undated)
    assert [event.model_dump(exclude={"tool_input"}) for event in loaded.agent_events] == [
        event.model_dump(exclude={"tool_input"}) for event in given.agent_events
    ]
    assert chat.interactions == [loaded]


@KINDS
async def test_a_saved_interaction_keeps_its_dates(kind: str, tmp_path: Path) -> None:
    async with interactions(kind, tmp_path) as store:
        await store.save_interaction("c", ONE)
        loaded = await store.load_interaction("c", "int_001")
    assert loaded.created_at.startswith("2025-01-15T10:00:00")
    assert (loaded.completed_at or "").startswith("2025-01-15T10:00:05")


@requirement("S004-4.5-load-chat", "S004-4.5-get-previous-state")
@KINDS
async def test_a_chat_has_all_interactions_and_each_the_state_before_it(
    kind: str, tmp_path: Path
) -> None:
    async with interactions(kind, tmp_path) as store:
        await store.save_interaction("c", ONE)
        await store.save_interaction("c", answered("int_002", "And now?"))
        failed = answered("int_003", "Hm?", status=InteractionStatus.FAILED, agent_events=[])
        await store.save_interaction("c", failed)
        stopped = answered("int_004", "Stop", status=InteractionStatus.CANCELLED)
        await store.save_interaction("c", stopped)
        chat = await store.load_chat("c")
        states = [await store.get_previous_state("c", f"int_00{number}") for number in range(1, 5)]
    assert isinstance(chat, StoredChat) and chat.id == "c"
    assert [(entry.id, entry.status) for entry in chat.interactions] == [
        ("int_001", "COMPLETED"), ("int_002", "COMPLETED"), ("int_003", "FAILED"),
        ("int_004", "CANCELLED"),
    ]  # fmt: skip
    assert states == [None, *(entry.final_agent_state for entry in chat.interactions[:3])]
    assert states[1] == SAID


@KINDS
async def test_saving_again_changes_nothing_and_a_change_is_refused(
    kind: str, tmp_path: Path
) -> None:
    async with interactions(kind, tmp_path) as store:
        await store.save_interaction("c", ONE)
        before = await store.load_chat("c")
        await store.save_interaction("c", ONE)
        changes: list[dict[str, Any]] = [
            {"user_message": "other"},
            {"agent_events": ONE.agent_events[:-1]},
            {"status": InteractionStatus.FAILED},
            {"final_agent_state": AgentState(messages=[])},
        ]
        for change in changes:
            with pytest.raises(Conflict):
                await store.save_interaction("c", ONE.model_copy(update=change))
        assert await store.load_chat("c") == before


CALL = ToolCallEvent(id="x", tool_name="t", tool_input="{}")
RESULT = ToolResultEvent(id="x", tool_name="t", tool_output="o")
SENSELESS: list[dict[str, Any]] = [
    {"status": InteractionStatus.RUNNING, "completed_at": None},
    {"status": InteractionStatus.WAITING_APPROVAL, "completed_at": None},
    {"completed_at": None},
    {"created_at": "yesterday"},
    {"created_at": "2025-01-15T10:00:00"},
    {"agent_events": [CALL]},
    {"agent_events": [RESULT]},
    {"agent_events": [CALL, RESULT.model_copy(update={"tool_name": "u"})]},
    {"agent_events": [CALL, RESULT, CALL, RESULT]},
    {"agent_events": [CALL.model_copy(update={"tool_input": "x"}), RESULT]},
    {"agent_events": [AnswerEvent(content="a"), ThinkingEvent(content="b")]},
    {"final_agent_state": AgentState(messages=[ChatMessage(role="system", content="x")])},
    {"id": "../x"},
    {"id": ""},
]


async def test_what_makes_no_sense_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with interactions("memory", tmp_path) as store:
        for change in SENSELESS:
            with pytest.raises(InvalidInput):
                await store.save_interaction("c", ONE.model_copy(update=change))
        with pytest.raises(InvalidInput):
            await store.save_interaction("../c", ONE)
        with pytest.raises(ThreadNotFound):
            await store.load_chat("c")


@KINDS
async def test_what_is_not_there_is_not_found(kind: str, tmp_path: Path) -> None:
    async with interactions(kind, tmp_path) as store:
        for look in (store.load_interaction, store.get_previous_state):
            with pytest.raises(ThreadNotFound):
                await look("c", "int_001")
        await store.save_interaction("c", ONE)
        for look in (store.load_interaction, store.get_previous_state):
            with pytest.raises(RunNotFound):
                await look("c", "int_999")


@requirement("S004-4.5-file-store")
async def test_the_file_store_writes_one_readable_file_an_interaction(tmp_path: Path) -> None:
    async with FileInteractionStore(tmp_path) as store:
        await store.save_interaction("chat_abc123", ONE)
        loaded = await store.load_interaction("chat_abc123", "int_001")
    folder = tmp_path / "chats" / "chat_abc123"
    assert json.loads((folder / "interactions" / "int_001.json").read_text()) == loaded.model_dump(
        mode="json"
    )
    assert json.loads((folder / "chat.json").read_text())["id"] == "chat_abc123"


async def test_the_server_and_the_four_methods_see_the_same_chats(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/kept"
    send = calls(("Mail-send", {"to": "ada"}))
    async with FileInteractionStore(tmp_path / "kept") as store:
        await store.save_interaction("c", ONE)
    async with serving(tmp_path, [says("Still."), send], store=url) as served:
        told = id_of(await served.say("And today?"))
        prompt = [message["content"] for message in served.model.requests[-1]["messages"]]
        shown = await served.get("/chats/c")
        await served.say_until("approval_required", "write")
        async with FileInteractionStore(tmp_path / "kept") as store:
            with pytest.raises(ThreadBusy):
                await store.save_interaction("c", answered("int_9", "in between"))
    async with FileInteractionStore(tmp_path / "kept") as store:
        chat = await store.load_chat("c")
        before = await store.get_previous_state("c", told)
        await store.save_interaction("c", await store.load_interaction("c", told))
        waiting = chat.interactions[-1]
        with pytest.raises(Conflict):
            await store.save_interaction("c", answered(waiting.id, "write"))
    assert prompt[1] == "How is Oslo?" and prompt[-1] == "And today?"
    assert [entry["id"] for entry in shown["interactions"]] == ["int_001", told]
    assert [entry.status for entry in chat.interactions] == [
        "COMPLETED", "COMPLETED", "WAITING_APPROVAL",
    ]  # fmt: skip
    assert before == SAID


async def test_steered_interaction_is_loaded_and_saved_elsewhere_as_it_was(tmp_path: Path) -> None:
    turn, gate = held("It is sunny", says("."))
    look = calls(("Mail-look", {"what": "Spain"}))
    url = f"file://{tmp_path}/kept"
    async with at_work(tmp_path, turn, look, says("In Spain too."), store=url) as running:
        served, frames, seen, path = running
        await served.client.post(f"{path}/steer", json=SPAIN)
        gate.set()
        seen += [frame async for frame in frames]
    async with (
        FileInteractionStore(tmp_path / "kept") as kept,
        FileInteractionStore(tmp_path / "copy") as copy,
    ):
        original = await kept.load_interaction("c", id_of(seen))
        await copy.save_interaction("c", original)
        loaded = await copy.load_interaction("c", id_of(seen))
    assert [one.content for one in original.steering] == ["only in Spain"]
    assert loaded.final_agent_state == original.final_agent_state
    assert loaded.agent_events == original.agent_events
    dated = {"at"}
    assert [one.model_dump(exclude=dated) for one in loaded.steering] == [
        one.model_dump(exclude=dated) for one in original.steering
    ]


async def test_edited_message_keeps_its_place_in_the_chat(tmp_path: Path) -> None:
    sibling = answered("int_003", "Or this?", parent_id="int_001")
    async with FileInteractionStore(tmp_path) as store:
        await store.save_interaction("c", ONE)
        await store.save_interaction("c", answered("int_002", "And now?"))
        await store.save_interaction("c", sibling)
        chat = await store.load_chat("c")
        before = await store.get_previous_state("c", "int_003")
    assert [entry.id for entry in chat.interactions] == ["int_001", "int_003"]
    assert before == SAID
