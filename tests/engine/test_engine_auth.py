"""Tools that act in their caller's name: without the caller's own header they wait for it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls.call import Approval
from sk_agents.engine.commands import SteerRun
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    ToolFinished,
    ToolStarted,
)
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import ApprovalState, CallState, Effect, RunStatus
from sk_agents.engine.run.recovery import HEADER_SECONDS
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ApprovalMismatch, ApprovalNotFound, InvalidInput, LeaseHeld
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakeTool, FakeTools, Work, tool
from tests.engine.kit import UNSWEPT, Setup, Talk, is_asked_anew, still_clock, talking
from tests.engine.late_news import LateNews
from tests.engine.test_engine_troubles import Gate, idle
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds

MINE = "Bearer ada"
NEWER = "Bearer ada, later"
PAY = [calls(("Bank-pay", {"text": "x"})), says("done")]


def whoami(arguments: dict[str, Any], context: ToolContext) -> str:
    return f"{context.authorization} pays {arguments.get('text', '')}"


def personal(
    work: Work = whoami, *, effect: Effect = Effect.READ_ONLY, timeout: float = 60.0
) -> FakeTool:
    """Read-only tools run unasked, others are asked about first."""
    made = tool("Bank-pay", work, effect=effect, timeout=timeout)
    return replace(made, spec=replace(made.spec, requires_authorization=True))


def setup(**fields: Any) -> Setup:
    return Setup(**{"script": PAY, "tools": FakeTools(personal()), **fields})


def asked(state: ThreadState) -> Approval:
    (approval,) = state.run("r1").pending_approvals
    return approval


async def without_header(talk: Talk, **fields: Any) -> Approval:
    """The question of a run that was started without one."""
    run = await talk.ask(**fields)
    assert run.status is RunStatus.WAITING
    (approval,) = run.pending_approvals
    assert approval.request.kind == "auth"
    assert talk.tools.started == []
    return approval


async def test_tool_gets_the_header_of_the_caller_who_started_the_run(tmp_path: Path) -> None:
    async with talking(tmp_path, setup()) as talk:
        assert (await talk.ask(authorization=MINE)).phase is RunStatus.COMPLETED
        assert await talk.results("r1") == [f"{MINE} pays x"]


async def test_owner_lends_the_header_of_the_request_that_decides(tmp_path: Path) -> None:
    async with talking(tmp_path, setup()) as talk:
        approval = await without_header(talk)
        assert approval.request.shown == {"tool_name": "Bank-pay", "arguments": {"text": "x"}}
        await talk.decide(approval.request.approval_id, authorization=MINE)
        run = await talk.ended("r1")
        (call,) = run.calls.values()
        assert call.approval is not None and call.approval.state is ApprovalState.CONSUMED
        assert await talk.results("r1") == [f"{MINE} pays x"]
        assert MINE not in "".join(
            event.model_dump_json() for event in await talk.log() if event.type != "tool_finished"
        )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, InvalidInput),
        ({"authorization": MINE, "remember": "run"}, InvalidInput),
        ({"authorization": MINE, "edited_arguments": {}}, InvalidInput),
        ({"authorization": MINE, "digest": "other"}, ApprovalMismatch),
        ({"authorization": "Bearer bob", "user_id": "bob"}, ApprovalNotFound),
    ],
    ids=["no header", "remembered", "edited", "another digest", "another user"],
)
async def test_refused_decision_leaves_the_question_open(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception]
) -> None:
    async with talking(tmp_path, setup()) as talk:
        approval_id = (await without_header(talk)).request.approval_id
        with pytest.raises(error):
            await talk.decide(approval_id, **fields)
        assert await talk.approvals("r1") == [approval_id]
        assert talk.tools.started == []


async def test_declined_call_does_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    async with talking(tmp_path, setup()) as talk:
        approval = await without_header(talk)
        await talk.decide(approval.request.approval_id, approved=False, message="not now")
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED
        assert talk.prompts[1][-1]["content"] == "Rejected by ada: not now. It did not run."
        assert talk.tools.started == []


async def test_declined_call_ends_a_run_that_ends_with_a_refusal(tmp_path: Path) -> None:
    async with talking(tmp_path, setup(on_reject="cancel")) as talk:
        approval = await without_header(talk)
        await talk.decide(approval.request.approval_id, approved=False)
        assert (await talk.ended("r1")).phase is RunStatus.CANCELLED


async def test_question_that_nobody_answers_expires(tmp_path: Path) -> None:
    clock, limits = SettableClock(), RunLimits(approval_seconds=3600)
    async with talking(tmp_path, setup(clock=clock, limits=limits, lease_ttl=UNSWEPT)) as talk:
        await without_header(talk)
        await talk.parked()
        clock.advance(3600)
        await talk.sweep()
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED
        (finished,) = [e for e in await talk.log() if isinstance(e, ToolFinished)]
        assert (finished.outcome, finished.by) == ("refused", "timeout")


async def test_cancel_withdraws_the_question(tmp_path: Path) -> None:
    async with talking(tmp_path, setup()) as talk:
        await without_header(talk)
        await talk.cancel("r1")
        assert (await talk.ended("r1")).phase is RunStatus.CANCELLED
        (decided,) = [e for e in await talk.log() if isinstance(e, ApprovalDecided)]
        assert (decided.outcome, decided.by) == ("withdrawn", "cancel")
        assert talk.tools.started == []


async def test_approval_of_the_call_lends_the_header_with_it(tmp_path: Path) -> None:
    tools = FakeTools(personal(effect=Effect.AT_MOST_ONCE))
    async with talking(tmp_path, setup(tools=tools)) as talk:
        run = await talk.ask()
        (approval,) = run.pending_approvals
        assert approval.request.kind == "tool"
        await talk.decide(approval.request.approval_id, authorization=MINE)
        await talk.ended("r1")
        assert await talk.results("r1") == [f"{MINE} pays x"]


async def test_approval_without_a_header_is_followed_by_the_question_for_one(
    tmp_path: Path,
) -> None:
    tools = FakeTools(personal(effect=Effect.AT_MOST_ONCE))
    async with talking(tmp_path, setup(tools=tools)) as talk:
        (approval,) = (await talk.ask()).pending_approvals
        first = approval.request.approval_id
        await talk.decide(first, edited_arguments={"text": "less"})
        state = await talk.until(is_asked_anew(first))
        assert asked(state).request.kind == "auth"
        assert asked(state).request.shown["arguments"] == {"text": "less"}
        await talk.decide(asked(state).request.approval_id, authorization=MINE)
        await talk.ended("r1")
        (result,) = await talk.results("r1")
        assert result is not None and result.endswith(f"{MINE} pays less")


async def test_tool_that_changed_goes_through_policy_again(tmp_path: Path) -> None:
    async with talking(tmp_path, setup()) as talk:
        approval_id = (await without_header(talk)).request.approval_id
        talk.tools.redefine("Bank-pay", "d2")
        await talk.decide(approval_id, authorization=MINE)
        run = await talk.ended("r1")
        (call,) = run.calls.values()
        assert call.started is not None and call.started.approval_id is None
        (decided,) = [
            e for e in await talk.log() if isinstance(e, ApprovalDecided) and e.by == "policy"
        ]
        assert (decided.approval_id, decided.outcome) == (approval_id, "withdrawn")


async def test_header_reaches_a_run_that_is_at_work(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        await gate.wait()
        return "held"

    tools = FakeTools(personal(), tool("Files-look", hold))
    script = [calls(("Files-look", {}), ("Bank-pay", {"text": "x"})), says("ok")]
    async with talking(tmp_path, setup(script=script, tools=tools)) as talk:
        await talk.say()
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        await talk.decide(asked(state).request.approval_id, authorization=MINE)
        await talk.until(lambda state: len(state.run("r1").unresolved_calls) == 1)
        gate.set()
        await talk.ended("r1")
        assert await talk.results("r1") == ["held", f"{MINE} pays x"]


async def test_header_is_not_kept_for_another_time_where_the_run_is_driven(tmp_path: Path) -> None:
    gate = Gate()
    tools = FakeTools(personal(), tool("Files-look", gate))
    script = [calls(("Files-look", {}), ("Bank-pay", {"text": "x"})), says("ok")]
    async with talking(tmp_path, setup(script=script, tools=tools)) as talk:
        await talk.say()
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        await gate.wait()
        await talk.decide(asked(state).request.approval_id, authorization=MINE)
        assert talk.engine.parts.drivers.kept_headers == []
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("decides_at_rest", [False, True], ids=["while a tool runs", "at rest"])
async def test_header_given_to_another_instance_is_asked_for_once(
    tmp_path: Path, decides_at_rest: bool
) -> None:
    gate = asyncio.Event()

    async def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        await gate.wait()
        return "held"

    tools = FakeTools(personal(), tool("Files-look", hold))
    script = [calls(("Files-look", {}), ("Bank-pay", {"text": "x"})), says("ok")]
    shared = setup(script=script, tools=tools, lease_ttl=1.0, clock=still_clock())
    async with talking(tmp_path, shared) as a, talking(tmp_path, shared, owner="b") as b:
        await a.say()
        state = await a.until(lambda state: bool(state.run("r1").pending_approvals))
        if decides_at_rest:
            gate.set()
            await a.parked()
        await b.decide(asked(state).request.approval_id, authorization=MINE)
        gate.set()
        await b.ended("r1")
        assert await b.results("r1") == ["held", f"{MINE} pays x"]
        questions = [e for e in await b.log() if isinstance(e, ApprovalRequested)]
        assert len(questions) == 1


@pytest.mark.parametrize("is_at_work", [True, False])
async def test_header_is_there_when_the_decision_is_seen_before_its_sender_hears_of_it(
    tmp_path: Path, is_at_work: bool
) -> None:
    """By a driver at work, or one that another request begins."""
    gate = Gate()
    tools = FakeTools(personal(), tool("Files-look", gate))
    work: list[tuple[str, dict[str, Any]]] = [("Files-look", {})] if is_at_work else []
    script = [calls(*work, ("Bank-pay", {"text": "x"})), says("ok"), says("ok")]
    shared = setup(script=script, tools=tools, lease_ttl=UNSWEPT)
    async with (
        LateNews(tmp_path / "late.sqlite", ApprovalDecided) as store,
        talking(store, shared) as talk,
    ):
        await talk.say()
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        if not is_at_work:
            await talk.parked()
        approval_id = asked(state).request.approval_id
        deciding = asyncio.ensure_future(talk.decide(approval_id, authorization=MINE))
        async with asyncio.timeout(seconds(5)):
            await store.is_stored.wait()
        if is_at_work:
            await talk.engine.parts.follower.look()
        else:
            await talk.engine.steer(SteerRun("t", "ada", "r1", "quickly"))
        await talk.until(lambda state: f"{MINE} pays x" in results_of(state))
        store.may_tell.set()
        gate.open.set()
        assert await deciding
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        questions = [e for e in await talk.log() if isinstance(e, ApprovalRequested)]
        assert len(questions) == 1


def results_of(state: ThreadState) -> list[str]:
    calls = state.run("r1").calls.values()
    return [call.finished.result for call in calls if call.finished is not None]


async def test_header_is_asked_for_again_once_its_instance_is_gone(tmp_path: Path) -> None:
    gate, clock = asyncio.Event(), SettableClock()

    async def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        await gate.wait()
        return "held"

    tools = FakeTools(personal(), tool("Files-look", hold))
    script = [calls(("Files-look", {}), ("Bank-pay", {"text": "x"})), says("ok")]
    shared = setup(script=script, tools=tools, lease_ttl=UNSWEPT, clock=clock)
    async with talking(tmp_path, shared) as a:
        async with talking(tmp_path, shared, owner="b") as b:
            await a.say()
            state = await a.until(lambda state: bool(state.run("r1").pending_approvals))
            first = asked(state).request.approval_id
            await b.decide(first, authorization=MINE)
        gate.set()
        await a.parked()
        await a.sweep()
        assert (await a.store.thread("t")).owner is None
        clock.advance(HEADER_SECONDS + 1)
        await a.sweep()
        state = await a.until(is_asked_anew(first))
        await a.parked()
        await a.decide(asked(state).request.approval_id, authorization=NEWER)
        await a.ended("r1")
        assert await a.results("r1") == ["held", f"{NEWER} pays x"]


@asynccontextmanager
async def lent_elsewhere(at: Path | TroubledStore) -> AsyncIterator[tuple[Talk, Talk, Gate]]:
    """`a` drives a run whose user has lent `b` a header; a tool is at work. Nothing sweeps."""
    gate = Gate()
    tools = FakeTools(personal(), tool("Files-look", gate))
    script = [calls(("Files-look", {}), ("Bank-pay", {"text": "x"})), says("ok")]
    shared = setup(script=script, tools=tools, lease_ttl=UNSWEPT)
    async with talking(at, shared) as a, talking(at, shared, owner="b") as b:
        await a.say()
        state = await a.until(lambda state: bool(state.run("r1").pending_approvals))
        await gate.wait()
        await b.decide(asked(state).request.approval_id, authorization=MINE)
        yield a, b, gate


async def test_run_that_is_given_back_goes_on_where_its_header_is(tmp_path: Path) -> None:
    async with lent_elsewhere(tmp_path) as (a, b, gate):
        # Its owner learns of the decision, and finishes what it has begun.
        await a.engine.parts.follower.look()
        await idle()
        gate.open.set()
        await b.ended("r1")
        assert await b.results("r1") == ["through", f"{MINE} pays x"]
        assert [name for name, _ in a.tools.started] == ["Files-look", "Bank-pay"]
        assert [e.kind for e in await a.log() if isinstance(e, ApprovalRequested)] == ["auth"]
        assert b.engine.parts.drivers.kept_headers == []


@pytest.mark.parametrize("end", ["cancelled", "deleted"])
async def test_header_is_not_kept_for_a_call_that_does_not_need_it_any_more(
    tmp_path: Path, end: str
) -> None:
    async with lent_elsewhere(tmp_path) as (a, b, _):
        assert b.engine.parts.drivers.kept_headers == ["t"]
        await b.engine.parts.follower.look()
        assert b.engine.parts.drivers.kept_headers == ["t"]
        if end == "cancelled":
            await a.cancel("r1")
            await a.ended("r1")
        else:
            await a.engine.delete("t", "ada")
        await b.engine.parts.follower.look()
        assert b.engine.parts.drivers.kept_headers == []


async def test_instance_with_the_header_tries_again_if_another_was_faster() -> None:
    store = TroubledStore()
    async with lent_elsewhere(store) as (_, b, gate):
        store.before_claim = [LeaseHeld()]
        gate.open.set()
        await b.ended("r1")
        assert store.before_claim == []
        assert await b.results("r1") == ["through", f"{MINE} pays x"]


async def test_instance_that_closes_leaves_a_run_to_others_although_it_holds_the_header(
    tmp_path: Path,
) -> None:
    async with lent_elsewhere(tmp_path) as (a, b, gate):
        b.engine.drain()
        gate.open.set()
        await a.parked()
        await b.engine.parts.follower.look()
        assert (await b.store.thread("t")).owner is None


class SigningIn(FakeTools):
    """One of whose tools wants its user to sign in first."""

    signed_in = False

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        wanted = {"Files-look"} & {*names} if not self.signed_in else set()
        return dict.fromkeys(wanted, f"https://sign.in/{user_id}")


async def test_call_waits_until_its_user_has_signed_in_and_needs_no_header(tmp_path: Path) -> None:
    tools = SigningIn(tool("Files-look"))
    script = [calls(("Files-look", {"text": "x"})), says("ok")]
    async with talking(tmp_path, setup(script=script, tools=tools)) as talk:
        (approval,) = (await talk.ask()).pending_approvals
        assert (approval.request.kind, tools.started) == ("auth", [])
        assert approval.request.shown["sign_in"] == "https://sign.in/ada"
        tools.signed_in = True
        await talk.decide(approval.request.approval_id)
        await talk.ended("r1")
        assert await talk.results("r1") == ["echo x"]


async def test_nobody_is_asked_to_sign_in_where_no_person_is(tmp_path: Path) -> None:
    tools = SigningIn(tool("Files-look"))
    script = [calls(("Files-look", {"text": "x"})), says("ok")]
    async with talking(tmp_path, setup(script=script, tools=tools, is_attended=False)) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["echo x"]


class Cut:
    """Is cut off at first, answers when it is called again."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.executions = 0

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.executions += 1
        if self.executions == 1:
            self.reached.set()
            await asyncio.Event().wait()
        return f"{context.authorization} paid"


@pytest.mark.parametrize("is_lent", [True, False])
async def test_run_that_was_taken_over_asks_before_it_repeats_the_call(
    tmp_path: Path, is_lent: bool
) -> None:
    cut = Cut()
    shared = setup(tools=FakeTools(personal(cut)), lease_ttl=1.0, clock=still_clock())
    async with talking(tmp_path, shared) as a:
        await a.say(authorization=MINE)
        async with asyncio.timeout(seconds(5)):
            await cut.reached.wait()
    async with talking(tmp_path, shared, owner="b") as b:
        state = await b.until(lambda state: bool(state.run("r1").pending_approvals))
        assert asked(state).request.kind == "auth"
        await b.decide(asked(state).request.approval_id, approved=is_lent, authorization=NEWER)
        run = await b.ended("r1")
        (call,) = run.calls.values()
        assert call.started is not None
        told = f"{NEWER} paid" if is_lent else "not run again"
        assert told in b.prompts[-1][-1]["content"]
        assert (call.started.attempt, cut.executions) == ((2, 2) if is_lent else (1, 1))


async def test_retry_of_an_unknown_outcome_asks_for_the_header_it_lacks(tmp_path: Path) -> None:
    cut = Cut()
    slow = personal(cut, effect=Effect.AT_MOST_ONCE, timeout=0.05)
    shared = setup(tools=FakeTools(slow))
    async with talking(tmp_path, shared) as a:
        (approval,) = (await a.ask()).pending_approvals
        await a.decide(approval.request.approval_id, authorization=MINE)
        state = await a.until(is_asked_anew(approval.request.approval_id))
        await a.parked()
    async with talking(tmp_path, shared, owner="b") as b:
        unknown = asked(state).request
        assert unknown.kind == "outcome_unknown"
        await b.decide(unknown.approval_id, choice="retry")
        state = await b.until(is_asked_anew(unknown.approval_id))
        (call,) = state.run("r1").calls.values()
        assert (asked(state).request.kind, call.state) == ("auth", CallState.UNKNOWN)
        await b.decide(asked(state).request.approval_id, authorization=NEWER)
        await b.ended("r1")
        assert await b.results("r1") == [f"{NEWER} paid"]
        starts = [e.attempt for e in await b.log() if isinstance(e, ToolStarted)]
        assert starts == [1, 2]
