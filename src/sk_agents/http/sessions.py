"""Who is at work, for operators: users and their conversations, without contents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from sk_agents.authorization.roles import Role
from sk_agents.engine.models import Thread, ThreadStatus
from sk_agents.engine.ports import Store
from sk_agents.engine.threads.heads import heads_since
from sk_agents.exceptions import InvalidInput
from sk_agents.http.caller import acting_caller
from sk_agents.http.operations import Operation
from sk_agents.wire.views import SessionReport, SessionView, UserActivity

MOST_SESSIONS = 1_000
_OPERATORS: tuple[Role, ...] = ("operator",)
# A store also holds what is no conversation: shared copies, sign-ins, the server's log.
SURFACES = frozenset({"chats", "tealagents", "skagents"})
AT_WORK = (ThreadStatus.RUNNING, ThreadStatus.WAITING)

ReadSessions = Callable[[datetime, str | None, int], Awaitable[SessionReport]]


def session_operations(read: ReadSessions) -> list[Operation]:
    async def sessions(
        since: Annotated[
            datetime | None, Query(description="With a time zone. Unset: an hour ago.")
        ] = None,
        user: Annotated[
            str | None, Query(max_length=256, description="Of this user alone.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_SESSIONS)] = 200,
    ) -> SessionReport:
        """Who is at work: the conversations of all users that run or wait now, and those that
        changed since, with open streams. Nothing that was said, no titles."""
        if since is not None and since.tzinfo is None:
            raise InvalidInput("since needs a time zone, such as 2026-11-01T00:00:00Z.")
        return await read(since or datetime.now(UTC) - timedelta(hours=1), user, limit)

    return [
        Operation(
            method="GET",
            path="/sessions",
            endpoint=sessions,
            tag="sessions",
            who=acting_caller,
            roles=_OPERATORS,
            errors=(401, 403, 422, 503),
        )
    ]


async def session_report(
    stores: Iterable[Store],
    streams: Mapping[str, int],
    since: datetime,
    user_id: str | None,
    limit: int,
) -> SessionReport:
    """`streams` are those that each user holds open.

    Raises:
        StoreError: a store is away.
    """
    users: dict[str, UserActivity] = {}
    found: list[Thread] = []
    for user, number in streams.items():
        if number > 0 and user_id in (None, user):
            users[user] = UserActivity(user_id=user, streams=number)
    async for head in _active(stores, since):
        if user_id not in (None, head.user_id):
            continue
        known = users.get(head.user_id) or UserActivity(user_id=head.user_id)
        users[head.user_id] = _with(known, head)
        found.append(head)
    found.sort(key=lambda head: (head.status in AT_WORK, head.updated_at), reverse=True)
    return SessionReport(
        at=datetime.now(UTC).isoformat(),
        since=since.isoformat(),
        users=[users[user] for user in sorted(users)],
        sessions=[_view(head) for head in found[:limit]],
        is_cut=len(found) > limit,
    )


async def _active(stores: Iterable[Store], since: datetime) -> AsyncIterator[Thread]:
    for store in stores:
        async for heads in heads_since(store, None):
            for head in heads:
                is_recent = head.updated_at >= since and head.status is not ThreadStatus.IDLE
                if head.surface in SURFACES and (is_recent or head.status in AT_WORK):
                    yield head


def _with(known: UserActivity, head: Thread) -> UserActivity:
    field = head.status.value if head.status in AT_WORK else "ended"
    last_at = max(known.last_at or "", head.updated_at.isoformat())
    return known.model_copy(update={field: getattr(known, field) + 1, "last_at": last_at})


def _view(head: Thread) -> SessionView:
    return SessionView(
        thread_id=head.thread_id,
        session_id=head.session_id,
        surface=head.surface,
        user_id=head.user_id,
        agent=head.agent,
        status=head.status.value,
        is_driven=head.owner is not None,
        queued=head.queued,
        created_at=head.created_at.isoformat(),
        updated_at=head.updated_at.isoformat(),
    )
