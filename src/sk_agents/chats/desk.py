"""What every handler of the chats API needs to know of a request: who asks, in which chat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Scope

from sk_agents.engine.engine import Engine
from sk_agents.exceptions import InvalidInput, ThreadBusy
from sk_agents.http.caller import Caller, acting_caller
from sk_agents.http.errors import ProblemResponse, problem
from sk_agents.http.ids import chat_id as checked_chat_id
from sk_agents.http.limits import Limits
from sk_agents.http.quotas import EngineQuota
from sk_agents.interactions import chat_thread_id
from sk_agents.wire.views import AgentView

SURFACE = "chats"
BUSY_RETRY_SECONDS = "1"


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: its caller and the chat it is about."""

    caller: Caller
    engine: Engine
    chat_id: str
    thread_id: str
    # What addresses for the caller must end with, while users only say who they are.
    suffix: str = ""

    def address(self, path: str) -> str:
        """Where the caller finds something of this chat."""
        return f"/chats/{self.chat_id}{path}{self.suffix}"


class Desk:
    """`views` are the agents a chat may be held with, as they are now; the first is the default.

    Its `slots` bound the streams that one user holds open, its `quotas` what one piles up.
    """

    def __init__(self, views: Callable[[], Sequence[AgentView]], limits: Limits) -> None:
        self.views = views
        self.slots = limits.slots
        self.quotas = limits.quotas[SURFACE]
        self._names = [agent.name for agent in views()]

    def agent(self, name: str | None) -> str:
        """The agent of this name, or the default.

        Raises:
            InvalidInput: there is none.
        """
        if not self._names:
            raise InvalidInput("This server serves no agent; start it with an agent file.")
        if name is None:
            return self._names[0]
        if name not in self._names:
            raise InvalidInput("There is no agent of this name.")
        return name

    def has_agent(self, name: str | None) -> bool:
        return name in self._names

    async def visit(self, request: Request) -> Visit:
        """Raises InvalidInput: the path names no possible chat."""
        caller = await acting_caller(request)
        chat_id = checked_chat_id(request.path_params["chat_id"])
        thread_id = chat_thread_id(caller.user_id, chat_id)
        suffix = ""
        if request.scope["query_string"] and "user_id" in request.query_params:
            suffix = "?" + urlencode({"user_id": caller.user_id})
        return Visit(caller, engine_of(request.scope), chat_id, thread_id, suffix)

    def quota(self, visit: Visit) -> EngineQuota:
        """What the engine asks before it begins a run."""
        return EngineQuota(self.quotas, visit.engine.catalog)


def engine_of(scope: Scope) -> Engine:
    engine: Engine = scope["app"].state.engines.main
    return engine


def new_interaction_id() -> str:
    return f"int_{token_hex(16)}"


def request_digest(what: str, body: BaseModel) -> str:
    """Of a request, so that its key cannot be used for another."""
    document: dict[str, Any] = body.model_dump(mode="json")
    return hashlib.sha256(what.encode() + orjson.dumps(document)).hexdigest()


def busy(request: Request, error: ThreadBusy) -> ProblemResponse:
    """Says which interaction is in the way, so that a client can wait for it or stop it."""
    members: dict[str, Any] = {}
    if "run_id" in error.attributes:
        members["interaction_id"] = error.run_id
    return problem(
        request,
        409,
        code=error.code,
        detail=str(error),
        headers={"Retry-After": BUSY_RETRY_SECONDS},
        **members,
    )
