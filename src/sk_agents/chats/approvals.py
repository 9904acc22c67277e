"""What waits for a person across all chats, and what they have allowed for good."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sk_agents.chats.desk import engine_of
from sk_agents.chats.render import asked_view, decision_view, grant_view
from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import ApprovalDecided
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalNotFound,
    ApprovalWithdrawn,
    InvalidCursor,
    InvalidInput,
)
from sk_agents.http.body import body_of
from sk_agents.http.caller import Caller, acting_caller
from sk_agents.http.errors import problem
from sk_agents.http.idempotency import idempotency_key
from sk_agents.wire.requests import ApprovalDecision
from sk_agents.wire.views import ApprovalPage, ApprovalView, GrantPage, Processed

MAX_PAGE = 100

_DECISION = TypeAdapter(ApprovalDecision)

Cursor = Annotated[str | None, Query(max_length=128)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def approval_routes() -> APIRouter:
    router = APIRouter(tags=["approvals"])

    @router.get("/approvals")
    async def inbox(request: Request, cursor: Cursor = None, limit: Limit = 50) -> ApprovalPage:
        """Everything that waits for the caller's decision."""
        caller = await acting_caller(request)
        catalog = engine_of(request.scope).catalog
        after = _checked(cursor, "approval")
        page = await catalog.inbox(caller.user_id, after=after, limit=limit)
        return ApprovalPage(approvals=[asked_view(item) for item in page.items], next=page.after)

    @router.get("/approvals/{approval_id}")
    async def read(request: Request, approval_id: str) -> ApprovalView:
        """One approval, decided or not."""
        caller = await acting_caller(request)
        return asked_view(await engine_of(request.scope).catalog.asked(approval_id, caller.user_id))

    @router.post("/approvals/{approval_id}")
    async def respond(request: Request, approval_id: str) -> Response:
        """Decide, knowing only the approval's id."""
        caller = await acting_caller(request)
        body = await body_of(request, _DECISION)
        return await decide(request, engine_of(request.scope), caller, approval_id, body)

    @router.get("/grants")
    async def grants(request: Request, cursor: Cursor = None, limit: Limit = 50) -> GrantPage:
        """The caller's standing approvals."""
        caller = await acting_caller(request)
        catalog = engine_of(request.scope).catalog
        after = _checked(cursor, "grant")
        page = await catalog.grants(caller.user_id, after=after, limit=limit)
        return GrantPage(grants=[grant_view(item) for item in page.items], next=page.after)

    @router.delete("/grants/{grant_id}", status_code=204)
    async def revoke(request: Request, grant_id: str) -> Response:
        """Take a standing approval back: its tool is asked about again."""
        caller = await acting_caller(request)
        await engine_of(request.scope).catalog.revoke(grant_id, caller.user_id)
        return Response(status_code=204)

    return router


def _checked(cursor: str | None, kind: str) -> str | None:
    """Raises InvalidCursor: it is not the id of such a thing, which is what `next` is."""
    if cursor is not None and not re.fullmatch(rf"{kind}_[A-Za-z0-9-]{{1,64}}", cursor):
        raise InvalidCursor
    return cursor


async def decide(
    request: Request,
    engine: Engine,
    caller: Caller,
    approval_id: str,
    body: ApprovalDecision,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
) -> Response:
    """The seed's answer, or why it is too late to decide.

    Raises:
        InvalidInput: the request's key was used for another decision.
    """
    command = DecideApproval(
        approval_id=approval_id,
        user_id=caller.user_id,
        approved=body.approved,
        thread_id=thread_id,
        run_id=run_id,
        message=body.message,
        edited_arguments=body.edited_arguments,
        remember=body.remember,
        digest=body.digest,
        choice=body.choice,
        answer=body.answer,
        idempotency_key=idempotency_key(request.scope),
        authorization=caller.authorization,
    )
    try:
        is_first = await engine.decide(command)
    except ApprovalAlreadyDecided as error:
        return await _too_late(request, engine, caller, error)
    if not is_first:
        await _check_same(engine, caller, command)
    return JSONResponse(
        Processed(approval_id=approval_id, approved=body.approved).model_dump(mode="json")
    )


async def _too_late(
    request: Request, engine: Engine, caller: Caller, error: ApprovalAlreadyDecided
) -> Response:
    """400 with the decision that was made, or 409 if there is none: nobody may decide any more."""
    outcome = error.attributes.get("outcome")
    if outcome == "withdrawn":
        raise ApprovalWithdrawn(approval_id=error.approval_id)
    decision = await _decision(engine, caller, error.approval_id)
    members = {"decision": decision_view(decision).model_dump(mode="json")} if decision else {}
    return problem(request, 400, code=error.code, detail=str(error), outcome=outcome, **members)


async def _check_same(engine: Engine, caller: Caller, command: DecideApproval) -> None:
    """Raises InvalidInput: the key was used for another decision."""
    first = await _decision(engine, caller, command.approval_id)
    if first is None:
        return
    asked = (
        "approved" if command.approved else "rejected",
        command.message,
        command.choice if command.approved else None,
        command.answer,
        command.edited_arguments is not None,
    )
    made = (first.outcome, first.message, first.choice, first.answer)
    if asked != (*made, first.edited_arguments is not None):
        raise InvalidInput("This Idempotency-Key was used for another decision.")


async def _decision(engine: Engine, caller: Caller, approval_id: str) -> ApprovalDecided | None:
    """The decision as it is recorded; None if the call was asked about anew since."""
    try:
        return (await engine.catalog.asked(approval_id, caller.user_id)).approval.decision
    except ApprovalNotFound:
        return None
