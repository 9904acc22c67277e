"""Who did what, for operators: entries without contents, and the last signed checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from sk_agents.authorization.roles import Role
from sk_agents.exceptions import InvalidInput, NotFound
from sk_agents.http.caller import acting_caller
from sk_agents.http.operations import Operation
from sk_agents.wire.views import AuditReport, Checkpoint

HOURS = 24
MOST_ENTRIES = 1_000
_OPERATORS: tuple[Role, ...] = ("operator",)

# The newest entries since a moment, of a user and of an agent if they are named, so many at most.
ReadAudit = Callable[[datetime, str | None, str | None, int], Awaitable[AuditReport]]
ReadCheckpoint = Callable[[], Awaitable[Checkpoint | None]]


def audit_operations(read: ReadAudit, last_checkpoint: ReadCheckpoint) -> list[Operation]:
    async def audit(
        since: Annotated[
            datetime | None, Query(description="With a time zone. Unset: a day ago.")
        ] = None,
        user: Annotated[
            str | None, Query(max_length=256, description="Of this user's chats, or by this user.")
        ] = None,
        agent: Annotated[str | None, Query(max_length=256, description="Of this agent.")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 200,
    ) -> AuditReport:
        """Who did what, newest first: calls of tools with what allowed them, sign-ins that failed,
        changes of keys and roles, exports and deletions. Of contents it has digests only."""
        if since is not None and since.tzinfo is None:
            raise InvalidInput("since needs a time zone, such as 2026-11-01T00:00:00Z.")
        since = since or datetime.now(UTC) - timedelta(hours=HOURS)
        return await read(since, user, agent, limit)

    async def checkpoint() -> Checkpoint:
        """The last signed checkpoint of the audit log, to be kept elsewhere."""
        found = await last_checkpoint()
        if found is None:
            raise NotFound("There is no checkpoint: set TA_AUDIT_KEY_FILE.")
        return found

    def operation(path: str, endpoint: Callable[..., object], *errors: int) -> Operation:
        return Operation(
            method="GET",
            path=path,
            endpoint=endpoint,
            tag="audit",
            who=acting_caller,
            roles=_OPERATORS,
            errors=(401, 403, *errors, 422, 503),
        )

    return [operation("/audit", audit), operation("/audit/checkpoint", checkpoint, 404)]
