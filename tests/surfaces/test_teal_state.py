"""Sessions, tasks and requests as a client finds them again."""

import asyncio
import base64
import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from sk_agents.engine.log.commits import Absent
from sk_agents.engine.models import NewThread, Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import AgentTask
from sk_agents.tealagents.models import Request, Session
from sk_agents.testing.commits import new_commit, run_started
from sk_agents.testing.scripted_model import calls, says
from tests.requirements import requirement
from tests.surfaces.teal_server import P, Script, eventually, message, place, server, serving

SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "/Other/0.1"


def picture() -> str:
    """A red point, as a data URI."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


@requirement("S000-session-groups-tasks", "S000-session-lifecycle", "S000-state-models")
async def test_session_lists_its_users_tasks_and_takes_new_ones_after_they_ended(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, [says("one"), says("two"), says("three")]) as at:
        first = await at.ask(session_id=SESSION)
        second = await at.ask(session_id=SESSION)
        await at.ask(user="bob", session_id=SESSION)
        session = Session.model_validate((await at.get(f"{P}/sessions/{SESSION}")).json())
        assert (session.user_id, session.next) == ("alice", None)
        assert {task.task_id for task in session.tasks} == {first["task_id"], second["task_id"]}
        assert {task.status for task in session.tasks} == {"Completed"}
        for reply in (first, second):
            request = (await at.get(f"{P}/requests/{reply['request_id']}")).json()
            assert Request.model_validate(request).task_id == reply["task_id"]
            assert request["session_id"] == SESSION
            assert request["completed_at"] >= request["created_at"]
            assert request["created_at"].endswith("Z")
        assert (await at.get(f"{P}/sessions/{SESSION}", "carol")).status_code == 404


@requirement("S000-usermessage-items")
async def test_image_reaches_the_model_and_stays_an_item_of_the_task(tmp_path: Path) -> None:
    async with server(tmp_path, [says("red")]) as at:
        items = [
            {"content_type": "text", "content": "What is this?"},
            {"content_type": "image", "content": picture()},
        ]
        response = await at.post(P, {"items": items, "user_context": {"name": "Alice"}})
        reply = response.json()
        assert reply["output"] == "red"
        parts = at.prompts[0][-1]["content"]
        assert parts[1]["image_url"]["url"] == picture()
        assert parts[2]["text"] == "User context:\nname: Alice"
        task = AgentTask.model_validate((await at.get(f"{P}/tasks/{reply['task_id']}")).json())
        assert [item.item.content_type for item in task.items] == ["text", "image", "text"]


@requirement("S000-task-expiration")
async def test_task_made_elsewhere_shows_its_metadata_and_expiry_and_goes_on(
    tmp_path: Path,
) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    made = AgentTask(
        task_id=SESSION,
        session_id=SESSION,
        user_id="alice",
        items=[],
        created_at=now,
        last_updated_at=now,
        metadata={"colour": "teal"},
        expires_at=datetime(2031, 1, 1, tzinfo=UTC),
    )
    async with place(tmp_path, [says("hi")]) as at:
        async with SqliteStore(at.database) as store:
            await StoreTasks(store).create(made)
        async with serving(at) as running:
            shown = AgentTask.model_validate((await running.get(f"{P}/tasks/{SESSION}")).json())
            assert (shown.metadata, shown.created_at) == (made.metadata, made.created_at)
            assert shown.expires_at == made.expires_at
            assert (await running.ask(task_id=SESSION))["output"] == "hi"


@requirement("S000-task-follow-on")
async def test_canceled_task_takes_a_follow_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with server(tmp_path, [[TextDelta("Well"), gate], says("back again")]) as at:
        asking = asyncio.ensure_future(at.post(P, message(session_id=SESSION)))

        async def said() -> int:
            return len(at.place.model.requests)

        await eventually(said, 1)
        [summary] = (await at.get(f"{P}/sessions/{SESSION}")).json()["tasks"]
        task = (await at.get(f"{P}/tasks/{summary['task_id']}")).json()
        assert task["status"] == "Running"
        cancel = f"{P}/requests/{task['items'][0]['request_id']}/cancel"
        canceled = await at.post(cancel)
        assert (canceled.status_code, canceled.json()["status"]) == (200, "Canceled")
        assert (await asking).json()["status"] == "Canceled"
        assert (await at.post(cancel)).status_code == 200
        reply = await at.ask("still there?", task_id=task["task_id"])
        assert reply["output"] == "back again"
        late = await at.post(f"{P}/requests/{reply['request_id']}/cancel")
        assert (late.status_code, late.json()["code"]) == (409, "already_terminal")
        ids = ("session_id", "task_id", "request_id")
        assert {name: late.json()[name] for name in ids} == {name: reply[name] for name in ids}
        assert late.json()["status"] == "Completed"


async def test_message_that_interrupts_ends_what_runs(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"to": "bob"})), says("instead")]
    async with server(tmp_path, script) as at:
        paused = await at.ask()
        reply = await at.ask("no", task_id=paused["task_id"], on_busy="interrupt")
        assert reply["output"] == "instead"
        ended = (await at.get(f"{P}/requests/{paused['request_id']}")).json()
        assert ended["status"] == "Canceled"
        assert (await at.post(paused["approval_url"])).status_code == 409
        assert at.place.sent == []


async def test_deleted_task_is_gone_for_its_owner_and_only_its_owner_deletes(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, [says("hi")]) as at:
        reply = await at.ask()
        path = f"{P}/tasks/{reply['task_id']}"
        assert (await at.delete(path, "mallory")).status_code == 401
        assert (await at.delete(path)).status_code == 204
        assert (await at.get(path)).status_code == 404
        assert (await at.delete(path)).status_code == 404
        assert (await at.post(P, message(task_id=reply["task_id"]))).status_code == 404
        assert await at.place.stored(reply["task_id"]) is None


async def test_task_and_request_are_seen_by_their_owner_only(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi")]) as at:
        reply = await at.ask()
        for path in (f"tasks/{reply['task_id']}", f"requests/{reply['request_id']}"):
            assert (await at.get(f"{P}/{path}")).status_code == 200
            assert (await at.get(f"{P}/{path}", "mallory")).status_code == 401
        cancel = f"{P}/requests/{reply['request_id']}/cancel"
        assert (await at.post(cancel, user="mallory")).status_code == 401


async def test_agents_do_not_serve_each_others_tasks(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi")], names=("Helper", "Other")) as at:
        reply = await at.ask(session_id=SESSION)
        assert (await at.post(OTHER, message(task_id=reply["task_id"]))).status_code == 404
        for path in ("tasks/" + reply["task_id"], "requests/" + reply["request_id"]):
            assert (await at.get(f"{OTHER}/{path}")).status_code == 404
        assert (await at.get(f"{OTHER}/sessions/{SESSION}")).status_code == 404


async def test_chat_of_another_api_is_no_task_though_it_has_the_same_user_and_agent(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, [says("hi")] * 2) as at:
        async with serving(at) as running:
            task_id = (await running.ask())["task_id"]
        async with SqliteStore(at.database) as store:
            task = await store.thread(task_id)
            assert task.user_id
            new = NewThread(task.user_id, surface="chats", agent=task.agent)
            await store.commit(new_commit(SESSION, Absent(new), run_started(SESSION)))
        async with serving(at) as running:
            assert (await running.get(f"{P}/tasks/{task_id}")).status_code == 200
            for path in (f"tasks/{SESSION}", f"requests/{SESSION}"):
                assert (await running.get(f"{P}/{path}")).status_code == 404
            assert (await running.post(P, message(task_id=SESSION))).status_code == 404


@requirement("S000-request-idempotency-key")
async def test_request_sent_again_with_its_key_starts_no_second_run(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: Script = [[gate, TextDelta("once"), TurnFinished("stop", Usage())], says("twice")]
    async with server(tmp_path, script) as at:
        sent = [asyncio.ensure_future(at.post(P, message(), Idempotency_Key="k")) for _ in range(5)]
        other = asyncio.ensure_future(at.post(P, message(), "bob", Idempotency_Key="k"))
        await eventually(lambda: _played(at.place.model.requests), 2)
        gate.set()
        replies = [(await one).json() for one in sent]
        assert all(reply == replies[0] for reply in replies)
        assert UUID(replies[0]["task_id"]).version == 5
        assert (await other).json()["task_id"] != replies[0]["task_id"]
        changed = await at.post(P, message("other words"), Idempotency_Key="k")
        assert changed.status_code == 422
        stream = await at.events(body=message(), Idempotency_Key="k")
        assert stream[-1][1]["request_id"] == replies[0]["request_id"]
        assert len(at.place.model.requests) == 2


async def _played(requests: Sequence[object]) -> int:
    return len(requests)


async def test_key_of_a_follow_on_is_its_tasks_own(tmp_path: Path) -> None:
    async with server(tmp_path, [says(text) for text in ("one", "two", "three", "four")]) as at:
        first, second = await at.ask(), await at.ask()
        replies = [
            (await at.post(P, message("on", task_id=task_id), Idempotency_Key="k")).json()
            for task_id in (first["task_id"], first["task_id"], second["task_id"])
        ]
        assert replies[0] == replies[1]
        assert replies[2]["output"] == "four"
