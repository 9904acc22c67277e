"""Requests to one agent: started, resumed, cancelled and read, each for its caller.

Identity, ids and ownership are checked before any history is read or a model called. Everything
after that happens in the engine: a client that leaves stops nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from sk_agents.engine.calls.call import Approval
from sk_agents.engine.calls.reviews import is_concerned, right_to_vote
from sk_agents.engine.commands import CancelRun, DecideApproval, OnDisconnect, StartRun
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.canonical import digest
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import NewThread, Part, UserInput
from sk_agents.engine.ports import Ids, Quota, ThreadQuery
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    AlreadyTerminal,
    ApprovalAlreadyDecided,
    Conflict,
    InvalidInput,
    NotFound,
    RunNotFound,
    StillRunning,
    TealError,
)
from sk_agents.http.caller import Caller
from sk_agents.ska_types import BaseHandler, ContentType
from sk_agents.tealagents.models import (
    Content,
    ResumeRequest,
    Session,
    StateIds,
    Task,
    TealAgentsPartialResponse,
    UserMessage,
)
from sk_agents.tealagents.v1alpha1.access import TaskAccess
from sk_agents.tealagents.v1alpha1.agent import AcceptedRequest, Agent, Progress
from sk_agents.tealagents.v1alpha1.config import SURFACE, ServedTealAgent
from sk_agents.tealagents.v1alpha1.decisions import already_decided, wanted_decisions
from sk_agents.tealagents.v1alpha1.render import (
    STATUSES,
    RequestRenderer,
    labelled,
    summary_of,
    task_of,
    trace_of,
)

SESSION_PAGE = 100
# For ids made of an idempotency key.
_NAMESPACE = uuid.UUID("5a7c3c1e-6c7f-5b52-9d0e-6f1f0a1c2b3d")


class TealAgentsV1Alpha1Handler(BaseHandler):
    def __init__(self, engine: Engine, served: ServedTealAgent, *, ids: Ids | None = None) -> None:
        self.engine = engine
        self._served = served
        self._ids = ids or RandomIds()
        self._access = TaskAccess(engine, served)
        self.loop = Agent(engine)

    async def invoke(
        self, caller: Caller, message: UserMessage, *, key: str | None = None, root: str = ""
    ) -> Content:
        """The answer, or the calls that wait for a person, or why there is neither.

        Raises:
            TealError: see `begin` and `outcome`.
        """
        request = await self.begin(caller, message, key=key, on_disconnect="continue")
        return self.renderer(request.ids, root).outcome(await self.outcome(request))

    async def invoke_stream(
        self, caller: Caller, message: UserMessage, *, key: str | None = None, root: str = ""
    ) -> AsyncGenerator[TealAgentsPartialResponse | Content, None]:
        """The same as it appears: pieces of the answer, then what `invoke` returns."""
        request = await self.begin(caller, message, key=key)
        renderer = self.renderer(request.ids, root)
        async with aclosing(self.loop.follow(request)) as batches:
            async for pieces in batches:
                for piece in pieces:
                    yield renderer.piece(piece)

    async def resume(
        self,
        caller: Caller,
        request_id: str,
        resume: ResumeRequest,
        *,
        key: str | None = None,
        task_id: str | None = None,
        root: str = "",
    ) -> Content:
        """Decide what a paused request waits for; then the same as `invoke`.

        Raises:
            TealError: see `decide` and `outcome`.
        """
        request = await self.decide(caller, request_id, resume, key=key, task_id=task_id)
        return self.renderer(request.ids, root).outcome(await self.outcome(request))

    def renderer(self, ids: StateIds, root: str = "") -> RequestRenderer:
        return RequestRenderer(self._served, ids, root)

    async def begin(
        self,
        caller: Caller,
        message: UserMessage,
        *,
        key: str | None = None,
        on_disconnect: OnDisconnect | None = None,
        quota: Quota | None = None,
    ) -> AcceptedRequest:
        """Start a request; it is stored when this returns.

        Raises:
            Unauthenticated, ThreadNotFound: the task is another's, or there is none.
            Conflict: the task is of another session.
            ThreadBusy, LimitExceeded, InvalidInput, StoreError: as the engine says.
        """
        head = None
        if message.task_id is not None:
            head = await self._access.head(caller, message.task_id)
            if message.session_id not in (None, head.session_id):
                raise Conflict("This task belongs to another session.")
            if head.expires_at is not None and head.expires_at <= datetime.now(UTC):
                raise Conflict("This task has expired.")
            if message.expires_at not in (None, head.expires_at):
                raise InvalidInput("A task's expires_at is set when it is made.")
        task_id = message.task_id or self._new_task_id(caller, key)
        session_id = head.session_id if head else message.session_id or self._ids.new()
        command = StartRun(
            thread_id=task_id,
            user_id=caller.user_id,
            run_id=self._ids.new(),
            message=_input(message),
            new=None if head else self._new_thread(caller, session_id, task_id, message),
            fresh=head is None and key is None,
            agent=None if head is None or head.agent else self._served.agent,
            idempotency_key=key,
            request_digest=self._digest(message) if key is not None else None,
            on_busy=message.on_busy,
            on_disconnect=on_disconnect,
            authorization=caller.authorization,
            quota=quota,
            user_name=caller.name,
        )
        accepted = await self.engine.start(command)
        if accepted.repeated and head is None:
            session_id = (await self._access.head(caller, task_id)).session_id
        elif head is not None and message.metadata is not None and not accepted.repeated:
            given = message.metadata
            await self.engine.catalog.relabel(
                task_id, caller.user_id, lambda present: labelled(present, given)
            )
        ids = StateIds(session_id, task_id, accepted.run_id)
        return AcceptedRequest(ids, caller.user_id, accepted.after)

    async def attach(
        self, caller: Caller, request_id: str, task_id: str | None = None
    ) -> AcceptedRequest:
        """A request that is there, to be followed from its beginning.

        Raises:
            Unauthenticated, RunNotFound: it is another's, or there is none.
        """
        return self._accepted(*await self._access.request(caller, request_id, task_id))

    async def attach_task(self, caller: Caller, task_id: str) -> AcceptedRequest:
        """The request that a task works on, or its last one.

        Raises:
            Unauthenticated, NotFound: the task is another's, or there is none of both.
        """
        await self._access.head(caller, task_id)
        known = await self.engine.thread(task_id, caller.user_id)
        request_id = known.state.active_run or known.state.head_run
        if request_id is None:
            raise RunNotFound(f"The task {task_id} has no request yet.")
        return self._accepted(known, known.state.run(request_id))

    async def outcome(self, request: AcceptedRequest) -> Progress:
        """The request as soon as it has ended or waits for a person.

        Raises:
            StillRunning: it takes longer than a request may wait; it goes on.
        """
        try:
            return await self.loop.outcome(request, self._served.request_wait)
        except TimeoutError:
            raise StillRunning(members=request.ids.fields()) from None
        except TealError as error:
            _name_request(error, request.ids)
            raise

    async def decide(
        self,
        caller: Caller,
        request_id: str,
        resume: ResumeRequest,
        *,
        key: str | None = None,
        task_id: str | None = None,
    ) -> AcceptedRequest:
        """Decide everything that a resume asks for, or nothing; then the request goes on.

        Where others than the requester decide, it is one of them: what they may see of the request
        then is `review`.

        Raises:
            Unauthenticated, RunNotFound: the request is another's, or there is none.
            TealError: see `wanted_decisions` and `Engine.decide`.
        """
        known, run = await self._access.request(
            caller, request_id, task_id, is_approver_welcome=True
        )
        request = self._accepted(known, run)
        try:
            await self._decide(caller, known, run, resume, key)
        except TealError as error:
            _name_request(error, request.ids)
            raise
        return request

    async def review(
        self, caller: Caller, request: AcceptedRequest, root: str = ""
    ) -> dict[str, Any]:
        """The request as it stands, for a caller who is one of those who decide about its calls."""
        known, run = await self._access.request(
            caller, request.ids.request_id, request.ids.task_id, is_approver_welcome=True
        )
        progress = await self.loop.progress(known, run)
        return self.renderer(request.ids, root).review(progress, _concern_of(caller))

    async def cancel(
        self, caller: Caller, request_id: str, task_id: str | None = None
    ) -> tuple[AcceptedRequest, Progress]:
        """Cancel a request, and wait for its end.

        Raises:
            AlreadyTerminal: it had ended by itself.
        """
        known, run = await self._access.request(caller, request_id, task_id)
        request = self._accepted(known, run)
        try:
            await self.engine.cancel(CancelRun(request.ids.task_id, caller.user_id, request_id))
        except AlreadyTerminal as error:
            status = STATUSES[error.attributes["status"]]
            raise AlreadyTerminal(members={**request.ids.fields(), "status": status}) from None
        return request, await self.outcome(request)

    async def request(
        self, caller: Caller, request_id: str, task_id: str | None = None, root: str = ""
    ) -> dict[str, Any]:
        known, run = await self._access.request(caller, request_id, task_id)
        progress = await self.loop.progress(known, run)
        end = run.last_seq or known.state.next_seq - 1
        events = await self.loop.events(known, after=run.first_seq - 1, end=end)
        more = {
            "created_at": run.created_at,
            "completed_at": run.completed_at,
            "trace": [step.model_dump() for step in trace_of(events, request_id)],
        }
        return self.renderer(self._accepted(known, run).ids, root).state(progress) | more

    async def task(self, caller: Caller, task_id: str) -> Task:
        await self._access.head(caller, task_id)
        known = await self.engine.thread(task_id, caller.user_id)
        head, state = known.head, known.state
        status, end = state.status, state.next_seq - 1
        return task_of(head, status, await self.loop.events(known, after=0, end=end))

    async def session(self, caller: Caller, session_id: str, after: str | None) -> Session:
        """Raises `NotFound` if none of this agent's tasks of this user has this session id."""
        query = ThreadQuery(
            caller.user_id, SURFACE, session_id=session_id, after=after, limit=SESSION_PAGE
        )
        page = await self.engine.catalog.threads(query)
        tasks = [summary_of(head) for head in page.threads if self._access.is_ours(head)]
        if not tasks and after is None and page.after is None:
            raise NotFound(f"There is no session {session_id}.")
        return Session(session_id=session_id, user_id=caller.user_id, tasks=tasks, next=page.after)

    async def delete(self, caller: Caller, task_id: str) -> None:
        await self._access.head(caller, task_id)
        await self.engine.delete(task_id, caller.user_id)

    async def _decide(
        self, caller: Caller, known: KnownThread, run: Run, resume: ResumeRequest, key: str | None
    ) -> None:
        progress = await self.loop.progress(known, run)
        commands = [
            DecideApproval(
                approval.request.approval_id,
                caller.user_id,
                wanted.action == "approve",
                thread_id=known.head.thread_id,
                run_id=run.run_id,
                message=wanted.message,
                edited_arguments=wanted.edited_arguments,
                choice=wanted.choice,
                answer=wanted.answer,
                idempotency_key=key,
                authorization=caller.authorization,
                user_name=caller.name,
                memberships=caller.memberships,
            )
            for approval, wanted in wanted_decisions(
                progress,
                resume,
                key,
                user_id=caller.user_id,
                is_decided_by=_decided_by(caller, known.head.user_id),
            )
        ]
        if not commands:
            return
        try:
            await self.engine.decide(*commands)
        except ApprovalAlreadyDecided:
            known, run = await self._access.request(
                caller, run.run_id, known.head.thread_id, is_approver_welcome=True
            )
            raise already_decided(await self.loop.progress(known, run)) from None

    def _accepted(self, known: KnownThread, run: Run) -> AcceptedRequest:
        head = known.head
        ids = StateIds(head.session_id, head.thread_id, run.run_id)
        return AcceptedRequest(ids, head.user_id, run.first_seq - 1)

    def _new_task_id(self, caller: Caller, key: str | None) -> str:
        """A request that is sent again with its key finds the task it has made before."""
        if key is None:
            return self._ids.new()
        return str(uuid.uuid5(_NAMESPACE, digest([caller.user_id, SURFACE, key])))

    def _new_thread(
        self, caller: Caller, session_id: str, task_id: str, message: UserMessage
    ) -> NewThread:
        if message.expires_at is not None and message.expires_at <= datetime.now(UTC):
            raise InvalidInput("expires_at is in the past.")
        return NewThread(
            user_id=caller.user_id,
            session_id=session_id,
            wire_id=task_id,
            surface=SURFACE,
            agent=self._served.agent,
            metadata=labelled(None, message.metadata) if message.metadata else {},
            expires_at=message.expires_at,
        )

    def _digest(self, message: UserMessage) -> str:
        return digest([self._served.agent, message.model_dump(mode="json", exclude={"on_busy"})])


def _decided_by(caller: Caller, owner: str) -> Callable[[Approval], bool]:
    """Whether the caller is one of those who decide."""

    def is_decided_by(approval: Approval) -> bool:
        if not approval.audience.keys:
            return caller.user_id == owner
        try:
            right_to_vote(approval, owner, caller.user_id, caller.memberships)
        except TealError:
            return False
        return True

    return is_decided_by


def _concern_of(caller: Caller) -> Callable[[Approval], bool]:
    return lambda approval: is_concerned(approval, caller.user_id, caller.memberships)


def _name_request(error: TealError, ids: StateIds) -> None:
    """Let the client see which request the error is about."""
    error.attributes["members"] = {**error.attributes.get("members", {}), **ids.fields()}


def _input(message: UserMessage) -> UserInput:
    parts: Sequence[Part] = [
        Part(
            kind="image" if item.content_type == ContentType.IMAGE else "text",
            content=item.content,
        )
        for item in message.items
    ]
    return UserInput(parts=tuple(parts), context=message.user_context or {})
