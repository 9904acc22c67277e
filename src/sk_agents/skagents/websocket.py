"""The deprecated stream: one input in, the pieces of the answer out as text, then it is closed.

Close codes: 1000 answered, 1007 input not valid, 1008 not allowed, 1009 too large, 1011 no answer,
1013 too many streams or requests of this user, or a budget is used up.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing, suppress

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter
from starlette.types import Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from sk_agents.engine.engine import Engine
from sk_agents.exceptions import (
    Forbidden,
    InvalidInput,
    LimitExceeded,
    MalformedRequest,
    SlowRequest,
    TealError,
    TooLarge,
    Unauthenticated,
)
from sk_agents.http.body import read_json
from sk_agents.http.caller import USERS, current_caller, require_role
from sk_agents.http.limits import admit_request, limits_of
from sk_agents.http.sse import WRITE_SECONDS
from sk_agents.ska_types import ExtraDataPartial, InvokeResponse, PartialResponse
from sk_agents.skagents.models import Handler, InvokeFailure, Outputs
from sk_agents.skagents.outputs import failure_of, while_connected, with_failure

ANSWERED = 1000
BAD_INPUT = 1007
NOT_ALLOWED = 1008
TOO_LARGE = 1009
FAILED = 1011
TRY_LATER = 1013
# By the HTTP status of what cannot be answered.
STATUS_CODES = {422: BAD_INPUT, 429: TRY_LATER}
# A close frame has room for so many bytes of reason.
REASON_BYTES = 123
# The input is checked as a body would be.
AS_JSON: Scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
CODES: dict[type, int] = {
    Forbidden: NOT_ALLOWED,
    Unauthenticated: NOT_ALLOWED,
    SlowRequest: NOT_ALLOWED,
    InvalidInput: BAD_INPUT,
    MalformedRequest: BAD_INPUT,
    TooLarge: TOO_LARGE,
    LimitExceeded: TRY_LATER,
}


async def serve_websocket(
    websocket: WebSocket, handler: Handler, adapter: TypeAdapter[BaseModel], engine: Engine
) -> None:
    await websocket.accept()
    with ExitStack() as stack:
        try:
            caller = await current_caller(websocket)
            require_role(caller, USERS)
            await admit_request(websocket.scope, caller.user_id)
            stack.enter_context(limits_of(websocket).slots.held(caller.user_id))
            inputs = await _input(websocket, adapter)
            outputs = handler.invoke_stream(engine, inputs, caller)
        except WebSocketDisconnect:
            return
        except RequestValidationError as error:
            await _close(websocket, BAD_INPUT, _first_problem(error))
            return
        except TealError as error:
            await _close(
                websocket,
                _code_of(error),
                failure_of(error, websocket.scope).message,
            )
            return
        end = await while_connected(websocket.receive, _sent(websocket, outputs))
        if end is not None:
            await _close(websocket, *end)


async def _sent(websocket: WebSocket, outputs: Outputs) -> tuple[int, str] | None:
    """Send the pieces; how to close, or `None` if the client reads no more."""
    try:
        async with aclosing(with_failure(outputs, websocket.scope)) as batches:
            async for batch in batches:
                for output in batch:
                    match output:
                        case PartialResponse():
                            async with asyncio.timeout(WRITE_SECONDS):
                                await websocket.send_text(output.output_partial)
                        case InvokeResponse() if output.extra_data is not None:
                            last = ExtraDataPartial(extra_data=output.extra_data)
                            async with asyncio.timeout(WRITE_SECONDS):
                                await websocket.send_text(last.model_dump_json())
                        case InvokeFailure():
                            code = STATUS_CODES.get(output.status, FAILED)
                            return code, output.message
    except (TimeoutError, WebSocketDisconnect):
        return None
    return ANSWERED, ""


async def _input(websocket: WebSocket, adapter: TypeAdapter[BaseModel]) -> BaseModel:
    """The client's one message.

    Raises:
        WebSocketDisconnect: it left instead.
        SlowRequest, TooLarge, RequestValidationError: as `read_json`.
    """
    limits = limits_of(websocket)
    try:
        async with asyncio.timeout(limits.body_seconds):
            message = await websocket.receive()
    except TimeoutError:
        raise SlowRequest from None
    if message["type"] != "websocket.receive":
        raise WebSocketDisconnect(message.get("code", ANSWERED))
    text = message.get("text")
    body = text.encode() if text is not None else message.get("bytes") or b""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return await read_json(AS_JSON, receive, adapter, max_bytes=limits.image_body_bytes)


def _code_of(error: TealError) -> int:
    """By its nearest class: an expired token is a caller who is not known."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), FAILED)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    cut = reason.encode()[:REASON_BYTES].decode(errors="ignore")
    # It is closed already, or the client does not read.
    with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(WRITE_SECONDS):
            await websocket.close(code, cut)


def _first_problem(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}"
