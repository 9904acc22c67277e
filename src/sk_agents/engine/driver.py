"""Drives the active run of one thread: model, tools, model, until it ends or a person must act.

It is the one place where a run is owned. Others change the thread by commits of their own and
then `poke` the driver.
"""

from __future__ import annotations

import asyncio
import logging

from sk_agents.engine import sealing
from sk_agents.engine.agent import Agent
from sk_agents.engine.commits import Owned, Park, Release
from sk_agents.engine.events import Event, RunStarted
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.live import LiveRun
from sk_agents.engine.models import Usage
from sk_agents.engine.rounds import ModelRound
from sk_agents.engine.services import Services
from sk_agents.engine.state import Run
from sk_agents.engine.threads import KnownThread
from sk_agents.engine.tool_runs import ToolRuns
from sk_agents.exceptions import LeaseLost, ModelError, SequenceConflict, StoreError

logger = logging.getLogger(__name__)


class Driver:
    def __init__(
        self,
        services: Services,
        known: KnownThread,
        agent: Agent,
        *,
        authorization: str | None = None,
    ) -> None:
        self.services = services
        self.known = known
        self.agent = agent
        self.authorization = authorization
        self.epoch = known.head.epoch
        self.draining = False
        self._lock = asyncio.Lock()
        self._tools = ToolRuns(self)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._interruptible = False

    @property
    def thread_id(self) -> str:
        return self.known.head.thread_id

    @property
    def run(self) -> Run:
        return self.known.state.run(self.known.state.active_run or "")

    @property
    def live(self) -> LiveRun:
        return self.services.live[self.thread_id]

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.get_running_loop().create_task(self._drive())
        return self._task

    def poke(self) -> None:
        """The thread has changed, or we are to stop: look again."""
        self._changed.set()
        if self._interruptible and self._task is not None and self._must_stop():
            self._interruptible = False
            self._task.cancel()

    def drain(self) -> None:
        self.draining = True
        self.poke()

    async def commit(
        self, *events: Event, lease: Release | Park | None = None, exact: bool = False
    ) -> None:
        """Commit as the owner, one at a time.

        Raises:
            LeaseLost: another instance has taken over; this one may not write.
            SequenceConflict: `exact`, and something was appended. Our state is up to date again.
        """
        async with self._lock:
            state = self.known.state
            guard = Owned(self.services.owner, self.epoch, state.next_seq, exact)
            try:
                await self.services.commit(self.known, guard, *events, lease=lease)
            except SequenceConflict:
                await self.services.threads.load(self.thread_id)
                raise

    def _must_stop(self) -> bool:
        active = self.known.state.active_run
        cancelled = active is not None and self.run.cancel_requested is not None
        return self.draining or cancelled

    async def _drive(self) -> None:
        self.services.threads.pin(self.thread_id)
        try:
            while self.known.state.active_run is not None:
                self.services.live[self.thread_id] = LiveRun(self.run.run_id)
                if not await self._drive_run():
                    break
        finally:
            self.services.live.pop(self.thread_id, None)
            self.services.threads.unpin(self.thread_id)

    async def _drive_run(self) -> bool:
        """True when the run has ended, False when somebody else must drive it on."""
        try:
            async with asyncio.timeout(self.agent.limits.run_seconds):
                return await self._steps()
        except TimeoutError:
            await self._tools.stop()
            await self._fail("run_timeout", "The run took longer than it may.")
        except ModelError as error:
            await self._fail(error.code, str(error))
        except (LeaseLost, StoreError):
            await self._tools.abandon()
            raise
        return True

    async def _steps(self) -> bool:
        while True:
            if self.run.cancel_requested is not None:
                await self._cancel()
                return True
            if self.draining:
                await self._hand_over()
                return False
            if self.run.unresolved_calls:
                if not await self._resolve():
                    return False
                continue
            if await self._model_round():
                return True

    async def _model_round(self) -> bool:
        """Ask the model once more; True if that ended the run."""
        model_round = ModelRound(self)
        if model_round.number > self.agent.limits.model_rounds:
            await self._fail("max_rounds", "The model used tools too many times in one turn.")
            return True
        self._interruptible = True
        try:
            reply = await model_round.ask()
        except asyncio.CancelledError:
            if self._interruptible or not self._must_stop():
                raise
            self._task_was_interrupted()
            return False
        finally:
            self._interruptible = False
        if self.run.cancel_requested is not None:
            return False
        self.live.close_round()
        if reply.calls:
            await self.commit(*self._tools.proposed(reply))
            failpoint("calls_proposed")
            return False
        failpoint("before_answer")
        events = sealing.answered(self.run, reply.answer(), self.run.usage + reply.usage)
        await self._end(*reply.thoughts(), *events)
        return True

    async def _resolve(self) -> bool:
        """Bring every call to its result; False when only people can do that."""
        while self.run.unresolved_calls and not self._must_stop():
            self._changed.clear()
            if await self._tools.advance():
                continue
            if self._tools.rejected_for_good():
                await self._tools.stop()
                await self._cancel(by="human")
                return True
            if not self._tools.running and self.run.pending_approvals:
                if await self._park():
                    return False
                continue
            await self._tools.wait(self._changed)
        return True

    async def _park(self) -> bool:
        try:
            await self.commit(lease=Park(), exact=True)
        except SequenceConflict:
            return False
        return True

    async def _cancel(self, by: str = "cancel") -> None:
        partial = self.live.text()
        await self._tools.stop()
        self.live.close_round()
        events = (
            sealing.cancelled(self.run, partial=partial, usage=self.run.usage)
            if by == "cancel"
            else sealing.cancelled(self.run, partial=None, usage=self.run.usage, by="human")
        )
        await self._end(*events)

    async def _fail(self, code: str, message: str) -> None:
        self.live.close_round()
        correlation_id = self.services.ids.new()
        logger.warning(
            "run failed",
            extra={"run_id": self.run.run_id, "code": code, "correlation_id": correlation_id},
        )
        await self._end(
            *sealing.failed(
                self.run,
                code=code,
                message=message,
                correlation_id=correlation_id,
                usage=self.run.usage or Usage(),
            )
        )

    async def _end(self, *events: Event) -> None:
        """End the run; the same commit starts the next one that waits, or gives up the lease."""
        run = self.run
        if self.known.state.queue and not self.draining:
            following = RunStarted(run_id=self.known.state.queue[0], parent_run=run.run_id)
            await self.commit(*events, following)
        else:
            await self.commit(*events, lease=Release())
        failpoint("run_ended")

    async def _hand_over(self) -> None:
        await self._tools.stop()
        await self.commit(lease=Release())

    def _task_was_interrupted(self) -> None:
        """The cancellation was ours and has been seen to."""
        if self._task is not None:
            self._task.uncancel()
