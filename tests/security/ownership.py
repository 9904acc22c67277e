"""Every route of every API, and what it answers to whom: one table.

    python -O -m tests.security.ownership

asks each route for the caller's own, for another user's, for what never existed and for what cannot
exist, as a user, an approver, an operator and without a proof, and prints where an answer is not
the table's. It raises nothing and asserts nothing, so that `-O` changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
from starlette.routing import WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sk_agents.app import create_app
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import Unauthenticated
from sk_agents.http.front import TealApp
from sk_agents.http.operations import Operation, OperationRoute
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import Served, id_of, listening, write_agent
from tests.patience import seconds
from tests.surfaces.sk_server import CHAT, HELLO, MODEL_URL

TEAL, SK = "/teal/0.1", "/Helper/0.1"
CHAT_ID = "/chats/{chat_id}"
INTERACTION = f"{CHAT_ID}/interactions/{{interaction_id}}"
RESUMES = (f"{TEAL}/resume", f"{TEAL}/tealagents/v1alpha1/resume")

# `open`: the same for everyone, nothing of a user's is in it. `callers`: about the caller alone.
# `begins`: makes something of the caller's own, whatever others have of that name.
# `chats`: to all but its owner it is as if it did not exist. `teal`: others are refused with 401.
# `operators`: for them alone. `sessions`: each user has their own of any name.
Kind = Literal["open", "callers", "begins", "chats", "teal", "sessions", "operators"]
TABLE: Mapping[Kind, tuple[str, ...]] = {
    "open": (
        *("GET /openapi.json", "GET /sign-in"),
        *("GET /", "HEAD /", "GET /docs", "HEAD /docs"),
        *("GET /assets/{name}", "HEAD /assets/{name}"),
        *("GET /frames/artifact", "HEAD /frames/artifact"),
        *("GET /health/live", "HEAD /health/live", "GET /health/ready", "HEAD /health/ready"),
        "GET /health/stream",
        *("GET /sign-ins/open", "POST /sign-ins/open", "GET /sign-ins/callback"),
        "GET /sign-ins/client.json",
        *(
            f"GET {prefix}/{page}"
            for prefix in (TEAL, SK)
            for page in ("health", "health/live", "openapi.json", "docs")
        ),
    ),
    "operators": (
        *("GET /metrics", "GET /audit", "GET /audit/checkpoint", "GET /feedback", "GET /sessions"),
    ),
    "callers": (
        *("GET /agents", "GET /chats", "GET /approvals", "GET /grants", "GET /usage", "GET /me"),
        *("GET /tags", "GET /budgets"),
        *("POST /chats", "POST /chats/import", "POST /chat"),
        *("GET /prompts", "POST /prompts/fill", "GET /resources", "POST /resources/read"),
        *("GET /sign-ins", "POST /sign-ins", "DELETE /sign-ins/{server}"),
        *(f"POST {TEAL}", f"POST {TEAL}/sse", f"POST {SK}", f"POST {SK}/sse"),
        # The link is the right to read.
        *("GET /shared/{share_id}", "POST /shared/{share_id}/copy"),
        f"WEBSOCKET {SK}/stream",
    ),
    "begins": (f"POST {CHAT_ID}/interactions",),
    "chats": (
        *(f"{method} {CHAT_ID}" for method in ("GET", "PATCH", "DELETE")),
        *(f"GET {CHAT_ID}/{page}" for page in ("events", "passages", "branches", "export")),
        *(f"{method} {CHAT_ID}/shares" for method in ("GET", "POST")),
        "DELETE /shared/{share_id}",
        f"POST {CHAT_ID}/branch",
        *(f"GET {INTERACTION}", f"GET {INTERACTION}/events", "GET /interactions/{interaction_id}"),
        *(f"{method} {INTERACTION}/feedback" for method in ("PUT", "DELETE")),
        f"GET {INTERACTION}/attachments/{{call_id}}/{{number}}",
        *(
            f"POST {INTERACTION}/{do}"
            for do in ("approve", "cancel", "steer", "edit", "regenerate")
        ),
        *("GET /approvals/{approval_id}", "POST /approvals/{approval_id}"),
        "DELETE /approvals/{approval_id}/vote",
        "DELETE /grants/{grant_id}",
    ),
    "teal": (
        *(f"{method} {TEAL}/tasks/{{task_id}}" for method in ("GET", "DELETE")),
        f"GET {TEAL}/tasks/{{task_id}}/sse",
        f"GET {TEAL}/requests/{{request_id}}",
        f"GET {TEAL}/requests/{{request_id}}/sse",
        f"POST {TEAL}/requests/{{request_id}}/cancel",
        *(f"POST {path}/{{request_id}}" for path in RESUMES),
        *(f"POST {path}/{{request_id}}/sse" for path in RESUMES),
    ),
    "sessions": (f"GET {TEAL}/sessions/{{session_id}}",),
}
KINDS: Mapping[str, Kind] = {route: kind for kind, routes in TABLE.items() for route in routes}

OWNER = "ada_lovelace"
OTHERS = {"user": "bob", "approver": "vera", "operator": "oscar"}
SEND: Turn = calls(("Mail-send", {"to": "canary"}))
POST: Turn = calls(("Mail-post", {"to": "finance"}))
DRAW: Turn = calls(("Mail-draw", {"name": "canary.png"}))
SCRIPT: list[Turn] = [SEND, says("canary"), DRAW, SEND, POST, SEND, *[says("canary")] * 40]
# What waits for approvers, two of them: one alone changes nothing.
RULE = {"tool": "Mail-post", "then": "ask", "approvers": {"roles": ["approver"]}, "quorum": 2}
MALFORMED = quote("💥 ; drop", safe="")
NO_UUID = "00000000-0000-4000-8000-000000000000"
UNKNOWN = {
    "chat_id": "none",
    "interaction_id": f"int_{'0' * 32}",
    "approval_id": f"approval_{NO_UUID}",
    "grant_id": f"grant_{NO_UUID}",
    "name": "none",
    "server": "none",
    "share_id": "0" * 64,
    "call_id": "none",
    "number": "0",
    **dict.fromkeys(("task_id", "session_id", "request_id"), NO_UUID),
}
BODIES: Mapping[str, Any] = {
    f"POST {TEAL}": {"items": [{"content_type": "text", "content": "hi"}]},
    f"POST {TEAL}/sse": {"items": [{"content_type": "text", "content": "hi"}]},
    f"POST {SK}": HELLO,
    f"POST {SK}/sse": HELLO,
    **{f"POST {path}/{{request_id}}": {"action": "approve"} for path in RESUMES},
    **{f"POST {path}/{{request_id}}/sse": {"action": "approve"} for path in RESUMES},
}
CHANGING = {"date", "x-correlation-id"}


class RoleAuthorizer(RequestAuthorizer):
    """As if the header were a proof; the names of `OTHERS` have the roles there."""

    async def authorize_request(self, auth_header: str) -> Principal:
        if not auth_header:
            raise Unauthenticated
        roles = {role for role, name in OTHERS.items() if name == auth_header} | {"user"}
        return Principal(auth_header, roles=frozenset(roles))


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a caller can see of it, except what changes with each request."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(slots=True)
class Findings:
    mistakes: list[str] = field(default_factory=list)
    asked: int = 0

    def expect(self, holds: bool, route: str, who: str, answer: Answer | int) -> None:
        self.asked += 1
        if not holds:
            seen = answer if isinstance(answer, int) else f"{answer.status} {answer.body[:200]}"
            self.mistakes.append(f"{route} as {who}: {seen}")


def routes_of(app: TealApp) -> dict[str, Operation | None]:
    """Every route of an application, by its method and path."""
    found: dict[str, Operation | None] = {}
    for route in app.router.routes:
        path: str = getattr(route, "path", repr(route))
        if isinstance(route, OperationRoute):
            found[f"{route.operation.method} {path}"] = route.operation
        elif isinstance(route, WebSocketRoute):
            found[f"WEBSOCKET {path}"] = None
        else:
            found[f"GET {path}"] = None
    return found


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """A server of every API, for callers who prove who they are."""
    async with ScriptedModelServer(SCRIPT) as model:
        teal = write_agent(
            folder / "teal", model.base_url, name="teal", approvals={"rules": [RULE]}
        )
        stateless = folder / "sk.yaml"
        stateless.write_text(CHAT.replace(MODEL_URL, model.base_url))
        settings = Settings(store=f"sqlite:///{folder}/c.sqlite", metrics_enabled=True)
        app = create_app(settings, load_agent_files([teal, stateless]), authorizer=RoleAuthorizer())
        async with listening(app) as url:
            async with httpx.AsyncClient(base_url=url, timeout=seconds(20)) as client:
                yield Served(url, client, app, model)


async def owned_ids(served: Served) -> tuple[dict[str, str], dict[str, str]]:
    """Of the owner: a chat with a standing approval, one that waits, a task that waits; and what
    is another in a chat that waits for approvers."""
    headers = {"Authorization": OWNER}
    asked = await served.say_until("approval_required", "canary", chat="had", headers=headers)
    await served.decide(asked[-1].data, chat="had", headers=headers, remember="thread")
    await served.follow(id_of(asked), chat="had", headers=headers)
    [grant] = (await served.get("/grants", headers=headers))["grants"]
    shared = await served.client.post("/chats/had/shares", json={}, headers=headers)
    waits = await served.say_until("approval_required", "canary", chat="keep", headers=headers)
    review = await served.say_until("approval_required", "canary", chat="paid", headers=headers)
    message = {"items": [{"content_type": "text", "content": "canary"}]}
    task = (await served.client.post(TEAL, json=message, headers=headers)).json()
    own = {
        "chat_id": "keep",
        "interaction_id": id_of(waits),
        "approval_id": waits[-1].data["approval_id"],
        "grant_id": grant["grant_id"],
        "share_id": shared.json()["share_id"],
        "name": "none",
        "server": "none",
        "call_id": next(event.data["id"] for event in waits if event.name == "tool_result"),
        "number": "0",
        **{name: task[name] for name in ("task_id", "session_id", "request_id")},
    }
    approval_id = review[-1].data["approval_id"]
    reviewed = {"chat_id": "paid", "interaction_id": id_of(review), "approval_id": approval_id}
    return own, {**own, **reviewed}


class Asker:
    def __init__(self, served: Served, routes: Mapping[str, Operation | None]) -> None:
        self._served = served
        self._routes = routes

    async def ask(self, route: str, ids: Mapping[str, str], who: str | None) -> Answer:
        method, _, template = route.partition(" ")
        path = template.format_map(ids)
        headers = {"Authorization": who} if who is not None else {}
        if method == "WEBSOCKET":
            return await self._websocket(path, headers)
        body = None if method in ("GET", "HEAD", "DELETE") else self._body(route, ids)
        client = self._served.client
        async with client.stream(method, path, json=body, headers=headers) as answer:
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            text = "" if is_stream else (await answer.aread()).decode(errors="replace")
        kept = {name: value for name, value in answer.headers.items() if name not in CHANGING}
        return Answer(answer.status_code, kept, _without_ids(text, answer))

    def _body(self, route: str, ids: Mapping[str, str]) -> Any:
        operation = self._routes[route]
        examples = operation.examples.values() if operation is not None else ()
        body: Any = BODIES.get(route, next(iter(examples), {}))
        named = [name for name in ("approval_id", "interaction_id") if name in body]
        return {**body, **{name: ids[name] for name in named}} if named else body

    async def _websocket(self, path: str, headers: Mapping[str, str]) -> Answer:
        address = self._served.url.replace("http", "ws", 1)
        async with connect(f"{address}{path}", additional_headers=headers) as connection:
            try:
                await connection.send('{"chat_history": [{"role": "user", "content": "hi"}]}')
                async with asyncio.timeout(seconds(20)):
                    while True:
                        await connection.recv()
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd is not None else 0
        return Answer({1000: 200, 1008: 401}.get(code, code), {}, "")


def _without_ids(text: str, answer: httpx.Response) -> str:
    return text.replace(answer.headers["x-correlation-id"], "")


async def findings(folder: Path) -> Findings:
    """Where the server's answers differ from the table, and how many were looked at."""
    found = Findings()
    async with serving(folder) as served:
        app = served.app
        routes = routes_of(app) if isinstance(app, TealApp) else {}
        found.mistakes += unlisted(routes)
        asker = Asker(served, routes)
        ids, reviewed = await owned_ids(served)
        # What makes something of the caller's own comes last: it would be found by the others.
        known = sorted(routes.keys() & KINDS.keys(), key=lambda route: KINDS[route] == "begins")
        before = await owners_view(asker, ids)
        for route in known:
            await as_others(found, asker, route, ids)
        found.expect(await owners_view(asker, ids) == before, "all", "the owner afterwards", 0)
        for route in sorted(known, key=_harm):
            if KINDS[route] == "chats":
                await as_approver(found, asker, route, reviewed)
        for route in sorted(known, key=_harm):
            await as_owner(found, asker, route, ids)
    return found


def unlisted(routes: Iterable[str]) -> list[str]:
    """Routes that the table does not know, and rows that no route has."""
    known = set(routes)
    return [
        *(f"{route} is not in the table: say whose data it serves" for route in known - set(KINDS)),
        *(f"{route} is in the table alone" for route in set(KINDS) - known),
    ]


async def owners_view(asker: Asker, ids: Mapping[str, str]) -> list[str]:
    routes = (f"GET {CHAT_ID}", "GET /approvals", "GET /grants", f"GET {TEAL}/tasks/{{task_id}}")
    return [(await asker.ask(route, ids, OWNER)).body for route in routes]


async def as_others(found: Findings, asker: Asker, route: str, ids: Mapping[str, str]) -> None:
    kind = KINDS[route]
    if kind == "open":
        answer = await asker.ask(route, ids, None)
        found.expect(answer.status in (200, 404), route, "no user", answer)
        found.expect("canary" not in answer.body, route, "no user", answer)
        return
    nobody = await asker.ask(route, ids, None)
    found.expect(nobody.status == 401, route, "no user", nobody)
    if kind == "operators":
        for role, who in OTHERS.items():
            answer = await asker.ask(route, ids, who)
            allowed = (200, 404) if role == "operator" else (403,)
            found.expect(answer.status in allowed, route, role, answer)
            found.expect("canary" not in answer.body, route, role, answer)
        return
    for role, who in OTHERS.items():
        theirs = await asker.ask(route, ids, who)
        is_clean = "canary" not in theirs.body and "lovelace" not in theirs.body
        found.expect(is_clean or kind == "callers", route, f"{role}, another's", theirs)
        if kind in ("callers", "begins"):
            found.expect(_is_let_in(theirs), route, role, theirs)
            continue
        unknown = await asker.ask(route, UNKNOWN, who)
        found.expect(unknown.status == 404, route, f"{role}, unknown", unknown)
        if kind == "chats":
            found.expect(theirs == unknown, route, f"{role}, another's", theirs)
        else:
            status = 401 if kind == "teal" else 404
            found.expect(theirs.status == status, route, f"{role}, another's", theirs)
    if kind != "callers":
        malformed = await asker.ask(route, dict.fromkeys(UNKNOWN, MALFORMED), OTHERS["user"])
        found.expect(malformed.status in (404, 422), route, "user, malformed", malformed)


async def as_approver(found: Findings, asker: Asker, route: str, ids: Mapping[str, str]) -> None:
    """What waits for them is theirs to see and to decide, and nothing else of its chat."""
    answer = await asker.ask(route, ids, OTHERS["approver"])
    if "/approvals/" in route:
        found.expect(_is_let_in(answer), route, "its approver", answer)
        found.expect("canary" not in answer.body, route, "its approver", answer)
        stranger = await asker.ask(route, ids, OTHERS["user"])
        found.expect(stranger.status == 404, route, "no approver", stranger)
    else:
        unknown = await asker.ask(route, UNKNOWN, OTHERS["approver"])
        found.expect(answer == unknown, route, "its approver", answer)


async def as_owner(found: Findings, asker: Asker, route: str, ids: Mapping[str, str]) -> None:
    answer = await asker.ask(route, ids, OWNER)
    is_own = KINDS[route] not in ("open", "operators")
    found.expect(not is_own or _is_let_in(answer), route, "its owner", answer)


def _is_let_in(answer: Answer) -> bool:
    """Served, or refused for another reason than whose it is."""
    return answer.status < 500 and answer.status not in (401, 403, 404)


def _harm(route: str) -> tuple[bool, bool, int, str]:
    """Reading first, removing last: the owner's own requests change what the next one finds."""
    removes = route.startswith("DELETE")
    # A part before the whole that it belongs to.
    depth = -route.count("/") if removes else 0
    return removes, not route.startswith(("GET", "HEAD")), depth, route


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        result = asyncio.run(findings(Path(place)))
    sys.stdout.write("\n".join([*result.mistakes, f"{result.asked} answers"]) + "\n")
    sys.exit(bool(result.mistakes))
