"""The calls of one run: proposed, asked about, started, brought to their results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from sk_agents.engine import tool_steps as steps
from sk_agents.engine.calls import Call
from sk_agents.engine.canonical import digest
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.models import ApprovalKind, CallState, Effect, ToolCall
from sk_agents.engine.proposals import proposals
from sk_agents.engine.rounds import Reply
from sk_agents.engine.tool_execution import execute
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import LeaseLost

if TYPE_CHECKING:
    from sk_agents.engine.driver import Driver


class ToolRuns:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._specs: dict[str, ToolSpec] = {
            spec.name: spec for spec in driver.agent.toolbox.specs()
        }
        self.running: dict[str, asyncio.Task[None]] = {}

    def proposed(self, reply: Reply) -> Iterator[Event]:
        """A round's proposals with, in the same commit, everything that needs no waiting."""
        yield from reply.thoughts()
        limits, ids = self._driver.agent.limits, self._driver.services.ids
        made = proposals(reply, self._driver.agent, self._specs, ids, limits)
        yield from made

    async def advance(self) -> bool:
        """Take the next step of every call that has one; True if anything was done."""
        events: list[Event] = []
        starting: list[Call] = []
        for call in self._driver.run.unresolved_calls:
            if call.proposal.call_id in self.running:
                continue
            step = self._step(call)
            if isinstance(step, steps.Start):
                starting.append(call)
            events.extend(self._events(call, step))
        if not events:
            return False
        if starting and not self._driver.services.lease.is_fresh:
            raise LeaseLost(thread_id=self._driver.thread_id)
        await self._driver.commit(*events)
        failpoint("approval_requested")
        for call in starting:
            self._dispatch(call)
        return True

    async def wait(self, changed: asyncio.Event) -> None:
        """Until a tool has its result or somebody has changed the thread."""
        waker = asyncio.ensure_future(changed.wait())
        try:
            await asyncio.wait([waker, *self.running.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        self._collect()

    async def stop(self) -> None:
        """No new call starts; what can be cancelled is, what cannot is waited for, bounded."""
        for call_id, task in self.running.items():
            if self._effect(call_id) is not Effect.AT_MOST_ONCE:
                task.cancel()
        if self.running:
            grace = self._driver.agent.limits.cancel_grace_seconds
            await asyncio.wait(self.running.values(), timeout=grace)
        await self.abandon()

    async def abandon(self) -> None:
        """Leave the rest behind: their outcome stays unknown."""
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)
        self.running.clear()

    def rejected_for_good(self) -> bool:
        """Whether a person's no ends this agent's run."""
        return self._driver.agent.on_reject == "cancel" and any(
            call.finished is not None
            and call.finished.outcome == "refused"
            and call.finished.by == "human"
            for call in self._driver.run.calls.values()
        )

    def _collect(self) -> None:
        for call_id, task in list(self.running.items()):
            if task.done():
                del self.running[call_id]
                task.result()

    def _step(self, call: Call) -> steps.Step:
        state = self._driver.known.state
        wanted = steps.effective_call(call)
        spec = self._specs.get(wanted.name)
        verdict = self._driver.agent.policy.verdict(wanted, spec) if spec is not None else "deny"
        return steps.next_step(self._driver.thread_id, state, self._driver.run, call, spec, verdict)

    def _events(self, call: Call, step: steps.Step) -> Iterator[Event]:
        run_id, call_id = self._driver.run.run_id, call.proposal.call_id
        match step:
            case steps.Start():
                yield self._started(call, step)
            case steps.Ask():
                yield self._asked(call, "tool")
            case steps.AskAgain(approval_id):
                yield ApprovalDecided(
                    run_id=run_id,
                    approval_id=approval_id,
                    call_id=call_id,
                    outcome="withdrawn",
                    by="policy",
                )
            case steps.AskOutcome(reason):
                if call.state is not CallState.UNKNOWN:
                    yield ToolOutcomeUnknown(run_id=run_id, call_id=call_id, reason=reason)
                yield self._asked(call, "outcome_unknown")
            case steps.Refuse(by, text):
                is_problem = call.proposal.problem is not None
                yield ToolFinished(
                    run_id=run_id,
                    call_id=call_id,
                    outcome="error" if is_problem else "refused",
                    by=None if is_problem else by,  # type: ignore[arg-type]  # one of DecidedBy
                    result=text,
                )
            case steps.Settle(text):
                yield ToolFinished(run_id=run_id, call_id=call_id, outcome="ok", result=text)
            case steps.Wait():
                pass

    def _started(self, call: Call, step: steps.Start) -> ToolStarted:
        wanted = steps.effective_call(call)
        run_id = self._driver.run.run_id
        spec = self._specs[wanted.name]
        return ToolStarted(
            run_id=run_id,
            call_id=wanted.id,
            attempt=step.attempt,
            digest=steps.digest_of(self._driver.thread_id, run_id, wanted, spec),
            idempotency_key=digest([self._driver.thread_id, run_id, wanted.id]),
            approval_id=step.approval_id,
            grant_id=step.grant_id,
        )

    def _asked(self, call: Call, kind: ApprovalKind) -> ApprovalRequested:
        services, run_id = self._driver.services, self._driver.run.run_id
        wanted = steps.effective_call(call)
        lifetime = timedelta(seconds=self._driver.agent.limits.approval_seconds)
        shown = {"tool_name": wanted.name, "arguments": wanted.arguments}
        return ApprovalRequested(
            run_id=run_id,
            approval_id=f"approval_{services.ids.new()}",
            call_id=wanted.id,
            kind=kind,
            digest=steps.digest_of(
                self._driver.thread_id, run_id, wanted, self._specs[wanted.name]
            ),
            shown=shown,
            choices=("done", "retry", "give_up") if kind == "outcome_unknown" else None,
            expires_at=services.clock.now() + lifetime,
        )

    def _dispatch(self, call: Call) -> None:
        failpoint("tool_started")
        call_id = call.proposal.call_id
        task = asyncio.get_running_loop().create_task(self._run(call))
        self.running[call_id] = task

    async def _run(self, call: Call) -> None:
        wanted = steps.effective_call(call)
        event = await execute(self._driver, call, wanted, self._specs[wanted.name])
        if isinstance(event, ToolFinished):
            self._driver.live.close_call(wanted.id)
            await self._driver.commit(event)
            failpoint("tool_finished")
        else:
            await self._driver.commit(event, self._asked(call, "outcome_unknown"))

    def _effect(self, call_id: str) -> Effect:
        proposal: ToolProposed = self._driver.run.calls[call_id].proposal
        spec = self._specs.get(_name(proposal))
        return spec.effect if spec is not None else Effect.AT_MOST_ONCE


def _name(proposal: ToolProposed) -> str:
    return ToolCall(
        id=proposal.call_id,
        plugin_name=proposal.plugin_name,
        function_name=proposal.function_name,
        arguments={},
    ).name
