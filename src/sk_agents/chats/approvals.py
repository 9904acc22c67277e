"""What waits for a person across all chats, and what they have allowed for good."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from sk_agents.chats.render import asked_view, decision_view, grant_view
from sk_agents.chats.requests import Key, engine_of
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
from sk_agents.http.caller import Caller, RequestCaller
from sk_agents.http.errors import Problem
from sk_agents.wire.requests import ApprovalDecision
from sk_agents.wire.views import ApprovalPage, ApprovalView, GrantPage, Processed

MAX_PAGE = 100

Cursor = Annotated[str | None, Query(max_length=128)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


class ApprovalEndpoints:
    async def inbox(
        self, request: Request, caller: RequestCaller, cursor: Cursor = None, limit: Limit = 50
    ) -> ApprovalPage:
        """Everything that waits for the caller's decision."""
        catalog = engine_of(request.scope).catalog
        after = _checked(cursor, "approval")
        page = await catalog.inbox(caller.user_id, after=after, limit=limit)
        return ApprovalPage(approvals=[asked_view(item) for item in page.items], next=page.after)

    async def read(self, request: Request, caller: RequestCaller, approval_id: str) -> ApprovalView:
        """One approval, decided or not."""
        return asked_view(await engine_of(request.scope).catalog.asked(approval_id, caller.user_id))

    async def respond(
        self,
        request: Request,
        caller: RequestCaller,
        approval_id: str,
        key: Key,
        body: ApprovalDecision,
    ) -> Processed:
        """Decide, knowing only the approval's id."""
        return await decide(engine_of(request.scope), caller, approval_id, body, key)

    async def grants(
        self, request: Request, caller: RequestCaller, cursor: Cursor = None, limit: Limit = 50
    ) -> GrantPage:
        """The caller's standing approvals."""
        catalog = engine_of(request.scope).catalog
        after = _checked(cursor, "grant")
        page = await catalog.grants(caller.user_id, after=after, limit=limit)
        return GrantPage(grants=[grant_view(item) for item in page.items], next=page.after)

    async def revoke(self, request: Request, caller: RequestCaller, grant_id: str) -> Response:
        """Take a standing approval back: its tool is asked about again."""
        await engine_of(request.scope).catalog.revoke(grant_id, caller.user_id)
        return Response(status_code=204)


def _checked(cursor: str | None, kind: str) -> str | None:
    """Raises InvalidCursor: it is not the id of such a thing, which is what `next` is."""
    if cursor is not None and not re.fullmatch(rf"{kind}_[A-Za-z0-9-]{{1,64}}", cursor):
        raise InvalidCursor
    return cursor


async def decide(
    engine: Engine,
    caller: Caller,
    approval_id: str,
    body: ApprovalDecision,
    key: str | None,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
) -> Processed:
    """Decide about one call or question.

    Raises:
        Problem: it is too late to decide; says which decision was made.
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
        idempotency_key=key,
        authorization=caller.authorization,
    )
    try:
        is_first = await engine.decide(command)
    except ApprovalAlreadyDecided as error:
        raise await _too_late(engine, caller, error) from error
    if not is_first:
        await _check_same(engine, caller, command)
    return Processed(approval_id=approval_id, approved=body.approved)


async def _too_late(engine: Engine, caller: Caller, error: ApprovalAlreadyDecided) -> Exception:
    """400 with the decision that was made, or 409 if it was withdrawn without one."""
    outcome = error.attributes.get("outcome")
    if outcome == "withdrawn":
        return ApprovalWithdrawn(approval_id=error.approval_id)
    decision = await _decision(engine, caller, error.approval_id)
    members = {"decision": decision_view(decision).model_dump(mode="json")} if decision else {}
    return Problem(400, error.code, str(error), members={"outcome": outcome, **members})


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
    """The decision as it is recorded; None if the call was asked about again since."""
    try:
        return (await engine.catalog.asked(approval_id, caller.user_id)).approval.decision
    except ApprovalNotFound:
        return None
