"""The engine: commands in, events out.

Every command is one conditional commit; what follows from it is driven by the instance that then
holds the lease. A surface never waits inside a run: it sends a command and watches the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from sk_agents.engine.agent import Agent
from sk_agents.engine.calls import decisions
from sk_agents.engine.commands import (
    Accepted,
    CancelRun,
    DecideApproval,
    EditRun,
    StartRun,
    SteerRun,
    WithdrawVote,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, RunStatus
from sk_agents.engine.ports import (
    Audit,
    Budget,
    Clock,
    Copies,
    Ids,
    ListedStore,
    Observer,
    Peers,
    Redaction,
    Signals,
    Store,
)
from sk_agents.engine.reading.readers import GRACE_SECONDS, PERIOD_SECONDS, Readers
from sk_agents.engine.reading.watch import Outlet, Watch, wait_until_settled
from sk_agents.engine.run import lifecycle
from sk_agents.engine.run.drivers import Drivers, Follower
from sk_agents.engine.run.lease_keeper import TTL, LeaseKeeper
from sk_agents.engine.run.recovery import Sweeper
from sk_agents.engine.services import Services
from sk_agents.engine.threads.catalog import RACES, ThreadCatalog
from sk_agents.engine.threads.known import MAX_BYTES, KnownThread, KnownThreads
from sk_agents.engine.threads.retention import RetentionKeeper, RetentionRules
from sk_agents.exceptions import (
    AlreadyTerminal,
    Conflict,
    InvalidInput,
    LeaseHeld,
    RunNotFound,
    SequenceConflict,
    ShuttingDown,
    StoreBroken,
    ThreadBusy,
    ThreadNotFound,
)


@dataclass(frozen=True, slots=True)
class EngineParts:
    services: Services
    drivers: Drivers
    sweeper: Sweeper
    follower: Follower
    readers: Readers
    retention: RetentionKeeper | None


class Engine:
    def __init__(
        self,
        store: Store,
        agents: Mapping[str, Agent],
        *,
        signals: Signals,
        clock: Clock,
        ids: Ids,
        owner: str,
        lease_ttl: float = TTL,
        disconnect_grace: float = GRACE_SECONDS,
        reader_period: float = PERIOD_SECONDS,
        conversation_bytes: int = MAX_BYTES,
        observer: Observer | None = None,
        peers: Peers | None = None,
        budget: Budget | None = None,
        retention: RetentionRules | None = None,
        audit: Audit | None = None,
        copies: Copies | None = None,
    ) -> None:
        lease = LeaseKeeper(store, clock, owner, ttl=lease_ttl)
        threads = KnownThreads(store, conversation_bytes)
        self._services = Services(store, signals, clock, ids, lease, threads, peers=peers)
        if observer is not None:
            self._services.observer = observer
        if budget is not None:
            self._services.budget = budget
        if audit is not None:
            self._services.audit = audit
        if copies is not None:
            self._services.copies = copies
        self.catalog = ThreadCatalog(self._services)
        self._drivers = Drivers(self._services, agents)
        self._services.redactions = _redactions(agents, self._drivers.default_agent)
        self._sweeper = Sweeper(self._services, self._drivers, interval=lease_ttl / 5)
        self._follower = Follower(self._services, self._drivers)
        self._readers = Readers(
            self._services, self._drivers, self.cancel, disconnect_grace, reader_period
        )
        self._retention: RetentionKeeper | None = None
        if retention is not None and isinstance(store, ListedStore):
            self._retention = RetentionKeeper(self._services, store, retention)
        self._services.on_broken = self.drain
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        lease = self._services.lease
        for part in (lease, self._drivers, self._sweeper, self._follower, self._readers):
            await self._stack.enter_async_context(part)
        if self._retention is not None:
            await self._stack.enter_async_context(self._retention)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    @property
    def audit(self) -> Audit:
        return self._services.audit

    @property
    def parts(self) -> EngineParts:
        """What it is made of, for a test that has one part work at once, or no more."""
        return EngineParts(
            self._services,
            self._drivers,
            self._sweeper,
            self._follower,
            self._readers,
            self._retention,
        )

    def drain(self) -> None:
        """Take on nothing more, hand over what runs, send readers elsewhere. Then leave it."""
        self._drivers.drain()
        self._services.dismiss_readers()

    async def broken(self) -> None:
        """Returns once the store must not be used on: the process has to end. Runs are left to
        others by then, and readers sent to them."""
        await self._services.broken.wait()

    async def ping(self) -> None:
        """Return iff the store can serve reads and accept writes now."""
        if self._services.broken.is_set():
            raise StoreBroken
        await self._services.store.ping()

    async def start(self, command: StartRun) -> Accepted:
        """Take on a run; it is durable when this returns.

        Raises:
            ThreadNotFound: no such thread of this user, and none may be made.
            ThreadBusy: another run is active and `on_busy` is `reject`.
            ThreadInBin: it has to be moved back first.
            InvalidInput: the idempotency key was used for another request.
            LimitExceeded: too many runs wait already.
        """
        self._refuse_when_closing()
        failpoint("run_requested")
        self._drivers.check_agent(command.agent or (command.new.agent if command.new else None))
        for _ in range(RACES):
            try:
                return await self._start(command)
            except lifecycle.LOST_RACES:
                await self._loaded(command.thread_id)
            except LeaseHeld:
                await self._loaded(command.thread_id)
                await asyncio.sleep(0)
        raise ThreadBusy(thread_id=command.thread_id)

    async def edit(self, command: EditRun) -> Accepted:
        """Start again from an earlier message; the old answer stays as another branch.

        Raises:
            RunNotFound, ThreadNotFound: nothing there to edit.
            ThreadBusy: a run is active or waits, and `on_busy` is not `interrupt`.
            ThreadInBin: the thread has to be moved back first.
            InvalidInput: the idempotency key was used for another request, or `on_busy` is
                `enqueue`.
        """
        self._refuse_when_closing()
        if command.on_busy == "enqueue":
            raise InvalidInput("An edit cannot wait for its turn.")
        for _ in range(RACES):
            known = await self.thread(command.thread_id, command.user_id)
            if before := lifecycle.repeated(known, command):
                return before
            lifecycle.refuse_in_bin(known)
            if lifecycle.busy_with(known) is not None and command.on_busy == "interrupt":
                await self._interrupt(known, command.user_id)
                continue
            lifecycle.refuse_busy(known)
            failpoint("edit_requested")
            try:
                accepted = await lifecycle.begin_edit(self._services, known, command)
            except (SequenceConflict, LeaseHeld):
                continue
            self._drivers.drive(known, authorization=command.authorization)
            return accepted
        raise ThreadBusy(thread_id=command.thread_id)

    async def decide(self, command: DecideApproval, *more: DecideApproval) -> bool:
        """Decide approvals of one run, all or none; False if this same request did so before.

        Where several people decide, it is a vote, and the decision if it completes their number.

        Raises:
            ApprovalNotFound: no such approval that this user may see, or not of the same run.
            NotApprover: others decide about it.
            ApprovalAlreadyDecided, ApprovalExpired, ApprovalWithdrawn, ApprovalMismatch: and
                nothing was changed.
            InvalidInput, Forbidden: see `decisions.decision_events`.
        """
        known = await decisions.decide(
            self._services,
            self.catalog,
            (command, *more),
            self._drivers.agent_of,
            self._drivers.lending,
        )
        if known is None:
            return False
        failpoint("approval_decided")
        self._drivers.drive(known, authorization=decisions.own_header(known, command))
        return True

    async def withdraw_vote(self, command: WithdrawVote) -> None:
        """Take a vote back. Raises as `decisions.withdraw` does."""
        await decisions.withdraw(self._services, self.catalog, command)

    async def steer(self, command: SteerRun) -> str:
        """Say something to a run that works or waits: its next call of the model gets it.

        The id of the message, which is durable when this returns; the same if this same request
        left it before.

        Raises:
            RunNotFound, ThreadNotFound: nothing there to speak to.
            AlreadyTerminal: the run has ended.
            NotSteerable: it has not begun, or was asked to stop.
            InvalidInput: the idempotency key was used for another request.
            LimitExceeded: it was sent too many messages already, or the budget is used up.
        """
        self._refuse_when_closing()
        for _ in range(RACES):
            known = await self.thread(command.thread_id, command.user_id)
            if before := lifecycle.said_before(known, command):
                return before
            run = known.state.runs.get(command.run_id)
            if run is None:
                raise RunNotFound(run_id=command.run_id)
            lifecycle.check_steerable(run)
            try:
                message_id = await lifecycle.steer(self._services, known, run, command)
            except SequenceConflict:
                continue
            self._drivers.drive(known)
            return message_id
        raise Conflict(thread_id=command.thread_id)

    async def cancel(self, command: CancelRun) -> RunStatus:
        """Stop a run, at once or after its step; its status when this returns.

        Raises:
            RunNotFound, ThreadNotFound: nothing there to cancel.
            AlreadyTerminal: it has ended by itself.
        """
        for _ in range(RACES):
            known = await self.thread(command.thread_id, command.user_id)
            run = known.state.runs.get(command.run_id)
            if run is None:
                raise RunNotFound(run_id=command.run_id)
            if run.phase in TERMINAL:
                if run.is_stopping and run.phase is RunStatus.CANCELLED:
                    return run.phase
                raise AlreadyTerminal(run_id=run.run_id, status=run.phase)
            if run.cancel_requested is not None or (run.is_stopping and command.after == "step"):
                return run.status
            try:
                await lifecycle.request_cancel(self._services, known, run, command)
            except SequenceConflict:
                continue
            self._drivers.drive(known)
            return known.state.run(command.run_id).status
        raise Conflict(thread_id=command.thread_id)

    async def stop(self, thread_id: str, user_id: str) -> None:
        """Stop what runs and what waits for its turn; the thread stays.

        Raises:
            ThreadNotFound: no such thread of this user.
        """
        state = (await self.thread(thread_id, user_id)).state
        for run_id in (*reversed(state.queue), state.active_run):
            if run_id is not None:
                await self._stop(thread_id, user_id, run_id)

    async def delete(self, thread_id: str, user_id: str) -> None:
        """Stop what runs in the thread, then remove it with all that was said.

        Raises:
            ThreadNotFound: no such thread of this user.
        """
        await self.catalog.remove(
            thread_id, user_id, lambda run_id: self._stop(thread_id, user_id, run_id)
        )

    def watch(
        self,
        thread_id: str,
        *,
        after: int = 0,
        run_id: str | None = None,
        incarnation: str | None = None,
        outlet: Outlet | None = None,
    ) -> Watch:
        """See `Watch`. The caller has checked whose thread it is.

        Who watches a run is its reader: `on_disconnect` says what the last one's leaving means.
        """
        return Watch(
            self._services,
            thread_id,
            after=after,
            run_id=run_id,
            incarnation=incarnation,
            readers=self._readers,
            outlet=outlet,
        )

    async def result(self, thread_id: str, run_id: str, *, seconds: float | None = None) -> Run:
        """See `wait_until_settled`. The caller is a reader of the run."""
        self._readers.joined(thread_id, run_id)
        try:
            return await wait_until_settled(self._services, thread_id, run_id, seconds)
        finally:
            self._readers.left(thread_id, run_id)

    async def thread(self, thread_id: str, user_id: str) -> KnownThread:
        """The thread as it is now.

        Raises:
            ThreadNotFound: no such thread of this user.
        """
        known = await self._services.threads.load(thread_id)
        lifecycle.check_owner(known, user_id)
        return known

    async def unowned_thread(self, thread_id: str) -> KnownThread:
        """The same for a caller that has checked the right to read it.

        Raises:
            ThreadNotFound: no such thread.
        """
        return await self._services.threads.load(thread_id)

    async def _start(self, command: StartRun) -> Accepted:
        known = self._services.threads.known(command.thread_id)
        if known is None and not command.fresh:
            known = await self._loaded(command.thread_id)
        if known is None:
            if command.new is None:
                raise ThreadNotFound(thread_id=command.thread_id)
            made = await lifecycle.create(self._services, command, command.new)
            self._drivers.drive(made, authorization=command.authorization)
            return Accepted(command.thread_id, command.run_id, after=0)
        lifecycle.check_owner(known, command.user_id)
        try:
            return await self._start_on(known, command)
        except ThreadNotFound as error:
            # What was known here was deleted elsewhere: look again, and make it if it may be made.
            raise SequenceConflict(thread_id=command.thread_id) from error

    async def _start_on(self, known: KnownThread, command: StartRun) -> Accepted:
        if before := lifecycle.repeated(known, command):
            return before
        if lifecycle.busy_with(known) is not None or lifecycle.is_in_bin(known):
            # Only a fresh look may say no.
            known = await self._services.threads.load(command.thread_id)
            if before := lifecycle.repeated(known, command):
                return before
            lifecycle.refuse_in_bin(known)
            if lifecycle.busy_with(known) is not None:
                if command.on_busy == "enqueue":
                    return await lifecycle.enqueue(self._services, known, command)
                if command.on_busy == "interrupt":
                    await self._interrupt(known, command.user_id)
                    raise SequenceConflict
                lifecycle.refuse_busy(known)
        accepted = await lifecycle.begin(self._services, known, command)
        self._drivers.drive(known, authorization=command.authorization)
        return accepted

    async def _loaded(self, thread_id: str) -> KnownThread | None:
        try:
            return await self._services.threads.load(thread_id)
        except ThreadNotFound:
            return None

    async def _interrupt(self, known: KnownThread, user_id: str) -> None:
        """Cancel what keeps the thread busy, and see it end."""
        thread_id, run_id = known.head.thread_id, lifecycle.busy_with(known)
        assert run_id is not None
        await self._stop(thread_id, user_id, run_id)
        await self._services.threads.load(thread_id)

    async def _stop(self, thread_id: str, user_id: str, run_id: str) -> None:
        after = (await self.thread(thread_id, user_id)).state.next_seq - 1
        try:
            await self.cancel(CancelRun(thread_id, user_id, run_id, reason="interrupt"))
        except AlreadyTerminal:
            return
        async for _ in Watch(self._services, thread_id, after=after, run_id=run_id):
            pass

    def _refuse_when_closing(self) -> None:
        if self._drivers.draining:
            raise ShuttingDown


def _redactions(agents: Mapping[str, Agent], default: str) -> dict[str, Redaction]:
    named = {name: agent.redaction for name, agent in agents.items() if agent.redaction is not None}
    return {**named, "": named[default]} if default in named else named
