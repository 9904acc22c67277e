"""The calls of one run: proposed, asked about, started, brought to their results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from sk_agents.engine.calls import steps
from sk_agents.engine.calls.approval_previews import with_previews
from sk_agents.engine.calls.call import Call
from sk_agents.engine.calls.execution import execute
from sk_agents.engine.calls.late_results import attach_late_result
from sk_agents.engine.calls.proposals import proposals
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolStarted,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import ApprovalKind, CallState, Effect, ToolCall
from sk_agents.engine.run.loop_share import LoopShare
from sk_agents.engine.run.rounds import Reply
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import LeaseLost, SequenceConflict

if TYPE_CHECKING:
    from sk_agents.engine.run.driver import Driver


NextStep = tuple[Call, steps.Step, ToolSpec | None]


class ToolRuns:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.running: dict[str, asyncio.Task[None]] = {}
        self._harmless: set[str] = set()
        self.hands_over = False
        """Whether a call waits for the instance that holds the header it was lent."""

    async def proposed(self, reply: Reply) -> list[Event]:
        """A round's proposals with, in the same commit, everything that needs no waiting."""
        events: list[Event] = [*reply.thoughts()]
        share = LoopShare()
        for proposal in proposals(reply, self._driver.agent, self._driver.services.ids):
            events.append(proposal)
            await share.pause()
        return events

    async def advance(self) -> bool:
        """Take the next step of every call that has one; True if anything was done."""
        share = LoopShare()
        next_steps: list[NextStep] = []
        for one in self._next_steps():
            next_steps.append(one)
            await share.pause()
        self.hands_over = any(isinstance(step, steps.HandOver) for _, step, _ in next_steps)
        if self._driver.agent.on_reject == "cancel" and any(map(_is_refusal, next_steps)):
            # It ends the run: what was allowed beside it must not start any more.
            next_steps = [one for one in next_steps if _is_refusal(one)]
        events: list[Event] = []
        for one in next_steps:
            events.extend(self._events(*one))
            await share.pause()
        starting = [
            (call, spec)
            for call, step, spec in next_steps
            if isinstance(step, steps.Start) and spec is not None
        ]
        if not events:
            return False
        driver = self._driver
        shown = await driver.unless_stopped(lambda: with_previews(driver, events))
        if shown is None:
            # Whoever called looks at why.
            return True
        checked = self._driver.services.clock.monotonic()
        if starting:
            await self._check_lease(checked)
        try:
            # Exactly as seen: after a cancel no tool starts, after a decision none stays behind.
            await self._driver.commit(*shown, exact=True)
        except SequenceConflict:
            return True
        if any(isinstance(event, ApprovalRequested) for event in events):
            failpoint("approval_requested")
        for call, spec in starting:
            self._dispatch(call, spec, checked)
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
        """What can be cancelled is, what cannot is waited for, bounded."""
        self._cancel_harmless()
        if self.running:
            grace = self._driver.agent.limits.cancel_grace_seconds
            await asyncio.wait(self.running.values(), timeout=grace)
        await self.abandon()

    async def let_go(self) -> None:
        """The run is another's now: what cannot be cancelled ends, and its result comes late."""
        self._cancel_harmless()
        await asyncio.gather(*self.running.values(), return_exceptions=True)

    def _cancel_harmless(self) -> None:
        for call_id in self._harmless & self.running.keys():
            self.running[call_id].cancel()

    async def abandon(self) -> None:
        """Leave the rest behind: their outcome stays unknown."""
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)
        self.running.clear()

    def _collect(self) -> None:
        for call_id, task in list(self.running.items()):
            if task.done():
                del self.running[call_id]
                task.result()

    def _next_steps(self) -> Iterator[NextStep]:
        """Of the calls that neither run nor wait for a person."""
        idle = [
            call
            for call in self._driver.run.unresolved_calls
            if call.proposal.call_id not in self.running and not call.waits
        ]
        if not idle:
            return
        specs = {spec.name: spec for spec in self._driver.agent.toolbox.specs()}
        for call in idle:
            spec = specs.get(steps.effective_call(call).name)
            yield call, self._step(call, spec), spec

    def _step(self, call: Call, spec: ToolSpec | None) -> steps.Step:
        state, policy = self._driver.known.state, self._driver.agent.policy
        verdict = policy.verdict(steps.effective_call(call), spec) if spec is not None else "deny"
        return steps.next_step(
            self._driver.thread_id,
            state,
            self._driver.run,
            call,
            spec,
            verdict,
            lacks_authorization=spec is not None and self._lacks_authorization(spec),
            may_hand_over=not self._driver.header_is_lost,
        )

    def _lacks_authorization(self, spec: ToolSpec) -> bool:
        """Where nobody can be asked for it, the tool itself tells the model."""
        needs_one = spec.requires_authorization and self._driver.agent.is_attended
        return needs_one and self._driver.authorization is None

    def _events(self, call: Call, step: steps.Step, spec: ToolSpec | None) -> Iterator[Event]:
        run_id, call_id = self._driver.run.run_id, call.proposal.call_id
        match step:
            case steps.Start():
                yield self._started(call, step, spec)
            case steps.Ask(kind):
                yield self._asked(call, kind, spec)
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
                yield self._asked(call, "outcome_unknown", spec)
            case steps.Refuse(by, text):
                outcome: Literal["error", "refused"] = "error" if by is None else "refused"
                yield ToolFinished(
                    run_id=run_id, call_id=call_id, outcome=outcome, by=by, result=text
                )
            case steps.Settle(text, settled, by):
                yield ToolFinished(
                    run_id=run_id, call_id=call_id, outcome=settled, by=by, result=text
                )
            case steps.Wait() | steps.HandOver():
                pass

    def _started(self, call: Call, step: steps.Start, spec: ToolSpec | None) -> ToolStarted:
        wanted = steps.effective_call(call)
        run_id = self._driver.run.run_id
        return ToolStarted(
            run_id=run_id,
            call_id=wanted.id,
            attempt=step.attempt,
            digest=steps.digest_of(self._driver.thread_id, run_id, wanted, spec),
            idempotency_key=digest([self._driver.thread_id, run_id, wanted.id]),
            approval_id=step.approval_id,
            grant_id=step.grant_id,
        )

    def _asked(self, call: Call, kind: ApprovalKind, spec: ToolSpec | None) -> ApprovalRequested:
        services, run_id = self._driver.services, self._driver.run.run_id
        wanted = steps.effective_call(call)
        lifetime = timedelta(seconds=self._driver.agent.limits.approval_seconds)
        choices, schema = _answers(kind, wanted)
        return ApprovalRequested(
            run_id=run_id,
            approval_id=f"approval_{services.ids.new()}",
            call_id=wanted.id,
            kind=kind,
            digest=steps.digest_of(self._driver.thread_id, run_id, wanted, spec),
            shown=steps.shown_call(wanted),
            choices=choices,
            answer_schema=schema,
            expires_at=services.clock.now() + lifetime,
            asked_uptime=services.clock.monotonic(),
        )

    def _dispatch(self, call: Call, spec: ToolSpec, checked: float) -> None:
        failpoint("tool_started")
        wanted = steps.effective_call(call)
        if spec.effect is not Effect.AT_MOST_ONCE:
            self._harmless.add(wanted.id)
        task = asyncio.get_running_loop().create_task(self._run(call, wanted, spec, checked))
        self.running[wanted.id] = task

    async def _run(self, call: Call, wanted: ToolCall, spec: ToolSpec, checked: float) -> None:
        await self._check_lease(checked)
        driver = self._driver
        with driver.services.observer.tool_call(
            driver.known.head, driver.run, driver.agent.name, wanted
        ) as ended:
            event = await execute(driver, call, wanted, spec)
            ended(_told(event))
        if isinstance(event, ToolFinished):
            self._driver.live.close_call(wanted.id)
            await self._finish(call, event)
            failpoint("tool_finished")
        elif event is not None:
            asked = self._asked(call, "outcome_unknown", spec)
            await self._conclude(call, event, asked)
        else:
            # Without a result it is one that `advance` starts again.
            await self._conclude(call)

    async def _check_lease(self, since: float) -> None:
        """Nothing may be started under a lease that another instance may have taken."""
        driver = self._driver
        if not await driver.services.holds(driver.known, driver.epoch, since=since):
            raise LeaseLost(thread_id=driver.thread_id)

    async def _conclude(self, call: Call, *events: Event) -> None:
        while True:
            withdrawn = tuple(self._withdrawn(call))
            if not withdrawn and not events:
                return
            try:
                # What is withdrawn may be answered meanwhile.
                await self._driver.commit(*withdrawn, *events, exact=bool(withdrawn))
                return
            except SequenceConflict:
                continue

    def _withdrawn(self, call: Call) -> Iterator[ApprovalDecided]:
        """What a tool has asked and will not hear the answer of."""
        if call.waits and call.approval is not None:
            yield ApprovalDecided(
                run_id=self._driver.run.run_id,
                approval_id=call.approval.request.approval_id,
                call_id=call.proposal.call_id,
                outcome="withdrawn",
                by="cancel",
            )

    async def _finish(self, call: Call, finished: ToolFinished) -> None:
        try:
            await self._conclude(call, finished)
        except LeaseLost:
            services, thread_id = self._driver.services, self._driver.thread_id
            await attach_late_result(services, thread_id, finished)
            raise


def _told(event: ToolFinished | ToolOutcomeUnknown | None) -> str:
    """The outcome in an observer's words; breaking off is an error of the attempt."""
    match event:
        case ToolFinished():
            return event.outcome
        case ToolOutcomeUnknown():
            return "unknown"
        case None:
            return "error"


def _is_refusal(one: NextStep) -> bool:
    """A person said no."""
    return isinstance(one[1], steps.Refuse) and one[1].by == "human"


def _answers(
    kind: ApprovalKind, wanted: ToolCall
) -> tuple[tuple[str, ...] | None, dict[str, Any] | None]:
    """What may be answered: the choices there are, or the schema to follow."""
    if kind == "outcome_unknown":
        return ("done", "retry", "give_up"), None
    if kind != "question":
        return None, None
    choices, schema = wanted.arguments.get("choices"), wanted.arguments.get("schema")
    return (
        tuple(map(str, choices)) if isinstance(choices, list) and choices else None,
        schema if isinstance(schema, dict) else None,
    )
