"""Which of this agent's tasks and requests are the caller's own."""

from __future__ import annotations

from sk_agents.engine.calls.reviews import is_concerned
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Thread
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    NotFound,
    NotOwner,
    RunNotFound,
    TealError,
    ThreadNotFound,
)
from sk_agents.http.caller import Caller
from sk_agents.tealagents.v1alpha1.config import SURFACE, ServedTealAgent


class TaskAccess:
    """Looks up tasks and requests for a caller.

    Another user's raises `NotOwner`, or where existence is hidden the same `NotFound`, with
    the same message, as one that does not exist.
    """

    def __init__(self, engine: Engine, served: ServedTealAgent) -> None:
        self._engine = engine
        self._served = served

    async def head(self, caller: Caller, task_id: str) -> Thread:
        """The task's head; of it only owner, session and agent, which never change, are current."""
        try:
            head = await self._engine.catalog.head(task_id, caller.user_id, lasting=True)
        except ThreadNotFound as error:
            raise self._refusal(error, _no_task(task_id)) from None
        if not self.is_ours(head):
            raise _no_task(task_id)
        return head

    async def request(
        self,
        caller: Caller,
        request_id: str,
        task_id: str | None,
        *,
        is_approver_welcome: bool = False,
    ) -> tuple[KnownThread, Run]:
        """The request and its task; `task_id` helps a store that cannot find it otherwise.

        With `is_approver_welcome` also another's, if the caller is one of those who decide about
        one of its calls. What may be shown of it is the endpoint's to know.
        """
        missing = RunNotFound(f"There is no request {request_id}.")
        if task_id is None:
            entry = await self._engine.catalog.run(request_id)
            if entry is None:
                raise missing
            task_id = entry.thread_id
        try:
            known = await self._engine.thread(task_id, caller.user_id)
        except ThreadNotFound as error:
            owner = error.attributes.get("owner")
            if not is_approver_welcome or owner is None:
                raise self._refusal(error, missing) from None
            known = await self._engine.thread(task_id, owner)
            if not _concerns(known.state.runs.get(request_id), caller):
                raise self._refusal(error, missing) from None
        run = known.state.runs.get(request_id)
        if run is None or not self.is_ours(known.head):
            raise missing
        return known, run

    def is_ours(self, head: Thread) -> bool:
        """A task made through the four-method interface has no agent: any of ours may go on."""
        return head.surface == SURFACE and head.agent in ("", self._served.agent)

    def _refusal(self, error: ThreadNotFound, missing: NotFound) -> TealError:
        if "owner" in error.attributes and not self._served.hide_existence:
            return NotOwner()
        return missing


def _concerns(run: Run | None, caller: Caller) -> bool:
    approvals = [call.approval for call in run.calls.values()] if run is not None else []
    return any(
        approval is not None and is_concerned(approval, caller.user_id, caller.memberships)
        for approval in approvals
    )


def _no_task(task_id: str) -> ThreadNotFound:
    return ThreadNotFound(f"There is no task {task_id}.")
