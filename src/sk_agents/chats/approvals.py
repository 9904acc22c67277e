"""What waits for a person across all chats, and what they have allowed for good."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from sk_agents.chats.render import asked_view, decision_view, grant_view, shared_view
from sk_agents.chats.requests import Key, engine_of
from sk_agents.engine.calls.call import Approval
from sk_agents.engine.commands import DecideApproval, WithdrawVote
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import ApprovalState
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalNotFound,
    ApprovalWithdrawn,
    InvalidCursor,
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
        """What waits in the caller's chats, and for the caller as an approver; oldest first."""
        catalog = engine_of(request.scope).catalog
        after = _checked(cursor, "approval")
        page = await catalog.inbox(caller.user_id, caller.memberships, after=after, limit=limit)
        views = [asked_view(item, caller) for item in page.items]
        return ApprovalPage(approvals=views, next=page.after)

    async def read(self, request: Request, caller: RequestCaller, approval_id: str) -> ApprovalView:
        """One approval, decided or not."""
        engine = engine_of(request.scope)
        asked = await engine.catalog.asked(approval_id, caller.user_id, caller.memberships)
        known = await engine.thread(asked.thread.thread_id, asked.thread.user_id)
        return shared_view(asked, known.state, caller)

    async def respond(
        self,
        request: Request,
        caller: RequestCaller,
        approval_id: str,
        key: Key,
        body: ApprovalDecision,
    ) -> Processed:
        """Decide, knowing only the approval's id; where several people decide, vote."""
        return await decide(engine_of(request.scope), caller, approval_id, body, key)

    async def withdraw(self, request: Request, caller: RequestCaller, approval_id: str) -> Response:
        """Take the caller's vote back, while the call is not decided about."""
        engine = engine_of(request.scope)
        command = WithdrawVote(approval_id, caller.user_id, caller.name, caller.memberships)
        try:
            await engine.withdraw_vote(command)
        except ApprovalAlreadyDecided as error:
            raise await _too_late(engine, caller, error) from error
        return Response(status_code=204)

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
        user_name=caller.name,
        memberships=caller.memberships,
    )
    try:
        await engine.decide(command)
    except ApprovalAlreadyDecided as error:
        raise await _too_late(engine, caller, error) from error
    approval = await _approval(engine, caller, approval_id)
    missing = approval.missing if approval is not None and approval.audience.keys else None
    if approval is not None and approval.state is not ApprovalState.PENDING and missing:
        missing = 0
    return Processed(approval_id=approval_id, approved=body.approved, missing=missing)


async def _too_late(engine: Engine, caller: Caller, error: ApprovalAlreadyDecided) -> Exception:
    """400 with the decision that was made, or 409 if it was withdrawn without one."""
    outcome = error.attributes.get("outcome")
    if outcome == "withdrawn":
        return ApprovalWithdrawn(approval_id=error.approval_id)
    approval = await _approval(engine, caller, error.approval_id)
    decision = approval.decision if approval is not None else None
    members = {"decision": decision_view(decision).model_dump(mode="json")} if decision else {}
    return Problem(400, error.code, str(error), members={"outcome": outcome, **members})


async def _approval(engine: Engine, caller: Caller, approval_id: str) -> Approval | None:
    """The approval as it stands; None if the call was asked about again since."""
    try:
        asked = await engine.catalog.asked(approval_id, caller.user_id, caller.memberships)
    except ApprovalNotFound:
        return None
    return asked.approval
