"""Several callers of two servers on one store, who send requests at random: a generator that holds
what it sees against who owns what.

    python -m tests.security.callers --seed 7 --steps 2000

Each request is to a route of the ownership table, with ids that are the caller's own, another's,
unknown or malformed, and headers that pretend to be somebody. All that a person says has a mark
with the person's name in it. Checked after each request:

- the answer has no mark of another person, unless that one shared it or asked an approver,
- another's id is answered as one that never was,
- nothing of another person has changed,
- no server has failed.

At the end neither the log nor the store, which is encrypted, has any of these marks. A history
follows from its seed, but for the ids that the servers choose.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import httpx

from sk_agents.authorization.access_keys import KeysFile
from tests.cli.house import Served, serving
from tests.patience import seconds
from tests.security import ownership
from tests.security.ownership import MALFORMED, TABLE, UNKNOWN

AGENT = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: teal
version: 0.1
spec:
  agent:
    name: default
    model: scripted/marks.yaml
    system_prompt: You help.
    plugins: [Mail]
    approvals:
      rules:
        - tool: Mail-pay
          then: ask
          approvers: {groups: [finance]}
          not_requester: true
          quorum: 2
"""
STATELESS = """
apiVersion: skagents/v1
kind: Chat
service_name: Helper
version: 0.1
input_type: BaseInput
spec:
  agent: {name: default, model: scripted/marks.yaml, system_prompt: You help.}
"""
SCRIPT = r"""
rules:
  - match: '^send (?P<to>\S+)'
    turns:
      - calls: [{tool: Mail-send, arguments: {to: "{to}"}}]
      - text: "Sent: {result} for {user}."
  - match: '^pay (?P<to>\S+)'
    turns:
      - calls: [{tool: Mail-pay, arguments: {to: "{to}"}}]
      - text: "Paid: {result} for {user}."
  - match: '^draw (?P<to>\S+)'
    turns:
      - calls: [{tool: Mail-draw, arguments: {to: "{to}"}}]
      - text: "Drawn."
turns:
  - text: "You said {user}."
"""
PLUGINS = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolFile, kernel_function, tool


class Mail(BasePlugin):
    @kernel_function(description="Send a mail.")
    def send(self, to: str) -> str:
        return f"sent to {to}"

    @kernel_function(description="Pay a bill.")
    def pay(self, to: str) -> str:
        return f"paid to {to}"

    @tool(effect="read_only")
    @kernel_function(description="Draw.")
    def draw(self, to: str) -> list[object]:
        return ["Here.", ToolFile(to.encode(), "text/plain", f"{to}.txt")]
"""
# Who has which roles and groups.
PEOPLE: Mapping[str, tuple[str, str]] = {
    "ada": ("", "finance"),
    "bob": ("", ""),
    "vera": ("", "finance"),
    "victor": ("", "finance"),
    "oscar": ("operator", ""),
}
APPROVERS = {"ada", "vera", "victor"}
MARK = re.compile(r"(said|args|title|note|tag)-([a-z]+)-[0-9]+")
# Marks that a person who may decide about a call sees of it; that those who run the server read.
OF_CALLS, OF_NOTES = {"args"}, {"note"}
ID_FIELDS = frozenset(UNKNOWN) - {"chat_id", "name", "server", "number"}
# What an `id` or `run_id` is the id of.
PREFIXES = {"int_": "interaction_id", "call_": "call_id", "grant_": "grant_id"}
ROUTES = [
    route
    for kind, routes in TABLE.items()
    for route in routes
    if kind != "open" and not route.startswith("WEBSOCKET")
]
LISTS = (
    *("GET /chats", "GET /approvals", "GET /grants", "GET /feedback", "GET /usage", "GET /budgets"),
    *("GET /chats/{chat_id}/passages", "GET /audit", "GET /sessions"),
)
# What makes something to be asked about comes more often.
OFTEN = [
    *["POST /chats/{chat_id}/interactions"] * 25,
    *["POST /approvals/{approval_id}"] * 15,
    *["POST /chats/{chat_id}/interactions/{interaction_id}/approve"] * 5,
    *["POST /chats/{chat_id}/shares", f"POST {ownership.TEAL}"] * 5,
    *(f"POST {path}/{{request_id}}{end}" for path in ownership.RESUMES for end in ("", "/sse") * 4),
    *LISTS,
    *["GET /shared/{share_id}", "POST /shared/{share_id}/copy"] * 4,
]
ENDLESS = "GET /chats/{chat_id}/events"
PRETENDED = (
    *(
        "X-User-Id",
        "X-Forwarded-User",
        "X-Remote-User",
        "X-Forwarded-Email",
        "X-MS-CLIENT-PRINCIPAL",
    ),
    *("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix", "X-HTTP-Method-Override", "Cookie"),
)


@dataclass(slots=True)
class Person:
    name: str
    key: str
    # What belongs together, by the names of the fields: ids of a chat, of what was said in it and
    # of what was asked about.
    ids: list[dict[str, str]] = field(default_factory=list)
    # Of others, for they were shared.
    may_see: set[str] = field(default_factory=set)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, slots=True)
class Request:
    who: Person
    route: str
    ids: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]
    query: str = ""

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2].format_map(self.ids)

    @property
    def used(self) -> set[str]:
        """The ids that the request names; a chat's is a name, which each user may give."""
        sent = self.path + json.dumps(self.body)
        return {id for name, id in self.ids.items() if name in ID_FIELDS and id in sent}

    def with_ids(self, instead: Mapping[str, str]) -> Request:
        ids = {name: instead.get(id, id) for name, id in self.ids.items()}
        body = self.body
        if isinstance(body, dict):
            body = {name: instead.get(str(value), value) for name, value in body.items()}
        return replace(self, ids=ids, body=body)


@dataclass(slots=True)
class Histories:
    servers: list[Served]
    people: list[Person]
    chance: random.Random
    client: httpx.Client
    # Whether Teal's own API hides what belongs to others, too.
    hides: bool
    mistakes: list[str] = field(default_factory=list)
    asked: int = 0
    owner_of: dict[str, str] = field(default_factory=dict)
    # What each link showed when it was made; those that lead nowhere any more have nothing.
    links: dict[str, set[str]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    cursors: list[str] = field(default_factory=lambda: ["1", "0"])
    pages: list[str] = field(default_factory=lambda: ["none"])
    _marks: int = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        who = self.chance.choice(self.people)
        route = self.chance.choice([*ROUTES, *OFTEN])
        request = self._request(who, route)
        others = [person for person in self.people if person is not who]
        watched = self.chance.choice(others)
        before = self._view(watched)
        answer = self._send(request)
        self._check(request, answer)
        if not self._may_concern_others(request):
            after = self._view(watched)
            if before != after:
                changed = {
                    path: (before[path], after[path])
                    for path in before
                    if before[path] != after[path]
                }
                self._mistake(request, answer, f"{watched.name} had and has {changed}")
        self._learn(request, answer)

    def mark(self, kind: str, who: Person) -> str:
        self._marks += 1
        return f"{kind}-{who.name}-{self._marks}"

    def _request(self, who: Person, route: str) -> Request:
        ids = self._ids(who, set(re.findall(r"\{(\w+)\}", route)))
        headers = dict(who.headers)
        if self.chance.random() < 0.2:
            other = self.chance.choice(self.people).name
            headers[self.chance.choice(PRETENDED)] = self.chance.choice([other, "DELETE", "/audit"])
        if self.chance.random() < 0.2:
            headers["Idempotency-Key"] = self._key()
        if self.chance.random() < 0.2:
            headers["Last-Event-ID"] = self.chance.choice(self.cursors)
        query = self._query() if route in LISTS else ""
        return Request(who, route, ids, self._body(who, route, ids), headers, query)

    def _query(self) -> str:
        """A page that goes on where somebody's ended, and what somebody has said."""
        asked = {
            "limit": "1",
            "cursor": self.chance.choice(self.pages),
            "q": f"-{self.chance.choice(self.people).name}-",
            "all": "true",
        }
        return "?" + urlencode({name: asked[name] for name in asked if self.chance.random() < 0.6})

    def _key(self) -> str:
        self.keys.append(f"key-{len(self.keys)}")
        return self.chance.choice(self.keys[-5:])

    def _ids(self, who: Person, needed: set[str]) -> dict[str, str]:
        """One for each field: of the caller's own or of another's, some of them not."""
        needed |= {"approval_id", "interaction_id"} if self.chance.random() < 0.3 else set()
        others = [person for person in self.people if person is not who]
        owner = who if self.chance.random() < 0.6 else self.chance.choice(others)
        # The same names of chats for all: each means another one of each.
        ids = {**UNKNOWN, "chat_id": self.chance.choice("abcdef")}
        fitting = [one for one in owner.ids if needed <= one.keys()] or owner.ids
        if fitting:
            ids |= self.chance.choice(fitting[-8:])
        for name in ids:
            if self.chance.random() < 0.06:
                stray = self.chance.choice([UNKNOWN, dict.fromkeys(ids, MALFORMED), *who.ids[-3:]])
                ids[name] = stray.get(name, ids[name])
        return ids

    def _body(self, who: Person, route: str, ids: Mapping[str, str]) -> Any:
        said = self.mark("said", who)
        verb = self.chance.choice(["send", "pay", "draw", "hello"])
        text = f"{verb} {self.mark('args', who)} {said}"
        anyone = self.chance.choice(self.people)
        decided = {"approved": self.chance.random() < 0.7}
        bodies: dict[str, Any] = {
            "/interactions": {"user_message": text},
            "/edit": {"new_user_message": text},
            "/steer": {"user_message": text},
            "/approve": {"approval_id": ids["approval_id"], **decided},
            "/approvals/{approval_id}": decided,
            "/shares": {},
            "/branch": {"interaction_id": ids["interaction_id"]},
            "/feedback": {"rating": "up", "note": self.mark("note", who)},
            "/chats": {"title": self.mark("title", who)},
            "/chats/{chat_id}": self.chance.choice(
                [
                    {"title": self.mark("title", who)},
                    {"tags": [self.mark("tag", who)]},
                    {"place": self.chance.choice(["bin", "list", "archive"])},
                ]
            ),
            "/chat": {"message": text, "thread_id": anyone.name, "session_id": anyone.name},
            ownership.TEAL: self._message(text, ids),
            f"{ownership.TEAL}/sse": self._message(text, ids),
            ownership.SK: {"chat_history": [{"role": "user", "content": text}], "session_id": "s"},
            "/resume/{request_id}": {"action": self.chance.choice(["approve", "reject"])},
        }
        ends = [end for end in bodies if route.removesuffix("/sse").endswith(end)]
        return bodies[max(ends, key=len)] if ends else {}

    def _message(self, text: str, ids: Mapping[str, str]) -> dict[str, Any]:
        body: dict[str, Any] = {"items": [{"content_type": "text", "content": text}]}
        for name in ("task_id", "session_id"):
            if self.chance.random() < 0.3:
                body[name] = ids[name]
        return body

    def _send(self, request: Request) -> httpx.Response:
        self.asked += 1
        server = self.chance.choice(self.servers)
        body = None if request.method in ("GET", "HEAD", "DELETE") else request.body
        with self.client.stream(
            request.method,
            server.url + request.path + request.query,
            json=body,
            headers=dict(request.headers),
        ) as answer:
            pieces = b""
            # A chat's own stream has no end.
            is_endless = request.route == ENDLESS and answer.status_code == 200
            for piece in () if is_endless else answer.iter_bytes():
                pieces += piece
                if b"event: approval_required" in pieces:
                    break
        return httpx.Response(answer.status_code, headers=answer.headers, content=pieces)

    def _check(self, request: Request, answer: httpx.Response) -> None:
        if answer.status_code >= 500 and "stream" not in request.path:
            self._mistake(request, answer, "the server failed")
        foreign = {mark for mark in _marks(answer) if mark.split("-")[1] != request.who.name}
        if wrong := foreign - request.who.may_see - self._shown(request, foreign):
            self._mistake(request, answer, f"shows {sorted(wrong)}")
        strange = [
            id for id in request.used if self.owner_of.get(id, "") not in ("", request.who.name)
        ]
        if strange and self._hides(request):
            unknown = {id: UNKNOWN[name] for name, id in request.ids.items() if id in strange}
            other = self._send(request.with_ids(unknown))
            if _seen(answer, unknown) != _seen(other, unknown):
                self._mistake(request, answer, f"an unknown one is {_seen(other, unknown)}")

    def _shown(self, request: Request, marks: set[str]) -> set[str]:
        """Those that this request may show of others."""
        if "/shared/" in request.route:
            titles = {mark for mark in marks if mark.startswith("title-")}
            return self.links.get(request.ids["share_id"], set()) | titles
        kinds: set[str] = set()
        if request.who.name in APPROVERS and re.search("/(approvals|resume)", request.route):
            kinds = OF_CALLS
        elif request.route == "GET /feedback":
            kinds = OF_NOTES
        return {mark for mark in marks if mark.split("-")[0] in kinds}

    def _hides(self, request: Request) -> bool:
        kind = ownership.KINDS[request.route]
        is_hidden = kind == "chats" or (kind == "teal" and self.hides)
        return is_hidden and not self._may_concern_others(request)

    def _may_concern_others(self, request: Request) -> bool:
        """Whether it may be a vote about a call of another."""
        decides = any(part in request.route for part in ("/approvals/", "/resume/"))
        return decides and request.who.name in APPROVERS

    def _view(self, who: Person) -> Any:
        """All that a person can see of their own, as it is once nothing is at work."""
        url = self.chance.choice(self.servers).url
        tasks = [ids["task_id"] for ids in who.ids if "task_id" in ids][-2:]
        task_paths = [f"{ownership.TEAL}/tasks/{id}" for id in tasks]
        self._settle(url, who, ["/chats?limit=100", *task_paths])
        shown: dict[str, Any] = {}
        paths = ["/grants", "/tags", "/me", "/chats/a", "/chats/a/shares", "/chats/b/shares"]
        paths += [f"/chats?place={place}" for place in ("list", "archive", "bin")]
        paths += task_paths
        for path in paths:
            answer = self.client.get(url + path, headers=who.headers)
            shown[path] = answer.json() if answer.status_code == 200 else answer.status_code
        return shown

    def _settle(self, url: str, who: Person, paths: Sequence[str]) -> None:
        """Wait until nothing of theirs is at work."""
        end = monotonic() + seconds(20)
        for path in paths:
            while (
                '"status":"running"'
                in self.client.get(url + path, headers=who.headers).text.lower()
            ):
                if monotonic() > end:
                    raise TimeoutError(f"{path} of {who.name} runs on and on")

    def _learn(self, request: Request, answer: httpx.Response) -> None:
        if answer.status_code >= 300:
            return
        self.pages = [*self.pages, *re.findall(r'"next":"([^"]+)"', answer.text)][-40:]
        found: dict[str, str] = {}
        for document in _documents(answer):
            _gather(document, found)
        own = {
            name: id
            for name, id in found.items()
            if self.owner_of.setdefault(id, request.who.name) == request.who.name
        }
        if own:
            request.who.ids.append({**_own_chat(request), **own})
        if request.route == "POST /chats/{chat_id}/shares":
            chat = f"{self.servers[0].url}/chats/{request.ids['chat_id']}"
            shown = self.client.get(chat, headers=request.who.headers)
            self.links[answer.json()["share_id"]] = _marks(shown) | request.who.may_see
        if request.route == "DELETE /shared/{share_id}":
            self.links.pop(request.ids["share_id"], None)
        if request.route == "POST /shared/{share_id}/copy":
            request.who.may_see |= self.links.get(request.ids["share_id"], set()) | _marks(answer)
        self.cursors = [*self.cursors, *re.findall(r"^id: (\S+)$", answer.text, re.M)][-40:]

    def _mistake(self, request: Request, answer: httpx.Response, what: str) -> None:
        self.mistakes.append(
            f"{request.method} {request.path} by {request.who.name} {dict(request.headers)} "
            f"{json.dumps(request.body)}: {answer.status_code} {answer.text[:600]}: {what}"
        )


def _marks(answer: httpx.Response) -> set[str]:
    return {found[0] for found in MARK.finditer(answer.text)}


def _seen(answer: httpx.Response, ids: Mapping[str, str]) -> tuple[int, str]:
    text = answer.text.replace(answer.headers["x-correlation-id"], "")
    for id in (*ids, *ids.values()):
        text = text.replace(id, "")
    return answer.status_code, text


def _gather(document: Any, found: dict[str, str]) -> None:
    """The ids in an answer; of several the last."""
    for inner in document if isinstance(document, list) else ():
        _gather(inner, found)
    for name, value in document.items() if isinstance(document, dict) else ():
        if name in ("id", "run_id") and isinstance(value, str):
            name = next((PREFIXES[start] for start in PREFIXES if value.startswith(start)), name)
        if name in ID_FIELDS and isinstance(value, str):
            found[name] = value
        _gather(value, found)


def _own_chat(request: Request) -> dict[str, str]:
    return {"chat_id": request.ids["chat_id"]} if "{chat_id}" in request.route else {}


def _documents(answer: httpx.Response) -> Iterator[Any]:
    kind = answer.headers.get("content-type", "")
    if kind.startswith("application/json") and answer.content:
        yield answer.json()
    elif kind.startswith("text/event-stream"):
        for line in answer.text.splitlines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


@contextmanager
def histories(folder: Path, seed: int) -> Iterator[Histories]:
    """Two servers on one store, and people with keys."""
    for name, text in (("marks.yaml", SCRIPT), ("custom_plugins.py", PLUGINS)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    (folder / "teal.yaml").write_text(AGENT)
    (folder / "sk.yaml").write_text(STATELESS)
    (folder / "data").mkdir(mode=0o700)
    keys = KeysFile(folder / "keys.json")
    people = [
        Person(name, keys.add(name, roles=roles.split(), groups=groups.split())[1])
        for name, (roles, groups) in PEOPLE.items()
    ]
    given = {
        "TA_AUTHORIZER": "keys",
        "TA_KEYS_FILE": str(folder / "keys.json"),
        "TA_STORE": f"sqlite://{folder}/data/store.sqlite",
        "TA_ENCRYPTION_KEYS": hashlib.sha256(b"callers").hexdigest(),
        "TA_SCRIPT_PACE": "0",
        "TA_HIDE_EXISTENCE": str(seed % 2 == 0),
    }
    files = (str(folder / "teal.yaml"), str(folder / "sk.yaml"))
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(folder, *files, **given)) for _ in range(2)]
        client = stack.enter_context(httpx.Client(timeout=seconds(30)))
        yield Histories(servers, people, random.Random(seed), client, seed % 2 == 0)


def findings(folder: Path, seed: int, steps: int) -> Histories:
    with histories(folder, seed) as found:
        found.run(steps)
    for path in (folder / "server.log", *(folder / "data").rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        if marks := {match[0] for match in MARK.finditer(content.decode("latin-1"))}:
            found.mistakes.append(f"{path.name} holds {sorted(marks)[:5]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = findings(Path(place), options.seed, options.steps)
    sys.stdout.write("\n".join([*found.mistakes, f"{found.asked} answers"]) + "\n")
    return bool(found.mistakes)


if __name__ == "__main__":
    sys.exit(main())
