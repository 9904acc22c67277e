"""One agent's routes as a table, from which the server and its description are both made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sk_agents.http import operations
from sk_agents.http.health import Health
from sk_agents.http.operations import OperationRoute
from sk_agents.tealagents.endpoints import Endpoints
from sk_agents.tealagents.errors import Endpoint, guarded
from sk_agents.tealagents.models import (
    AgentTask,
    HitlResponse,
    RejectedToolResponse,
    Request,
    ResumeRequest,
    Session,
    StateResponse,
    TealAgentsPartialResponse,
    TealAgentsResponse,
    UserMessage,
)
from sk_agents.tealagents.v1alpha1.config import Served

Model = type[BaseModel]
STREAMED = (TealAgentsPartialResponse, TealAgentsResponse, HitlResponse, RejectedToolResponse)


@dataclass(frozen=True, slots=True)
class _Served:
    """An endpoint as a plain ASGI application: errors are answered by the endpoint itself."""

    endpoint: Endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(HttpRequest(scope, receive))
        await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Operation:
    """A route and what can be said about it; `errors` are the statuses besides the good one."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    takes: Model | None = None
    returns: tuple[Model, ...] = ()
    streams: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[int] = ()
    good: int = 200

    @property
    def route(self) -> Route:
        return OperationRoute(
            operations.Operation(
                method=self.method,
                path=self.path,
                endpoint=_Served(guarded(self.endpoint)),
                # The endpoint finds out by itself.
                who=None,
                is_described=False,
            )
        )


_TASK = {"task_id": "The request's task; only stores that cannot find a request alone need it."}
_RESUME = {"action": "approve or reject.", "pause": "Which pause is meant.", **_TASK}
_ASKING = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504)
_READING = (401, 404, 422, 500, 503)


def get_stateful_routes(served: Served, health: Health) -> list[Operation]:
    """Invoking the agent, and looking at its tasks, sessions and requests."""
    do, at = Endpoints(served, health), served.config.path
    return [*_asking(do, at), *_looking(do, at), *_health(do, at)]


def _asking(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation(
            "POST",
            at,
            do.invoke,
            "Ask, and wait for the answer",
            takes=UserMessage,
            returns=(StateResponse,),
            errors=_ASKING,
        ),
        Operation(
            "POST",
            f"{at}/sse",
            do.invoke_stream,
            "Ask, and read the answer as it appears",
            takes=UserMessage,
            returns=STREAMED,
            streams=True,
            errors=_ASKING[:-1],
        ),
        Operation(
            "POST",
            f"{at}/requests/{{request_id}}/cancel",
            do.cancel,
            "Stop a request",
            returns=(StateResponse,),
            query=_TASK,
            errors=(401, 404, 409, 422, 500, 503, 504),
        ),
    ]


def _looking(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation(
            "GET",
            f"{at}/tasks/{{task_id}}",
            do.task,
            "A task",
            returns=(AgentTask,),
            errors=_READING,
        ),
        Operation(
            "DELETE",
            f"{at}/tasks/{{task_id}}",
            do.delete_task,
            "Remove a task and all that was said in it",
            errors=_READING,
            good=204,
        ),
        Operation(
            "GET",
            f"{at}/sessions/{{session_id}}",
            do.session,
            "The tasks of a session",
            returns=(Session,),
            query={"cursor": "Where to go on: `next` of the last reply."},
            errors=_READING,
        ),
        Operation(
            "GET",
            f"{at}/requests/{{request_id}}",
            do.request,
            "A request, at any time",
            returns=(Request,),
            query=_TASK,
            errors=_READING,
        ),
    ]


def _health(do: Endpoints, at: str) -> list[Operation]:
    return [
        Operation("GET", f"{at}/health", do.ready, "Can it serve?", errors=(503,)),
        Operation("GET", f"{at}/health/live", do.live, "Is it there?"),
    ]


def get_resume_routes(served: Served, health: Health) -> list[Operation]:
    """Deciding what a paused request waits for, under its address and its older, longer one."""
    do, at = Endpoints(served, health), served.config.path
    return [
        operation
        for path in (f"{at}/resume", f"{at}/tealagents/{Endpoints.version}/resume")
        for operation in (
            Operation(
                "POST",
                f"{path}/{{request_id}}",
                do.resume,
                "Decide, and wait for the answer",
                takes=ResumeRequest,
                returns=(StateResponse, RejectedToolResponse),
                query=_RESUME,
                errors=_ASKING,
            ),
            Operation(
                "POST",
                f"{path}/{{request_id}}/sse",
                do.resume_stream,
                "Decide, and read the answer as it appears",
                takes=ResumeRequest,
                returns=STREAMED,
                streams=True,
                query=_RESUME,
                errors=_ASKING[:-1],
            ),
        )
    ]
