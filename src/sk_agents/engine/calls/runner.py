"""The calls of one run: proposed, asked about, started, brought to their results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sk_agents.engine.calls import steps
from sk_agents.engine.calls.call import SIGN_IN, Call
from sk_agents.engine.calls.execution import attach_late_result, execute
from sk_agents.engine.calls.previews import shown_preview
from sk_agents.engine.calls.proposals import Room, proposals
from sk_agents.engine.calls.questions import approval_request
from sk_agents.engine.events import (
    ApprovalRequested,
    Event,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import ApprovalKind, CallState, Effect, Review, ToolCall
from sk_agents.engine.run.redacting import redacted_shown
from sk_agents.engine.run.rounds import Reply
from sk_agents.engine.run.run_context import RunContext
from sk_agents.engine.run.vault import closed, opened
from sk_agents.engine.services import patiently
from sk_agents.engine.turns import ToolContext, ToolSpec
from sk_agents.exceptions import LeaseLost, SequenceConflict

# How long a preview may keep its question waiting.
PREVIEW_SECONDS = 5.0
# How long the calls of a round may hold the event loop before others get their turn.
SLICE_SECONDS = 0.005

_FREE_START = steps.Start()

NextStep = tuple[steps.Case, steps.Step]


class CallRunner:
    def __init__(self, context: RunContext, changed: asyncio.Event) -> None:
        self._context = context
        # Set whenever the driver has to look again: at the thread, or at a call that has ended.
        self._changed = changed
        self.running: dict[str, asyncio.Task[None]] = {}
        self._harmless: set[str] = set()
        # What calls have come to and is not stored; the task that will store it; all such tasks.
        self._results: list[Event] = []
        self._next_store: asyncio.Task[None] | None = None
        self._stores: set[asyncio.Task[None]] = set()
        self.hands_over = False
        """Whether a call waits for the instance that holds the header it was lent."""

    async def propose(self, reply: Reply) -> None:
        """Store the calls of a round. If all of them may run, the same commit starts them."""
        context, seen = self._context, self._context.known.state.next_seq
        events = await self._proposed(reply)
        checked = context.services.clock.monotonic()
        is_stopping = context.must_stop() or context.run.is_stopping
        starts = [] if is_stopping else await self._free_starts(events)
        if starts and await self._holds_lease(checked):
            try:
                # As seen: after a cancel no tool starts.
                await context.commit(*events, *(start for start, _ in starts), as_of=seen)
            except SequenceConflict:
                pass
            else:
                failpoint("calls_proposed")
                for start, spec in starts:
                    self._dispatch(context.run.calls[start.call_id], spec, checked)
                return
        await context.commit(*events)
        failpoint("calls_proposed")

    async def _free_starts(self, events: Sequence[Event]) -> list[tuple[ToolStarted, ToolSpec]]:
        """The starts of the proposed calls, if each may run without anyone being asked."""
        proposed = [event for event in events if isinstance(event, ToolProposed)]
        if any(one.gated or one.problem is not None for one in proposed):
            return []
        calls = list(map(Call, proposed))
        specs = {spec.name: spec for spec in self._context.agent.toolbox.specs()}
        if await self._sign_ins(calls):
            return []
        starts: list[tuple[ToolStarted, ToolSpec]] = []
        loop_slice = _LoopSlice()
        for call in calls:
            spec = specs.get(call.proposed.name)
            if spec is None:
                return []
            # What the policy said when it was proposed, which is now.
            case = self._case(call, spec, verdict="allow")
            step = steps.next_step(case)
            if step != _FREE_START:
                return []
            starts.append((self._started(case, step), spec))
            await loop_slice.yield_if_used_up()
        return starts

    async def _proposed(self, reply: Reply) -> list[Event]:
        events: list[Event] = [*reply.thoughts()]
        loop_slice = _LoopSlice()
        agent, ids = self._context.agent, self._context.services.ids
        room = await self._room(len(reply.calls))
        question = self._question(reply)
        secrets = self._context.known.state.secrets
        for proposal in proposals(reply, agent, ids, room=room, question=question, secrets=secrets):
            events.append(proposal)
            await loop_slice.yield_if_used_up()
        return events

    async def _room(self, wanted: int) -> Room:
        """How many further calls this run and its user may make."""
        context, most = self._context, self._context.agent.limits.tool_calls
        wanted = min(wanted, context.agent.limits.calls_per_round)
        if most is not None and len(context.run.calls) + wanted > most:
            left = max(0, most - len(context.run.calls))
            problem = f"This turn has made as many calls as it may: {most}. Answer without more."
        else:
            left = wanted
            problem = "You have made as many calls in this hour as you may. Answer without more."
        spender = context.spender
        admitted = await patiently(lambda: context.services.budget.admit_calls(spender, left))
        return Room(admitted, problem)

    def _question(self, reply: Reply) -> str | None:
        """What a person is asked before the run goes on to spend, until one has allowed it. Where
        no person can be asked, only the end of the budget stops it."""
        if not self._context.agent.is_attended or steps.may_spend_more(self._context.run):
            return None
        return reply.budget_question

    async def advance(self) -> bool:
        """Take the next step of every call that has one; True if anything was done."""
        context, loop_slice = self._context, _LoopSlice()
        seen = context.known.state.next_seq
        next_steps: list[NextStep] = []
        idle = self._idle_calls()
        sign_ins = await self._sign_ins(idle) if idle else {}
        for one in self._next_steps(idle, sign_ins):
            next_steps.append(one)
            await loop_slice.yield_if_used_up()
        self.hands_over = any(isinstance(step, steps.HandOver) for _, step in next_steps)
        if context.agent.on_reject == "cancel" and any(map(_is_refusal, next_steps)):
            # It ends the run: what was allowed beside it must not start any more.
            next_steps = [one for one in next_steps if _is_refusal(one)]
        events: list[Event] = []
        for one in next_steps:
            events.extend(self._events(*one))
            await loop_slice.yield_if_used_up()
        starting = [
            (case.call, case.spec)
            for case, step in next_steps
            if isinstance(step, steps.Start) and case.spec is not None
        ]
        if not events:
            return False
        shown = await context.unless_stopped(lambda: _with_previews(context, events))
        if shown is None:
            # The driver looks at why.
            return True
        checked = context.services.clock.monotonic()
        if starting:
            await self._check_lease(checked)
        try:
            # As seen: after a cancel no tool starts, after a decision none stays behind.
            await context.commit(*shown, as_of=seen)
        except SequenceConflict:
            return True
        if any(isinstance(event, ApprovalRequested) for event in events):
            failpoint("approval_requested")
        for call, spec in starting:
            self._dispatch(call, spec, checked)
        return True

    async def wait(self) -> None:
        """Until a tool has its result or the thread has changed."""
        if not any(task.done() for task in self.running.values()):
            await self._changed.wait()
        for call_id, task in list(self.running.items()):
            if task.done():
                del self.running[call_id]
                task.result()

    async def stop(self) -> None:
        """Cancel what can be cancelled; wait for the rest, for a limited time."""
        self._cancel_harmless()
        if self.running:
            grace = self._context.agent.limits.cancel_grace_seconds
            await asyncio.wait(self.running.values(), timeout=grace)
        await self.abandon()

    async def let_go(self) -> None:
        """Another instance has the run: what cannot be cancelled ends, and its result is late."""
        self._cancel_harmless()
        await asyncio.gather(*self.running.values(), return_exceptions=True)

    def _cancel_harmless(self) -> None:
        for call_id in self._harmless & self.running.keys():
            self.running[call_id].cancel()

    async def abandon(self) -> None:
        """Leave the rest behind: their outcome stays unknown."""
        tasks = [*self.running.values(), *self._stores]
        self.running.clear()
        left = [task for task in tasks if not _has_ended(task)]
        if left:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _idle_calls(self) -> list[Call]:
        """Those that neither run nor wait for a person."""
        return [
            call
            for call in self._context.run.unresolved_calls
            if call.proposal.call_id not in self.running and not call.waits
        ]

    async def _sign_ins(self, calls: Sequence[Call]) -> Mapping[str, str]:
        """Of the tools of these calls, those that the user must sign in for, and where. Where no
        person can do that, the tool itself says so to the model."""
        context = self._context
        if not context.agent.is_attended:
            return {}
        names = {call.wanted.name for call in calls}
        return await context.agent.toolbox.sign_ins(names, context.known.head.user_id)

    def _next_steps(self, idle: Sequence[Call], sign_ins: Mapping[str, str]) -> Iterator[NextStep]:
        if not idle:
            return
        specs = {spec.name: spec for spec in self._context.agent.toolbox.specs()}
        for call in idle:
            name = call.wanted.name
            case = self._case(call, specs.get(name), sign_ins.get(name))
            yield case, steps.next_step(case)

    def _case(
        self,
        call: Call,
        spec: ToolSpec | None,
        sign_in: str | None = None,
        verdict: str | None = None,
    ) -> steps.Case:
        """Without a `verdict` the policy is asked."""
        context = self._context
        agent, header = context.agent, context.header
        lacks_authorization = False
        if spec is None:
            verdict = "deny"
        else:
            verdict = verdict or agent.policy.verdict(_true_call(context, call), spec)
            # Where no person can be asked for it, the tool itself says so to the model.
            needs_header = spec.requires_authorization and agent.is_attended
            lacks_authorization = needs_header and header.value is None
        return steps.Case(
            context.thread_id,
            context.known.state,
            context.run,
            call,
            spec,
            verdict,
            lacks_authorization,
            may_hand_over=not header.is_lost,
            sign_in=sign_in,
            review=self._review(call.wanted, spec) if verdict == "ask" else None,
            redaction=agent.redaction,
        )

    def _review(self, wanted: ToolCall, spec: ToolSpec | None) -> Review | None:
        if spec is None:
            return None
        return self._context.agent.policy.review(_opened(self._context, wanted), spec)

    def _events(self, of: steps.Case, step: steps.Step) -> Iterator[Event]:
        call, spec = of.call, of.spec
        run_id, call_id = self._context.run_id, call.proposal.call_id
        match step:
            case steps.Start():
                yield self._started(of, step)
            case steps.Ask(kind, sign_in):
                yield self._asked(call, kind, spec, sign_in)
            case steps.AskAgain(approval):
                yield approval.closed("withdrawn", "policy")
            case steps.AskOutcome(reason):
                if call.state is not CallState.UNKNOWN:
                    yield ToolOutcomeUnknown(run_id=run_id, call_id=call_id, reason=reason)
                yield self._asked(call, "outcome_unknown", spec)
            case steps.Finish(outcome, by, text, attachments):
                yield ToolFinished(
                    run_id=run_id,
                    call_id=call_id,
                    outcome=outcome,
                    by=by,
                    result=text,
                    attachments=attachments,
                )
            case steps.Wait() | steps.HandOver():
                pass

    def _started(self, case: steps.Case, step: steps.Start) -> ToolStarted:
        thread_id, run_id = self._context.thread_id, self._context.run_id
        wanted = case.call.wanted
        return ToolStarted(
            run_id=run_id,
            call_id=wanted.id,
            attempt=step.attempt,
            digest=case.digest_of(wanted),
            idempotency_key=digest([thread_id, run_id, wanted.id]),
            approval_id=step.approval_id,
            grant_id=step.grant_id,
        )

    def _asked(
        self,
        call: Call,
        kind: ApprovalKind,
        spec: ToolSpec | None,
        sign_in: str | None = None,
    ) -> ApprovalRequested:
        wanted = call.wanted
        review = self._review(wanted, spec)
        choices, schema = _answers(kind, wanted, review)
        shown = steps.shown_call(wanted)
        if kind == "tool" and call.proposal.budget is not None:
            shown["budget"] = call.proposal.budget
        if sign_in is not None:
            shown[SIGN_IN] = sign_in
        return approval_request(self._context, wanted, spec, kind, shown, choices, schema, review)

    def _dispatch(self, call: Call, spec: ToolSpec, checked: float) -> None:
        failpoint("tool_started")
        wanted = call.wanted
        if spec.effect is not Effect.AT_MOST_ONCE:
            self._harmless.add(wanted.id)
        task = asyncio.get_running_loop().create_task(self._run(call, wanted, spec, checked))
        task.add_done_callback(self._wake_driver)
        self.running[wanted.id] = task

    def _wake_driver(self, _ended: asyncio.Task[None]) -> None:
        self._changed.set()

    async def _run(self, call: Call, wanted: ToolCall, spec: ToolSpec, checked: float) -> None:
        await self._check_lease(checked)
        context = self._context
        with context.services.observer.tool_call(
            context.known.head, context.run, context.agent.name, wanted
        ) as ended:
            event = await execute(context, call, wanted, spec)
            ended(_observed_outcome(event))
        if isinstance(event, ToolFinished):
            context.live.close_call(wanted.id)
            try:
                await self._conclude(call, event)
            except LeaseLost:
                await attach_late_result(context.services, context.thread_id, event)
                raise
            failpoint("tool_finished")
        elif event is not None:
            await self._conclude(call, event, self._asked(call, "outcome_unknown", spec))
        else:
            # Without a result it is one that `advance` starts again.
            await self._conclude(call)

    async def _check_lease(self, since: float) -> None:
        if not await self._holds_lease(since):
            raise LeaseLost(thread_id=self._context.thread_id)

    async def _holds_lease(self, since: float) -> bool:
        """Nothing may be started under a lease that another instance may have taken."""
        context = self._context
        return await context.services.holds(context.known, context.epoch, since=since)

    async def _conclude(self, call: Call, *events: Event) -> None:
        """Commit these events, and withdraw what the tool has asked and will get no answer to."""
        while call.waits and call.approval is not None:
            seen = self._context.known.state.next_seq
            withdrawn = call.approval.closed("withdrawn", "cancel")
            try:
                # It may be answered at the same time.
                return await self._context.commit(withdrawn, *events, as_of=seen)
            except SequenceConflict:
                continue
        if events:
            await self._store_with_others(events)

    async def _store_with_others(self, events: Sequence[Event]) -> None:
        """Calls that end together, or while another one's end is being stored, share a commit."""
        self._results.extend(events)
        if self._next_store is None:
            self._next_store = asyncio.get_running_loop().create_task(self._store(*self._stores))
            self._stores.add(self._next_store)
            self._next_store.add_done_callback(self._has_stored)
        await asyncio.shield(self._next_store)

    async def _store(self, *earlier: asyncio.Task[None]) -> None:
        if earlier:
            await asyncio.wait(earlier)
        self._next_store = None
        results, self._results = self._results, []
        await self._context.commit(*results)

    def _has_stored(self, task: asyncio.Task[None]) -> None:
        self._stores.discard(task)
        # Those who wait for it have the error; perhaps none of them does any more.
        _has_ended(task)


def _has_ended(task: asyncio.Task[None]) -> bool:
    """If so, its error is taken note of: asyncio logs it otherwise."""
    if task.done():
        task.cancelled() or task.exception()
    return task.done()


class _LoopSlice:
    """One piece of work on the event loop, so that others need not wait for all of it."""

    __slots__ = ("_loop", "_until")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + SLICE_SECONDS

    async def yield_if_used_up(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + SLICE_SECONDS


async def _with_previews(context: RunContext, events: Sequence[Event]) -> Sequence[Event]:
    """The same events; where a tool has a preview, the question about its call shows it.

    A preview helps to decide and binds no one: the digest of an approval stands for the arguments,
    and what they are about may be another by the time the call runs.
    """
    if not any(isinstance(event, ApprovalRequested) for event in events):
        return events
    return await asyncio.gather(*(_with_preview(context, event) for event in events))


async def _with_preview(context: RunContext, event: Event) -> Event:
    if not isinstance(event, ApprovalRequested) or event.kind != "tool":
        return event
    tool_context = ToolContext(
        thread_id=context.thread_id,
        run_id=context.run_id,
        call_id=event.call_id,
        user_id=context.known.head.user_id,
        idempotency_key="",
    )
    call = _true_call(context, context.run.calls[event.call_id])
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            preview = await context.agent.toolbox.preview(call, tool_context)
    except TimeoutError:
        return event
    if preview is None:
        return event
    wanted = context.run.calls[event.call_id].wanted

    def hide(shown: dict[str, Any]) -> dict[str, Any]:
        shown = closed(shown, wanted, context.known.state.secrets)
        return redacted_shown(context.agent.redaction, shown)

    # What will run comes last: nothing of a preview can take its place.
    shown = {**shown_preview(preview, hide), **event.shown}
    return event.model_copy(update={"shown": shown})


def _true_call(context: RunContext, call: Call) -> ToolCall:
    """As its tool gets it: what rules and previews look at."""
    return _opened(context, call.wanted)


def _opened(context: RunContext, wanted: ToolCall) -> ToolCall:
    agent, secrets = context.agent, context.known.state.secrets
    return opened(agent.redaction, agent.toolbox, wanted, secrets)


def _observed_outcome(event: ToolFinished | ToolOutcomeUnknown | None) -> str:
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
    return isinstance(one[1], steps.Finish) and (one[1].outcome, one[1].by) == ("refused", "human")


def _answers(
    kind: ApprovalKind, wanted: ToolCall, review: Review | None
) -> tuple[tuple[str, ...] | None, dict[str, Any] | None]:
    """What may be answered: the choices there are, or the schema to follow."""
    if kind == "outcome_unknown":
        # The requester says what became of it, but cannot allow what others have to allow.
        may_retry = review is None or not review.asks_others
        return ("done", "retry", "give_up") if may_retry else ("done", "give_up"), None
    if kind != "question":
        return None, None
    choices, schema = wanted.arguments.get("choices"), wanted.arguments.get("schema")
    return (
        tuple(map(str, choices)) if isinstance(choices, list) and choices else None,
        schema if isinstance(schema, dict) else None,
    )
