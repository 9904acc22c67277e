"""A request's way through the handler, step by step, with the store looked at in between."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from sk_agents.agent_assembly import agent_address
from sk_agents.authorization.request_authorizer import Principal
from sk_agents.engine.models import Usage
from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ConfigurationError, Unauthenticated
from sk_agents.http.caller import Caller
from sk_agents.tealagents import handle
from sk_agents.tealagents.models import (
    TealAgentsPartialResponse,
    TealAgentsResponse,
    UserMessage,
)
from sk_agents.tealagents.v1alpha1 import agent, handler
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent, read_config
from sk_agents.testing.scripted_model import says
from tests.requirements import requirement
from tests.surfaces.teal_server import (
    P,
    Script,
    Server,
    eventually,
    message,
    place,
    server,
    serving,
)

ALICE = Caller(Principal("alice"), "Bearer alice")


def own_handler(at: Server, version: str = "v1alpha1") -> handler.TealAgentsV1Alpha1Handler:
    served = next(iter(at.app.state.parts.agents.values()))
    config = ServedTealAgent(agent_address(served.file), read_config(served.file))
    return handle(version, at.app.state.engines.tasks, config)


def hello(**fields: str) -> UserMessage:
    return UserMessage.model_validate(message("hello", **fields))


def is_id(text: str) -> bool:
    return str(UUID(text)) == text


async def tasks_of(at: Server, user: str) -> list[str]:
    """What the store holds of this user."""
    page = await at.app.state.engines.tasks.catalog.threads(ThreadQuery(user))
    return [head.thread_id for head in page.threads]


@requirement(
    "S000-new-request-1",
    "S000-new-request-2",
    "S000-new-request-3",
    "S000-new-request-4",
    "S000-new-request-5",
    "S000-new-request-6",
    "S000-new-request-7",
    "S001-stream-updates",
)
@pytest.mark.parametrize("session_id", [None, "11111111-2222-4333-8444-555555555555"])
@pytest.mark.parametrize("path", [P, f"{P}/sse"])
async def test_new_request_is_stored_before_the_model_is_called_and_its_answer_after(
    tmp_path: Path, session_id: str | None, path: str
) -> None:
    gate = asyncio.Event()
    script: Script = [[gate, TextDelta("Good day."), TurnFinished("stop", Usage())]]
    async with server(tmp_path, script) as at:
        fields = {"session_id": session_id} if session_id else {}
        asking = asyncio.ensure_future(at.post(path, message("hello", **fields)))
        await eventually(lambda: _count(at), 1)
        [task_id] = await tasks_of(at, "alice")
        asked = await at.place.stored(task_id)
        assert asked is not None
        assert (asked.status, asked.user_id) == ("Running", "alice")
        assert [(item.role, item.item.content) for item in asked.items] == [("user", "hello")]
        assert at.prompts[0] == [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "hello"},
        ]
        gate.set()
        response = await asking
        assert response.status_code == 200
        answered = await at.place.stored(task_id)
        assert answered is not None
        assert answered.status == "Completed"
        assert [item.item.content for item in answered.items] == ["hello", "Good day."]
        assert len({item.request_id for item in answered.items}) == 1
        assert is_id(answered.task_id) and is_id(answered.session_id)
        assert session_id in (None, answered.session_id)
        ids = (answered.session_id, answered.task_id, answered.items[0].request_id)
        for shown in ids:
            assert shown in response.text


async def _count(at: Server) -> int:
    return len(at.place.model.requests)


@requirement(
    "S000-follow-on-1",
    "S000-follow-on-2",
    "S000-follow-on-4",
    "S000-follow-on-6",
    "S000-objective-stateful",
    "S000-request-unique-id",
    "S001-invoke-chat-history",
)
async def test_follow_on_keeps_its_ids_and_sees_the_whole_history_once(tmp_path: Path) -> None:
    async with server(tmp_path, [says("one"), says("two"), says("three")]) as at:
        first = await at.ask("first")
        second = await at.ask("second", task_id=first["task_id"])
        third = await at.ask("third", task_id=first["task_id"], session_id=first["session_id"])
        for reply in (second, third):
            assert reply["task_id"] == first["task_id"]
            assert reply["session_id"] == first["session_id"]
        assert len({reply["request_id"] for reply in (first, second, third)}) == 3
        assert [one["content"] for one in at.prompts[2]] == [
            "You help.",
            "first",
            "one",
            "second",
            "two",
            "third",
        ]
        stored = await at.place.stored(first["task_id"])
        assert stored is not None
        assert [item.request_id for item in stored.items] == [
            reply["request_id"] for reply in (first, first, second, second, third, third)
        ]


@requirement("S001-tests-end-to-end")
async def test_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with place(tmp_path, [says("one"), says("two")]) as at:
        async with serving(at) as before:
            first = await before.ask("first")
        async with serving(at) as after:
            second = await after.ask("second", task_id=first["task_id"])
            assert second["output"] == "two"
            assert [one["content"] for one in after.prompts[1]] == [
                "You help.",
                "first",
                "one",
                "second",
            ]


@requirement("S001-invoke-authorize", "S002-pipeline-order", "S001-error-authorization-401")
@pytest.mark.parametrize("path", [P, f"{P}/sse"])
async def test_caller_who_is_not_known_leaves_no_trace(tmp_path: Path, path: str) -> None:
    async with server(tmp_path, [says("never")]) as at:
        response = await at.post(path, message(), user=None)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert await tasks_of(at, "") == []
        assert at.place.model.requests == []


@requirement("S001-invoke-task-id", "S001-error-task-id", "S001-message-task-not-found")
@pytest.mark.parametrize("path", [P, f"{P}/sse"])
@pytest.mark.parametrize(
    "task_id",
    [
        "12345678-1234-4234-8234-123456789abc",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
async def test_unknown_task_is_404_and_none_is_made(
    tmp_path: Path, path: str, task_id: str
) -> None:
    async with server(tmp_path) as at:
        response = await at.post(path, message(task_id=task_id))
        assert response.status_code == 404
        assert task_id in response.json()["detail"]
        assert await tasks_of(at, "alice") == []


@requirement("S000-follow-on-3", "S001-stream-state")
@pytest.mark.parametrize("path", [P, f"{P}/sse"])
async def test_follow_on_by_another_user_is_401_and_changes_nothing(
    tmp_path: Path, path: str
) -> None:
    async with server(tmp_path, [says("one")]) as at:
        first = await at.ask()
        response = await at.post(path, message(task_id=first["task_id"]), "mallory")
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "alice" not in response.text
        stored = await at.place.stored(first["task_id"])
        assert stored is not None and len(stored.items) == 2
        assert len(at.place.model.requests) == 1


@requirement("S000-follow-on-3-hidden")
async def test_where_existence_is_hidden_a_foreign_task_looks_like_an_unknown_one(
    tmp_path: Path,
) -> None:
    unknown = "12345678-1234-4234-8234-123456789abc"
    async with server(tmp_path, [says("one")], settings={"hide_existence": True}) as at:
        mine = (await at.ask())["task_id"]
        foreign = await at.post(P, message(task_id=mine), "mallory")
        missing = await at.post(P, message(task_id=unknown), "mallory")
        assert (foreign.status_code, missing.status_code) == (404, 404)
        told = [{**r.json(), "correlation_id": None} for r in (foreign, missing)]
        assert str(told[0]).replace(mine, unknown) == str(told[1])


@requirement("S001-tests-concurrency")
async def test_of_fifty_simultaneous_follow_ons_one_runs_and_the_others_are_told_so(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    script: Script = [says("one"), [gate, TextDelta("two"), TurnFinished("stop", Usage())]]
    async with server(tmp_path, script) as at:
        task_id = (await at.ask())["task_id"]
        follow_ons = [
            asyncio.ensure_future(at.post(P, message(f"m{number}", task_id=task_id)))
            for number in range(50)
        ]
        refused = 0
        for done in asyncio.as_completed(follow_ons):
            refused += (await done).status_code == 409
            if refused == 49:
                gate.set()
        statuses = [(await one).status_code for one in follow_ons]
        assert (statuses.count(200), statuses.count(409)) == (1, 49)
        stored = await at.place.stored(task_id)
        assert stored is not None and len(stored.items) == 4
        assert len(at.place.model.requests) == 2


@requirement("S001-tests-concurrency")
async def test_fifty_follow_ons_that_may_wait_are_all_answered_in_order(tmp_path: Path) -> None:
    script = [says(f"a{number}") for number in range(51)]
    async with server(tmp_path, script) as at:
        task_id = (await at.ask("m"))["task_id"]
        fields = {"task_id": task_id, "on_busy": "enqueue"}
        replies = await asyncio.gather(*(at.ask(f"m{number}", **fields) for number in range(50)))
        stored = await at.place.stored(task_id)
        assert stored is not None
        texts = [item.item.content for item in stored.items]
        assert [item.role for item in stored.items] == ["user", "assistant"] * 51
        assert texts[1::2] == [f"a{number}" for number in range(51)]
        assert sorted(texts[2::2]) == sorted(f"m{number}" for number in range(50))
        said = dict(zip((item.request_id for item in stored.items[1::2]), texts[1::2], strict=True))
        assert all(said[reply["request_id"]] == reply["output"] for reply in replies)


@requirement("S001-stream-save", "S001-stream-ids")
async def test_handler_streams_pieces_with_their_ids_and_the_store_holds_the_whole(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, [says("Good day to you.", pieces=4)]) as at:
        pieces = [piece async for piece in own_handler(at).invoke_stream(ALICE, hello())]
        *partial, final = pieces
        assert isinstance(final, TealAgentsResponse)
        assert all(isinstance(piece, TealAgentsPartialResponse) for piece in partial)
        texts = [p.output_partial for p in partial if isinstance(p, TealAgentsPartialResponse)]
        assert "".join(texts) == final.output == "Good day to you."
        ids = {(piece.session_id, piece.task_id, piece.request_id) for piece in pieces}
        assert len(ids) == 1
        stored = await at.place.stored(final.task_id)
        assert stored is not None
        assert stored.items[-1].item.content == "Good day to you."


async def test_handler_invoked_answers_what_its_stream_ends_with(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi"), says("ho")]) as at:
        first = await own_handler(at).invoke(ALICE, hello())
        assert isinstance(first, TealAgentsResponse)
        assert (first.output, first.source) == ("hi", "Helper:0.1")
        with pytest.raises(Unauthenticated):
            await own_handler(at).invoke(Caller(Principal("mallory")), hello(task_id=first.task_id))


@requirement("S001-handler-class", "S002-handler-module", "S001-module-structure")
def test_handler_is_found_in_both_modules() -> None:
    assert agent.TealAgentsV1Alpha1Handler is handler.TealAgentsV1Alpha1Handler
    assert agent.Agent.__module__ == agent.__name__
    with pytest.raises(AttributeError):
        _ = agent.SomethingElse


@requirement("S001-tests-files")
@pytest.mark.parametrize(
    "name", ["tealagents_handler", "authorization", "persistence", "isolation"]
)
def test_tests_are_in_the_files_the_plan_names(name: str) -> None:
    assert (Path(__file__).parent / f"test_{name}.py").is_file()


async def test_version_nobody_knows_has_no_handler(tmp_path: Path) -> None:
    async with server(tmp_path) as at:
        with pytest.raises(ConfigurationError, match="v9"):
            own_handler(at, "v9")
