"""`POST /chat`: a message in, the assistant's message out, no state in between.

The eight steps of a turn and where each is done:

1. receive the message                 here
2. fetch the conversation              the engine, from the store
3. append the message to it            the engine: the prompt is history and message
4. store the message                   the engine's first commit, before the model is called
5. run the agent                       the engine's driver
6. invoke tools, feed results back     the same, until the model asks for none
7. store the answer                    the engine's last commit
8. return it                           here, from what was stored

A turn is a run like any other: it goes on if its caller leaves, it shows among the caller's chats,
and another process can finish it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sk_agents.engine.commands import StartRun
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import NewThread, Part, RunStatus, UserInput
from sk_agents.engine.ports import Quota
from sk_agents.exceptions import InvalidInput, StillRunning, ThreadBusy
from sk_agents.http.caller import Caller, RequestCaller, acting_caller
from sk_agents.http.errors import Problem, run_failure_headers, run_failure_status
from sk_agents.http.ids import idempotency_key
from sk_agents.http.limits import quota_of
from sk_agents.http.operations import Operation
from sk_agents.interactions import chat_thread_id
from sk_agents.todo_chat.models import ChatReply, TodoChatRequest, reply_of

PATH = "/chat"
AGENT = "TodoChatAgent"
# Its conversations are chats: the same ids, the same place, and there they are listed.
SURFACE = "chats"
TITLE_LENGTH = 80
BUSY_RETRY_SECONDS = "1"


def todo_chat_operations(agents: Sequence[str]) -> list[Operation]:
    """Answered by the agent named `TodoChatAgent`, or by the first one if there is none."""
    agent = AGENT if AGENT in agents else next(iter(agents), None)

    async def chat(request: Request, caller: RequestCaller, body: TodoChatRequest) -> Response:
        """A message in, the assistant's message out."""
        return await _answer(request, caller, body, agent)

    return [
        Operation(
            method="POST",
            path=PATH,
            endpoint=chat,
            summary="Say something and wait for the answer.",
            tag="chat",
            who=acting_caller,
            examples={"a task": {"user_message": "Remind me to buy milk."}},
            outcome="The assistant's message, or what it waits for.",
            answer=ChatReply,
            errors=(400, 401, 403, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504),
        )
    ]


async def _answer(
    request: Request, caller: Caller, body: TodoChatRequest, agent: str | None
) -> Response:
    key = idempotency_key(request.scope)
    settings = request.app.state.settings
    if body.user_id is not None:
        caller = await acting_caller(request, body.user_id)
    if agent is None:
        raise InvalidInput("This server serves no agent; start it with an agent file.")
    session_id = body.session_id or _new_session(caller, key)
    engine: Engine = request.app.state.engines.main
    try:
        quota = quota_of(request, engine, SURFACE)
        command = _command(caller, session_id, agent, key, body, quota)
        accepted = await engine.start(command)
        async with asyncio.timeout(settings.request_wait):
            run = await engine.result(accepted.thread_id, accepted.run_id)
    except ThreadBusy as error:
        raise _busy(session_id, error) from error
    except TimeoutError:
        late = StillRunning()
        ids = {"session_id": session_id, "request_id": accepted.run_id}
        raise Problem(504, late.code, str(late), members=ids) from None
    if run.phase is RunStatus.FAILED:
        raise _failed(session_id, run)
    reply = reply_of(session_id, run)
    return JSONResponse(reply.model_dump(mode="json", by_alias=True))


def _command(
    caller: Caller,
    session_id: str,
    agent: str,
    key: str | None,
    body: TodoChatRequest,
    quota: Quota,
) -> StartRun:
    title = _title(body.user_message)
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    return StartRun(
        thread_id=chat_thread_id(caller.user_id, session_id),
        user_id=caller.user_id,
        run_id=f"int_{uuid4().hex}",
        message=UserInput(parts=(Part(content=body.user_message),)),
        new=NewThread(
            caller.user_id,
            wire_id=session_id,
            surface=SURFACE,
            agent=agent,
            metadata={"title": title},
        ),
        title=title,
        idempotency_key=key,
        request_digest=f"chat {digest}" if key else None,
        on_busy=body.on_busy,
        on_disconnect="continue",
        authorization=caller.authorization,
        quota=quota,
        user_name=caller.name,
    )


def _new_session(caller: Caller, key: str | None) -> str:
    """A request that is sent again with its key finds the conversation it has begun before."""
    if key is None:
        return f"chat_{uuid4().hex}"
    name = "\0".join(("chat", caller.user_id, key))
    return f"chat_{uuid5(NAMESPACE_URL, name).hex}"


def _busy(session_id: str, error: ThreadBusy) -> Problem:
    members: dict[str, Any] = {"session_id": session_id}
    if "run_id" in error.attributes:
        members["request_id"] = error.run_id
    headers = {"Retry-After": BUSY_RETRY_SECONDS}
    return Problem(409, error.code, str(error), headers=headers, members=members)


def _failed(session_id: str, run: Run) -> Problem:
    """The message is kept: it can be sent again, or the turn repeated from among the chats."""
    failure = run.failure
    code = failure.code if failure is not None else "internal"
    return Problem(
        run_failure_status(code),
        code,
        failure.message if failure is not None else "The turn failed.",
        headers=run_failure_headers(code),
        members={
            "session_id": session_id,
            "request_id": run.run_id,
            "run_correlation_id": failure.correlation_id if failure is not None else None,
        },
    )


def _title(message: str) -> str:
    line = " ".join(message.split(maxsplit=40)[:40])
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
