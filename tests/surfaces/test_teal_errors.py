"""Every failure of Teal's API has its status, says what is wrong and can be found in the logs."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import calls, says
from tests.requirements import requirement
from tests.surfaces.teal_server import (
    P,
    Server,
    eventually,
    frames,
    message,
    place,
    server,
    serving,
    streaming,
)

MIGRATING = Path(__file__).parents[2] / "docs" / "migrating.md"
UNKNOWN = "12345678-1234-4234-8234-123456789abc"
FAILING = """
import json
from pathlib import Path

from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.ska_types import AgentTask

FOLDER = Path(__file__).with_name("tasks")
OUTAGE = Path(__file__).with_name("outage")


class FolderTasks(TaskPersistenceManager):
    def _path(self, task_id):
        if OUTAGE.exists():
            raise OSError("10.0.0.7 does not answer")
        FOLDER.mkdir(exist_ok=True)
        return FOLDER / task_id

    def create(self, task):
        self._path(task.task_id).write_text(task.model_dump_json())

    def load(self, task_id):
        path = self._path(task_id)
        return AgentTask.model_validate_json(path.read_text()) if path.exists() else None

    def update(self, task):
        self._path(task.task_id).write_text(task.model_dump_json())

    def delete(self, task_id):
        self._path(task_id).unlink()
"""


def own_class(folder: Path) -> dict[str, Any]:
    """Settings that name a persistence class of the operator's own."""
    module = folder / "own_tasks.py"
    module.write_text(FAILING)
    module.chmod(0o600)
    return {"persistence_module": str(module), "persistence_class": "FolderTasks"}


def told(response: httpx.Response, status: int, code: str) -> Any:
    """The body of an error, checked."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert (body["code"], bool(body["detail"])) == (code, True)
    assert body["correlation_id"] == response.headers["X-Correlation-Id"]
    return body


@requirement("S000-usermessage-uuid", "S001-error-task-id")
@pytest.mark.parametrize("field", ["session_id", "task_id"])
@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "1",
        f"{{{UNKNOWN}}}",
        f"urn:uuid:{UNKNOWN}",
        UNKNOWN.replace("-", ""),
        f"{UNKNOWN}\n",
        UNKNOWN.replace("1", "\uff11"),
        "1234567-81234-4234-8234-123456789abc",
        7,
    ],
)
async def test_id_in_any_other_spelling_is_422(tmp_path: Path, field: str, spelling: Any) -> None:
    async with server(tmp_path) as at:
        body = told(await at.post(P, message(**{field: spelling})), 422, "invalid_input")
        assert body["detail"][0]["loc"] == ["body", field]


@requirement("S000-usermessage-required", "S000-usermessage-items")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": []},
        {"items": None},
        {"items": "hello"},
        {"items": [{"content_type": "text"}]},
        {"items": [{"content_type": "text", "content": " \n"}]},
        {"items": [{"content_type": "video", "content": "x"}]},
        {"items": [{"content_type": "image", "content": "https://example.com/x.png"}]},
        {"items": [{"content_type": "image", "content": "data:image/png;base64,AAAA"}]},
        {"items": [{"content_type": "text", "content": "x"}] * 33},
        message(on_busy="shout"),
        message(user_context={"a": {"b": "c"}}),
        None,
        [],
        "x",
    ],
)
async def test_message_without_usable_items_is_422(tmp_path: Path, body: Any) -> None:
    async with server(tmp_path) as at:
        for path in (P, f"{P}/sse"):
            told(await at.post(path, body), 422, "invalid_input")
        assert at.place.model.requests == []


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b'{"items": [], "items": []}', {}, 422),
        (b"{", {}, 422),
        (b"\xff", {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Encoding": "gzip"}, 415),
        (b"x" * (12 * 1024 * 1024 + 1), {}, 413),
    ],
)
async def test_body_that_cannot_be_read_says_why_in_the_same_shape(
    tmp_path: Path, content: bytes, headers: dict[str, str], status: int
) -> None:
    async with server(tmp_path) as at:
        given = {"Content-Type": "application/json", "Authorization": "alice", **headers}
        response = await at.http.post(P, content=content, headers=given)
        assert response.status_code == status
        assert {"detail", "code", "correlation_id"} <= response.json().keys()


async def test_cursor_that_no_listing_gave_is_refused_as_described(tmp_path: Path) -> None:
    async with server(tmp_path) as at:
        refused = await at.get(f"{P}/sessions/{UNKNOWN}?cursor=")
        document = (await at.get(f"{P}/openapi.json", None)).json()
    told(refused, 400, "invalid_cursor")
    assert "400" in document["paths"][f"{P}/sessions/{{session_id}}"]["get"]["responses"]


@pytest.mark.parametrize("path", ["tasks/X", "sessions/X", "requests/X"])
async def test_malformed_id_in_a_path_is_422_and_an_unknown_one_404(
    tmp_path: Path, path: str
) -> None:
    async with server(tmp_path) as at:
        for wrong in (UNKNOWN + "0", "1", "%2e%2e"):
            response = await at.get(f"{P}/{path.replace('X', wrong)}")
            told(response, 422, "invalid_input")
        response = await at.get(f"{P}/{path.replace('X', UNKNOWN)}")
        assert response.status_code == 404
        assert UNKNOWN in response.json()["detail"]
        assert (await at.post(f"{P}/resume/{UNKNOWN}", {"action": "approve"})).status_code == 404
        assert (await at.post(f"{P}/requests/{UNKNOWN}/cancel")).status_code == 404


async def test_busy_task_is_409_and_says_so(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(("Mail-send", {"to": "bob"}))]) as at:
        paused = await at.ask()
        for path in (P, f"{P}/sse"):
            response = await at.post(path, message(task_id=paused["task_id"]))
            assert told(response, 409, "thread_busy")["detail"]


async def test_task_of_another_session_is_409_and_stays_where_it_is(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi")]) as at:
        reply = await at.ask()
        told(
            await at.post(P, message(task_id=reply["task_id"], session_id=UNKNOWN)), 409, "conflict"
        )
        stored = await at.place.stored(reply["task_id"])
        assert stored is not None and stored.session_id == reply["session_id"]


@requirement("S000-error-persistence")
async def test_store_that_fails_is_503_and_says_nothing_of_itself(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi"), says("ho")], settings=own_class(tmp_path)) as at:
        reply = await at.ask()
        (tmp_path / "outage").touch()
        for path, fields in ((P, {}), (f"{P}/sse", {}), (P, {"task_id": reply["task_id"]})):
            response = await at.post(path, message(**fields))
            told(response, 503, "store_unavailable")
            assert "10.0.0.7" not in response.text
            assert response.headers["Retry-After"]
        (tmp_path / "outage").unlink()
        assert (await at.ask("again", task_id=reply["task_id"]))["output"] == "ho"


@requirement("S000-error-persistence")
async def test_store_that_fails_in_the_middle_ends_the_stream_with_an_error(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    async with server(tmp_path, [[gate, *says("lost")], [gate, *says("lost")]]) as at:
        async with streaming(at, f"{P}/sse", message()) as live:
            waiting = asyncio.ensure_future(at.post(P, message()))
            await eventually(lambda: _asked(at), 2)
            _break(at.place.database)
            gate.set()
            await live.until(b"event: error")
            *_, (_, data) = frames(live.arrived.decode())
            assert data["code"] == "store_unavailable"
            assert data["task_id"] and data["session_id"] and data["request_id"]
            assert str(tmp_path) not in str(data)
            assert told(await waiting, 503, "store_unavailable")["request_id"]


async def _asked(at: Server) -> int:
    return len(at.place.model.requests)


def _break(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(5000)
    connection.execute("ALTER TABLE record RENAME TO lost")
    connection.close()


async def test_addresses_name_the_task_where_the_store_cannot_find_a_request(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {"to": "bob"})), says("done")]
    async with place(tmp_path, script, settings=own_class(tmp_path)) as at:
        async with serving(at) as before:
            paused = await before.ask()
        assert paused["approval_url"].endswith(f"&task_id={paused['task_id']}")
        async with serving(at) as after:
            reply = (await after.post(paused["approval_url"])).json()
            assert (reply["status"], reply["output"]) == ("Completed", "done")


@requirement("S000-error-corrupt-state-5xx")
async def test_damaged_task_is_500_and_the_others_work(tmp_path: Path) -> None:
    async with place(tmp_path, [says("one"), says("two"), says("three")]) as at:
        async with serving(at) as before:
            damaged, healthy = (await before.ask())["task_id"], (await before.ask())["task_id"]
        _damage(at.database, damaged)
        async with serving(at) as after:
            for path in (P, f"{P}/sse"):
                told(await after.post(path, message(task_id=damaged)), 500, "state_corrupt")
            told(await after.get(f"{P}/tasks/{damaged}"), 500, "state_corrupt")
            assert (await after.ask(task_id=healthy))["output"] == "three"


def _damage(database: Path, task_id: str) -> None:
    connection = apsw.Connection(str(database))
    of_task = "place >> 32 = (SELECT no FROM thread WHERE thread_id = ?)"
    [(place, body)] = connection.execute(
        f"SELECT place, body FROM record WHERE {of_task} ORDER BY place LIMIT 1", (task_id,)
    )
    flipped = bytes([body[0] ^ 1]) + body[1:]
    connection.execute("UPDATE record SET body = ? WHERE place = ?", (flipped, place))
    connection.close()


@pytest.mark.parametrize(("status", "code"), [(400, "llm_refused"), (401, "llm_refused")])
async def test_model_that_refuses_is_502_with_the_ids_and_a_failed_task(
    tmp_path: Path, status: int, code: str
) -> None:
    async with server(tmp_path, [ModelError("its own words", status=status)]) as at:
        body = told(await at.post(P, message()), 502, code)
        assert "its own words" not in str(body)
        assert body["status"] == "Failed"
        stored = await at.place.stored(body["task_id"])
        assert stored is not None
        assert (stored.status, stored.session_id) == ("Failed", body["session_id"])
        request = (await at.get(f"{P}/requests/{body['request_id']}")).json()
        assert (request["status"], request["code"]) == ("Failed", code)


async def test_model_that_takes_longer_than_a_run_may_is_504(tmp_path: Path) -> None:
    gate = asyncio.Event()
    more = "limits: {run_seconds: 0.05}"
    async with server(tmp_path, [[gate]], more=more) as at:
        told(await at.post(P, message()), 504, "run_timeout")
        gate.set()


@requirement("S000-error-timeout")
async def test_call_that_outlasts_the_wait_is_504_with_its_ids_and_its_run_goes_on(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    async with server(tmp_path, [[gate, *says("late")]], served={"request_wait": 0.05}) as at:
        body = told(await at.post(P, message()), 504, "still_running")
        path = f"{P}/requests/{body['request_id']}"
        running = (await at.get(path)).json()
        assert (running["status"], running["content"]) == ("Running", None)
        assert (running["task_id"], running["session_id"]) == (body["task_id"], body["session_id"])
        gate.set()
        await eventually(lambda: _output(at, path), "late")
        assert (await at.get(path)).json()["content"]["output"] == "late"


async def _output(at: Server, path: str) -> str | None:
    output: str | None = (await at.get(path)).json().get("output")
    return output


@pytest.mark.parametrize("key", ["", "k" * 300, "a b", "schl\xfcssel"])
async def test_unusable_idempotency_key_is_400(tmp_path: Path, key: str) -> None:
    async with server(tmp_path) as at:
        headers = {b"Idempotency-Key": key.encode("latin-1"), b"Authorization": b"alice"}
        response = await at.http.post(P, json=message(), headers=headers)
        told(response, 400, "malformed_request")
        assert at.place.model.requests == []


@requirement("S001-error-authorization-401")
async def test_no_route_serves_a_caller_without_a_token(tmp_path: Path) -> None:
    async with server(tmp_path) as at:
        for path in ("", "/sse", f"/resume/{UNKNOWN}", f"/requests/{UNKNOWN}/cancel"):
            response = await at.post(f"{P}{path}", message(), None)
            told(response, 401, "unauthenticated")
            assert response.headers["WWW-Authenticate"] == "Bearer"
        for path in ("tasks", "sessions", "requests"):
            told(await at.get(f"{P}/{path}/{UNKNOWN}", None), 401, "unauthenticated")
        told(await at.delete(f"{P}/tasks/{UNKNOWN}", None), 401, "unauthenticated")


Failure = Callable[[Server, Path], Awaitable[httpx.Response]]


async def _unknown_task(at: Server, _: Path) -> httpx.Response:
    return await at.post(P, message(task_id=UNKNOWN))


async def _without_token(at: Server, _: Path) -> httpx.Response:
    return await at.post(P, message(), None)


async def _without_items(at: Server, _: Path) -> httpx.Response:
    return await at.post(P, {"items": []})


async def _other_session(at: Server, _: Path) -> httpx.Response:
    reply = await at.ask()
    return await at.post(P, message(task_id=reply["task_id"], session_id=UNKNOWN))


async def _too_large(at: Server, _: Path) -> httpx.Response:
    return await _sent(at, b"x" * (12 * 1024 * 1024 + 1), "application/json")


async def _other_media(at: Server, _: Path) -> httpx.Response:
    return await _sent(at, b"{}", "text/plain")


async def _refused_by_the_model(at: Server, _: Path) -> httpx.Response:
    return await at.post(P, message())


async def _without_store(at: Server, folder: Path) -> httpx.Response:
    (folder / "outage").touch()
    return await at.post(P, message())


async def _sent(at: Server, content: bytes, media: str) -> httpx.Response:
    headers = {"Content-Type": media, "Authorization": "alice"}
    return await at.http.post(P, content=content, headers=headers)


REFUSED = ModelError("10.0.0.7 said no", status=400)
# Each failure: how it comes about, with which script, and what a client is told.
FAILURES: list[tuple[Failure, list[Any], int, str]] = [
    (_without_token, [], 401, "unauthenticated"),
    (_unknown_task, [], 404, "thread_not_found"),
    (_other_session, [says("hi")], 409, "conflict"),
    (_too_large, [], 413, "too_large"),
    (_other_media, [], 415, "unsupported_media"),
    (_without_items, [], 422, "invalid_input"),
    (_refused_by_the_model, [REFUSED], 502, "llm_refused"),
    (_without_store, [], 503, "store_unavailable"),
]
NAMED = pytest.mark.parametrize(
    ("failure", "script", "status", "code"),
    FAILURES,
    ids=[failure.__name__ for failure, *_ in FAILURES],
)


@NAMED
@requirement("S001-handler-status-codes")
async def test_failure_has_its_own_status_which_is_documented(
    tmp_path: Path, failure: Failure, script: list[Any], status: int, code: str
) -> None:
    async with server(tmp_path, script, settings=own_class(tmp_path)) as at:
        told(await failure(at, tmp_path), status, code)
    assert [other for _, _, other, _ in FAILURES].count(status) == 1
    (row,) = re.findall(r"^\| errors \|.*$", MIGRATING.read_text(), re.MULTILINE)
    assert str(status) in re.findall(r"\b\d{3}\b", row.split("|")[3])


@requirement("S000-error-messages")
@pytest.mark.parametrize(
    ("failure", "script", "words", "reason"),
    [
        (_refused_by_the_model, [REFUSED], "provider answered 400", "llm_refused"),
        (_without_store, [], "store", "failed with OSError"),
    ],
    ids=["model", "store"],
)
async def test_failure_says_what_is_wrong_and_its_id_finds_the_reason_in_the_logs(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    failure: Failure,
    script: list[Any],
    words: str,
    reason: str,
) -> None:
    async with server(tmp_path, script, settings=own_class(tmp_path)) as at:
        body = (await failure(at, tmp_path)).json()
    assert words in body["detail"].lower()
    assert "10.0.0.7" not in str(body)
    # A run that failed has an id of its own, since it can fail after its request has ended.
    sought = body.get("run_correlation_id") or body["correlation_id"]
    found = [vars(record) for record in caplog.records if sought in vars(record).values()]
    assert any(reason in str(record) for record in found), found
