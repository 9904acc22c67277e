"""Every operation of every table: whom it lets in, and that another user's data is not served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from sk_agents.http.front import TealApp
from sk_agents.http.operations import Operation
from sk_agents.testing.scripted_model import says
from tests.chats.proven import ADA, BOB, ProvenAuthorizer
from tests.chats.serving import Served, serving
from tests.chats.test_users import SEND, waiting_chat

TEAL = "/helper/0.1"
# These say nothing about users.
OPEN = (
    "/",
    "/docs",
    "/assets/{name}",
    "/metrics",
    "/sign-in",
    "/health/",
    f"{TEAL}/health",
    f"{TEAL}/docs",
    f"{TEAL}/openapi.json",
)
# Bob says something in a chat of his own, which has the same name as Ada's.
OWN = "/chats/{chat_id}/interactions"
REFUSED = (401, 404)
TEAL_IDS = ("task_id", "session_id", "request_id")
NO_UUID = "00000000-0000-0000-0000-000000000000"


def operations(served: Served) -> list[Operation]:
    assert isinstance(served.app, TealApp)
    return served.app.operations


async def ask(
    served: Served, operation: Operation, ids: dict[str, str], headers: dict[str, str]
) -> httpx.Response:
    """A parameter that is not in `ids` is new here: say whose it is."""
    path = operation.path.format_map(ids)
    body: Any = next(iter(operation.examples.values()), {})
    if "approval_id" in body:
        body = {**body, "approval_id": ids["approval_id"]}
    if operation.method in ("GET", "DELETE", "HEAD"):
        body = None
    return await served.client.request(operation.method, path, json=body, headers=headers)


async def test_who_is_not_known_is_let_into_nothing_but_what_is_for_everyone(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, authorizer=ProvenAuthorizer()) as served:
        for operation in operations(served):
            names = ("chat_id", "interaction_id", "approval_id", "grant_id", "name")
            ids = {**dict.fromkeys(names, "x"), **dict.fromkeys(TEAL_IDS, NO_UUID)}
            if operation.path == "/health/stream":
                continue
            answer = await ask(served, operation, ids, {})
            is_open = any(
                operation.path == one or (len(one) > 1 and operation.path.startswith(one))
                for one in OPEN
            )
            assert (answer.status_code == 401) is not is_open, (operation.path, answer.text)


async def test_another_users_data_is_served_by_no_operation(tmp_path: Path) -> None:
    script = [SEND, says("x"), SEND, says("canary"), says("for Bob")]
    async with serving(tmp_path, script, authorizer=ProvenAuthorizer()) as served:
        interaction, approval, grant = await waiting_chat(served)
        hello = {"items": [{"content_type": "text", "content": "canary"}]}
        teal = (await served.client.post(TEAL, json=hello, headers=ADA)).json()
        ids = {
            "chat_id": "own",
            "interaction_id": interaction,
            "approval_id": approval,
            "grant_id": grant,
            "name": "none",
            **{name: teal[name] for name in TEAL_IDS},
        }
        before = await served.get("/chats/own", headers=ADA)
        asked = [one for one in operations(served) if "_id}" in one.path]
        for operation in asked:
            answer = await ask(served, operation, ids, BOB)
            where = f"{operation.method} {operation.path}: {answer.text}"
            if operation.path == OWN:
                assert answer.status_code == 200, where
            else:
                assert answer.status_code in REFUSED, where
            assert "canary" not in answer.text and "lovelace" not in answer.text, where
            if operation.path == OWN:
                assert (await served.client.delete("/chats/own", headers=BOB)).status_code == 204
        assert await served.get("/chats/own", headers=ADA) == before
    assert len(asked) > 20
