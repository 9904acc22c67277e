"""Drives the active run of one thread: model, tools, model, until it ends or a person must act.

It is the one place where a run is owned. Others change the thread by commits of their own; the
driver listens to the known thread, so it hears of them as soon as any part of this process does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Literal, TypeVar

from sk_agents.engine.agent import Agent
from sk_agents.engine.calls import steps as tool_steps
from sk_agents.engine.calls.runner import CallRunner
from sk_agents.engine.events import (
    ApprovalDecided,
    Event,
    RunStarted,
    Steered,
    SteeringDelivered,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.commits import Commit, Committed, Owned, Park, Release
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, RunStatus
from sk_agents.engine.reading.live import LiveRun
from sk_agents.engine.run import lifecycle
from sk_agents.engine.run.deadline import Deadline
from sk_agents.engine.run.rounds import ModelRound, Reply
from sk_agents.engine.run.run_context import RunContext, UserHeader
from sk_agents.engine.services import PAUSES, STORE_TROUBLE, Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    BudgetExceeded,
    InvalidInput,
    LeaseLost,
    ModelError,
    SchemaTooNew,
    SequenceConflict,
    StoreBroken,
    ThreadNotFound,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Who makes a run go on by deciding an approval.
MOVERS = ("human", "timeout")


class Driver:
    def __init__(
        self,
        services: Services,
        known: KnownThread,
        agent_of: Callable[[KnownThread], Agent],
        header: UserHeader,
        ended: Callable[[KnownThread, Run, Agent], None],
    ) -> None:
        self._services = services
        self._ended = ended
        self.known = known
        self.thread_id = known.head.thread_id
        self.header = header
        self.epoch = known.head.epoch
        # The run that is driven, also once another instance has ended it.
        self.run = known.state.run(known.state.active_run or "")
        self._draining = False
        # When a person or another part of the system last made it go on.
        self.moved_at = services.clock.monotonic()
        self._agent: Agent
        self._live: LiveRun
        self._agent_of = agent_of
        self._lock = asyncio.Lock()
        self._context: RunContext
        self._calls: CallRunner
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._interruptible = False
        self._deadline: Deadline | None = None

    def start(self) -> asyncio.Task[None]:
        self._announce()
        self._task = asyncio.get_running_loop().create_task(self._drive())
        return self._task

    def poke(self) -> None:
        """The thread has changed, or we are to stop: look again."""
        self._changed.set()
        if self._interruptible and self._task is not None and self._must_stop():
            self._interruptible = False
            self._task.cancel()

    def drain(self) -> None:
        self._draining = True
        self.poke()

    def notice(self, events: Sequence[Event]) -> None:
        """The known thread has taken in these events, or that it was claimed or deleted."""
        for one in events:
            # What a driver withdraws by itself does not count.
            if isinstance(one, Steered) or (isinstance(one, ApprovalDecided) and one.by in MOVERS):
                self.moved_at = self._services.clock.monotonic()
        self.poke()

    async def commit(
        self, *events: Event, lease: Release | Park | None = None, as_of: int | None = None
    ) -> None:
        """Commit as the owner, one at a time.

        `as_of` is the state's `next_seq` when the events were made, if they hold only as long as
        nothing else has happened, be it while this commit waits for another one.

        Raises:
            LeaseLost: another instance has taken over, or deleted the thread; this one may not
                write.
            SequenceConflict: something was appended since `as_of`. Our state is up to date again.
        """
        async with self._lock:
            seen = self.known.state.next_seq if as_of is None else as_of
            guard = Owned(self._services.owner, self.epoch, seen, exact=as_of is not None)
            try:
                commit = self._services.new_commit(self.known, guard, events, lease)
                await self._services.learn_as_driver(self.known, await self._send(commit))
            except SequenceConflict:
                await self._services.threads.load(self.thread_id)
                raise
            except ThreadNotFound as error:
                self.known.mark_deleted()
                raise LeaseLost(thread_id=self.thread_id) from error

    async def _send(self, commit: Commit) -> Committed:
        """Send it until the store takes it: what a model has said and a tool has done is not to be
        lost because a disk is full for a while. Another owner's claim ends that, and draining."""
        try:
            return await self._services.send(commit)
        except STORE_TROUBLE as error:
            self._raise_unless_passing(error)
            extra = {"thread_id": self.thread_id, "error": type(error).__name__}
        logger.warning("the store does not take a run's commit: trying again", extra=extra)
        with self._held_up():
            for pause in chain(PAUSES, repeat(PAUSES[-1])):
                await asyncio.sleep(pause)
                try:
                    return await self._services.send(commit)
                except STORE_TROUBLE as error:
                    self._raise_unless_passing(error)
                if pause == PAUSES[-1]:
                    self._services.stuck.add(self.thread_id)
                    self._services.signals.notify(self.thread_id, local=True)
        raise AssertionError("the pauses have no end")

    def _raise_unless_passing(self, error: Exception) -> None:
        """Whether it is worth waiting until the store takes the commit."""
        if self._draining or isinstance(error, StoreBroken | SchemaTooNew):
            raise error

    @contextmanager
    def _held_up(self) -> Iterator[None]:
        """While the store takes nothing. It does not count as the run's time."""
        deadline = self._deadline
        if deadline is not None:
            deadline.pause()
        try:
            yield
        finally:
            self._services.stuck.discard(self.thread_id)
            # A tool's commit may outlast the time that the driver had for the run.
            if deadline is not None and deadline is self._deadline:
                deadline.go_on()

    @property
    def is_outdated(self) -> bool:
        """Another owner has claimed the thread after us, or it was deleted."""
        return self.known.head.epoch > self.epoch or self.known.is_deleted

    def _must_stop(self) -> bool:
        is_cancelled = self.run.cancel_requested is not None
        return self._draining or is_cancelled or self.is_outdated

    async def _drive(self) -> None:
        self._services.threads.pin(self.thread_id)
        self.known.listeners.append(self.notice)
        try:
            while self.known.state.active_run is not None and not self.is_outdated:
                self.run = self.known.state.run(self.known.state.active_run)
                if self._live.run_id != self.run.run_id:
                    self._announce()
                with self._services.observer.driving(self.known.head, self.known.state):
                    await self._drive_run()
                if self.run.phase not in TERMINAL:
                    break
                if self.run.phase is RunStatus.COMPLETED:
                    self._ended(self.known, self.run, self._agent)
        finally:
            if self._services.live.get(self.thread_id) is self._live:
                del self._services.live[self.thread_id]
                self._services.relay.ended(self.thread_id)
            self.known.listeners.remove(self.notice)
            self._services.threads.unpin(self.thread_id)

    def _announce(self) -> None:
        """From now on readers in this process find the open round of this run in memory."""
        self._live = self._services.live[self.thread_id] = LiveRun(self.run.run_id)
        # Readers that wait for it know of no run here that they could listen to.
        self._services.signals.notify(self.thread_id, local=True)

    async def _drive_run(self) -> None:
        """Until the run has ended, or another instance or a person is to go on."""
        try:
            self._agent = self._agent_of(self.known)
        except InvalidInput:
            if self.run.is_stopping:
                return await self._end(lifecycle.cancelled)
            # A run that was queued for an agent we do not have: another instance may.
            await self.commit(lease=Release())
            return
        self._context = RunContext(
            self._services,
            self.known,
            self.run,
            self.epoch,
            self._agent,
            self._live,
            self.header,
            self.commit,
            self.unless_stopped,
            self._must_stop,
        )
        self._calls = CallRunner(self._context, self._changed)
        assert self._task is not None
        try:
            with Deadline(self._task, self._agent.limits.run_seconds) as self._deadline:
                try:
                    await self._steps()
                finally:
                    self._deadline = None
        except TimeoutError:
            await self._calls.stop()
            await self._fail("run_timeout", "The run took longer than it may.")
        except (ModelError, BudgetExceeded) as error:
            await self._fail(error.code, str(error))
        except LeaseLost:
            await self._calls.let_go()
            raise
        finally:
            if self._calls.running:
                await self._calls.abandon()
            # They refer to us: without this they would live until the garbage collector comes.
            del self._calls, self._context

    async def _steps(self) -> None:
        while True:
            if self.is_outdated:
                raise LeaseLost(thread_id=self.thread_id)
            run = self.run
            if run.cancel_requested is not None:
                return await self._cancel()
            if self._draining:
                return await self._hand_over()
            if run.calls and self._is_rejected:
                return await self._cancel(by="human")
            if run.stop_requested is not None and not self._is_at_work:
                return await self._cancel()
            if run.open_calls:
                if not await self._resolve():
                    return
                continue
            if await self._model_round():
                return

    async def _model_round(self) -> bool:
        """Ask the model once more; True if that ended the run."""
        run = self.run
        model_round = ModelRound(self._context)
        if model_round.number > 1:
            failpoint("next_round")
        if model_round.number > self._agent.limits.model_rounds:
            await self._fail("max_rounds", "The model used tools too many times in one turn.")
            return True
        if tool_steps.invalid_rounds(run) >= self._agent.limits.invalid_rounds:
            await self._fail("invalid_tool_call", "The model kept asking for calls it cannot make.")
            return True
        reply = await self.unless_stopped(model_round.ask)
        if reply is None or run.cancel_requested is not None:
            return False
        if reply.calls:
            await self._calls.propose(reply)
            return False
        failpoint("before_answer")
        return await self._answer(reply)

    async def unless_stopped(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What comes of it; `None` as soon as this driver is to stop, by a cancel for instance."""
        if self._must_stop():
            return None
        self._interruptible = True
        try:
            return await work()
        except asyncio.CancelledError:
            if self._interruptible or not self._must_stop():
                raise
            # The cancellation was ours and has been seen to.
            if self._task is not None:
                self._task.uncancel()
            return None
        finally:
            self._interruptible = False

    async def _answer(self, reply: Reply) -> bool:
        """Unless a cancel was faster: then it is what had been said by then.

        False if the user has said something that the model does not know yet: it is asked again,
        and what it answered was not its last word.
        """
        run = self.run
        while run.cancel_requested is None:
            try:
                if self._must_ask_again(reply):
                    await self.commit(*self._heard(reply), as_of=self.known.state.next_seq)
                    return False
                events = lifecycle.answered(run, reply.answer(), run.usage + reply.usage)
                await self._try_to_end(*reply.thoughts(), *events)
                return True
            except SequenceConflict:
                continue
        await self._cancel(partial="".join(reply.text))
        return True

    def _must_ask_again(self, reply: Reply) -> bool:
        """At the bound on rounds an answer counts more than a message that comes too late."""
        has_rounds_left = reply.round < self._agent.limits.model_rounds
        return bool(self.run.undelivered) and has_rounds_left and not self.run.is_stopping

    def _heard(self, reply: Reply) -> Iterator[Event]:
        """What the model has said so far, and what its next call gets."""
        yield from reply.thoughts(is_last=False)
        yield SteeringDelivered(
            run_id=self.run.run_id,
            round=reply.round + 1,
            message_ids=tuple(one.said.message_id for one in self.run.undelivered),
            usage=reply.usage,
        )

    async def _resolve(self) -> bool:
        """Bring calls to their results; False when only people can do that."""
        while self.run.open_calls and not self._must_stop() and not self._is_rejected:
            self._changed.clear()
            if self.run.stop_requested is not None:
                # Nothing new begins: what runs comes to its end.
                if not self._is_at_work:
                    return True
                await self._calls.wait()
                continue
            if await self._calls.advance():
                continue
            if not self._calls.running and self._calls.hands_over:
                await self._hand_over()
                return False
            if not self._calls.running and self.run.pending_approvals:
                try:
                    await self.commit(lease=Park(), as_of=self.known.state.next_seq)
                except SequenceConflict:
                    continue
                return False
            await self._calls.wait()
        return True

    @property
    def _is_at_work(self) -> bool:
        """Whether a tool runs; one that waits for a person's answer does not."""
        running, open_calls = self._calls.running, self.run.open_calls
        return any(not call.waits for call_id, call in open_calls.items() if call_id in running)

    @property
    def _is_rejected(self) -> bool:
        """Whether a person's no ends this agent's run."""
        return self._agent.on_reject == "cancel" and self.run.is_refused

    async def _cancel(
        self, *, by: Literal["cancel", "human"] = "cancel", partial: str | None = None
    ) -> None:
        partial = partial or self._live.text()
        await self._calls.stop()
        self._live.close_round()
        await self._end(lambda run: lifecycle.cancelled(run, partial=partial, by=by))

    async def _fail(self, code: str, message: str) -> None:
        self._live.close_round()
        correlation_id = self.run.correlation_id or self._services.ids.new()
        logger.warning(
            "run failed",
            extra={
                "run_id": self.run.run_id,
                "correlation_id": correlation_id,
                "user_id": self.known.head.user_id,
                "agent": self._agent.name,
                "code": code,
                # What the user is told, too: it holds nothing that was said.
                "reason": message,
            },
        )
        await self._end(
            lambda run: lifecycle.failed(
                run, code=code, message=message, correlation_id=correlation_id
            )
        )

    async def _end(self, ending: Callable[[Run], Iterable[Event]]) -> None:
        """End the run by what `ending` makes of it, again if another commit was faster."""
        while True:
            try:
                return await self._try_to_end(*ending(self.run))
            except SequenceConflict:
                continue

    async def _try_to_end(self, *events: Event) -> None:
        """The commit that ends the run starts the next one that waits, or gives up the lease.

        Raises:
            SequenceConflict: something was appended that these events do not know of.
        """
        queue, seen = self.known.state.queue, self.known.state.next_seq
        if queue and not self._draining:
            following = RunStarted(run_id=queue[0], parent_run=self.run.run_id)
            await self.commit(*events, following, as_of=seen)
        else:
            await self.commit(*events, lease=Release(), as_of=seen)
        failpoint("run_ended")

    async def _hand_over(self) -> None:
        await self._calls.stop()
        await self.commit(lease=Release())
