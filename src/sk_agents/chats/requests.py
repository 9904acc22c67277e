"""What the endpoints of the chats API know of a request: who asks, in which chat, within limits."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Protocol
from urllib.parse import urlencode

import orjson
from fastapi import Depends, Header, Path, Query
from pydantic import BaseModel
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from sk_agents.chats.usage import ReadBudgets, ReadUsage
from sk_agents.documents.pdf import PdfReaders
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Event
from sk_agents.engine.models import NewThread
from sk_agents.engine.values import dataclass
from sk_agents.exceptions import InvalidInput, ThreadBusy
from sk_agents.http.caller import Caller, caller_of
from sk_agents.http.errors import PROBLEM_JSON, Problem, problem_json
from sk_agents.http.ids import MAX_KEY_LENGTH, idempotency_key
from sk_agents.http.ids import chat_id as checked_chat_id
from sk_agents.http.limits import EngineQuota, Limits
from sk_agents.interactions import chat_thread_id
from sk_agents.wire.views import AgentView

SURFACE = "chats"
BUSY_RETRY_SECONDS = "1"
# How many agents an error names.
MAX_NAMED = 20
# As described; `http.ids` checks what is sent.
CHAT_ID = {"pattern": "^[A-Za-z0-9_-]{1,64}$"}
_KEY = {"minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": "^[!-~]+$"}
_CURSOR = {"pattern": "^([0-9]+(-[0-9a-f]{8})?)?$"}
_CURSOR_TEXT = (
    "The id of the last event seen; the stream goes on after it. A plain number is taken as it is, "
    "without a look at which event stands there."
)
Optional = str | SkipJsonSchema[None]
Restore = Callable[[str, NewThread, Sequence[Event]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ChatRequest:
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


class ChatCopies(Protocol):
    """Chats that the operator's own class keeps, too."""

    async def bring(self, user_id: str, chat_id: str, restore: Restore) -> None:
        """Restore a chat that it has and the store does not know."""


async def bring_chat(scope: Scope, user_id: str, chat_id: str) -> None:
    """Have the chat in the store, if it is kept anywhere.

    Raises:
        StoreUnavailable: that is not known now.
    """
    copies: ChatCopies | None = scope["app"].state.engines.copies
    if copies is not None:
        await copies.bring(user_id, chat_id, engine_of(scope).catalog.restore)


async def chat_request_of(request: Request) -> ChatRequest:
    """Raises InvalidInput: the path names no possible chat."""
    caller = caller_of(request.scope)
    chat_id = checked_chat_id(request.path_params["chat_id"])
    await bring_chat(request.scope, caller.user_id, chat_id)
    thread_id = chat_thread_id(caller.user_id, chat_id)
    suffix = ""
    if request.scope["query_string"] and "user_id" in request.query_params:
        suffix = "?" + urlencode({"user_id": caller.user_id})
    return ChatRequest(caller, engine_of(request.scope), chat_id, thread_id, suffix)


async def chat_parameter(
    request: Request, chat_id: Annotated[str, Path(json_schema_extra=CHAT_ID)]
) -> ChatRequest:
    return await chat_request_of(request)


async def interaction_parameter(interaction_id: Annotated[str, Path()]) -> str:
    return interaction_id


async def key_parameter(
    request: Request,
    idempotency_key_: Annotated[
        Optional,
        Header(
            alias="Idempotency-Key",
            description="The same request sent again with the same key is done once.",
            json_schema_extra=_KEY,
        ),
    ] = None,
) -> str | None:
    return idempotency_key(request.scope)


async def cursor_parameters(
    last_event_id: Annotated[
        Optional,
        Header(alias="Last-Event-ID", description=_CURSOR_TEXT, json_schema_extra=_CURSOR),
    ] = None,
    after: Annotated[Optional, Query(description=_CURSOR_TEXT, json_schema_extra=_CURSOR)] = None,
) -> None:
    """Read by `streams.place_of`."""


# As parameters of endpoints.
Chat = Annotated[ChatRequest, Depends(chat_parameter)]
InteractionId = Annotated[str, Depends(interaction_parameter)]
Key = Annotated[str | None, Depends(key_parameter)]


class ChatResources:
    """`views` are the agents a chat may be held with, as they are now; the first is the default.

    Its `slots` bound the streams that one user holds open, its `quotas` what one user keeps, its
    `usage` reads what models have used, its `budgets` what may still be spent, its
    `pdfs` what is in PDFs.
    """

    def __init__(
        self,
        views: Callable[[], Sequence[AgentView]],
        limits: Limits,
        usage: ReadUsage,
        budgets: ReadBudgets,
    ) -> None:
        self.views = views
        self.usage = usage
        self.budgets = budgets
        self.slots = limits.slots
        self.quotas = limits.quotas[SURFACE]
        self.pdfs = PdfReaders()
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
            known = ", ".join(self._names[:MAX_NAMED])
            raise InvalidInput(f"There is no agent of this name: {name!r}. There are: {known}.")
        return name

    def has_agent(self, name: str | None) -> bool:
        return name in self._names

    def quota(self, chat: ChatRequest) -> EngineQuota:
        """What the engine asks before it begins a run."""
        return EngineQuota(self.quotas, chat.engine.catalog)


def engine_of(scope: Scope) -> Engine:
    engine: Engine = scope["app"].state.engines.main
    return engine


def new_interaction_id() -> str:
    """A millisecond and 74 random bits. Later ones sort behind earlier ones, so that an index of
    them grows at one end: a turn of 64 busy chats in SQLite writes a fifth fewer pages."""
    millisecond = int(time.time() * 1000)
    random = RandomIds().new().replace("-", "")[12:]
    return f"int_{millisecond:012x}{random}"


def request_digest(what: str, body: BaseModel) -> str:
    """Of a request, so that its key cannot be used for another."""
    document: dict[str, Any] = body.model_dump(mode="json")
    return hashlib.sha256(what.encode() + orjson.dumps(document)).hexdigest()


def _render_error(scope: Scope, problem: Problem) -> Response:
    """Says which interaction is in the way, so that a client can wait for it or stop it."""
    busy = problem.error
    if isinstance(busy, ThreadBusy):
        problem.headers["Retry-After"] = BUSY_RETRY_SECONDS
        if "run_id" in busy.attributes:
            problem.members["interaction_id"] = busy.run_id
    return problem_json(scope, problem)


CHAT_ERRORS = replace(PROBLEM_JSON, render=_render_error)
