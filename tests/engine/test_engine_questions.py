"""What only a person can say: what became of a call, and what a form is filled in with."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolStarted,
)
from sk_agents.engine.log.commits import Commit
from sk_agents.engine.models import CallState, Effect, RunStatus
from sk_agents.engine.turns import Question, ToolContext
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    InvalidInput,
    ToolInterrupted,
)
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import LOOK, FakeTools, tool
from tests.engine.kit import SEND_X, UNSWEPT, Talk, is_asked_anew, talking, waiting
from tests.engine.late_news import LateNews
from tests.engine.troubled_store import TroubledStore


async def of_unknown_outcome(talk: Talk) -> str:
    """The question about a call that ran into its limit."""
    await talk.decide(await waiting(talk))
    state = await talk.until(
        lambda state: (
            bool(state.run("r1").pending_approvals)
            and next(iter(state.run("r1").calls.values())).state is CallState.UNKNOWN
        )
    )
    (approval,) = state.run("r1").pending_approvals
    assert approval.request.kind == "outcome_unknown"
    return approval.request.approval_id


class Hanging:
    """Hangs at first, answers when it is called again."""

    def __init__(self) -> None:
        self.executions = 0

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.executions += 1
        if self.executions == 1:
            await asyncio.Event().wait()
        return "answered"

    @property
    def box(self) -> FakeTools:
        return FakeTools(tool("Mail-send", self, effect=Effect.AT_MOST_ONCE, timeout=0.05), LOOK)


class BreakingOff(Hanging):
    """Breaks off so many times before it answers."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self._times = times

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.executions += 1
        if self.executions <= self._times:
            raise ToolInterrupted("it broke off")
        return "answered"


@pytest.mark.parametrize(
    ("decision", "told", "executions", "outcome"),
    [
        ({"choice": "done"}, "the user confirmed", 1, "ok"),
        ({"choice": "retry"}, "answered", 2, "ok"),
        ({"choice": "give_up"}, "the user gave up", 1, "error"),
        ({"approved": False}, "the user gave up", 1, "error"),
    ],
)
@pytest.mark.parametrize("kind", [Hanging, BreakingOff])
async def test_question_about_an_unknown_outcome_is_settled_as_the_person_says(
    tmp_path: Path,
    kind: type[Hanging],
    decision: dict[str, Any],
    told: str,
    executions: int,
    outcome: str,
) -> None:
    hanging = kind()
    async with talking(tmp_path, script=SEND_X, tools=hanging.box) as talk:
        await talk.decide(await of_unknown_outcome(talk), **decision)
        run = await talk.ended("r1")
        assert run.status is RunStatus.COMPLETED
        assert told in talk.prompts[1][-1]["content"]
        assert hanging.executions == executions
        finished = next(e for e in await talk.log() if isinstance(e, ToolFinished))
        assert finished.outcome == outcome


@pytest.mark.parametrize(
    "verb", [{}, {"choice": "retry", "edited_arguments": {}}, {"choice": "done", "remember": "run"}]
)
async def test_verb_that_does_not_fit_the_question_is_refused_and_it_stays_open(
    tmp_path: Path, verb: dict[str, Any]
) -> None:
    async with talking(tmp_path, script=SEND_X, tools=Hanging().box) as talk:
        question = await of_unknown_outcome(talk)
        with pytest.raises(InvalidInput):
            await talk.decide(question, **verb)
        assert await talk.approvals("r1") == [question]


async def test_retry_of_a_tool_that_changed_is_asked_about_again(tmp_path: Path) -> None:
    hanging = Hanging()
    async with talking(tmp_path, script=SEND_X, tools=hanging.box) as talk:
        question = await of_unknown_outcome(talk)
        talk.tools.redefine("Mail-send", "d2")
        await talk.decide(question, choice="retry")
        state = await talk.until(is_asked_anew(question))
        (approval,) = state.run("r1").pending_approvals
        assert approval.request.kind == "outcome_unknown"
        assert hanging.executions == 1


async def test_approval_repeated_after_its_outcome_became_unknown_is_answered_as_before(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=SEND_X, tools=Hanging().box) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, idempotency_key="k")
        await talk.until(is_asked_anew(approval_id))
        assert await talk.decide(approval_id, idempotency_key="k") is False
        with pytest.raises(ApprovalAlreadyDecided) as refused:
            await talk.decide(approval_id)
        assert refused.value.outcome == "approved"


async def test_log_says_why_an_outcome_is_unknown(tmp_path: Path) -> None:
    reasons = []
    for kind in (Hanging, BreakingOff):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        async with talking(folder, script=SEND_X, tools=kind().box) as talk:
            await of_unknown_outcome(talk)
            reasons += [e.reason for e in await talk.log() if isinstance(e, ToolOutcomeUnknown)]
    assert reasons == ["timeout", "interrupted"]


LOOK_X = [calls(("Files-look", {"text": "x"})), says("done")]


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, Effect.IDEMPOTENT])
@pytest.mark.parametrize(("times", "outcome"), [(1, "ok"), (2, "error")])
async def test_harmless_tool_that_breaks_off_is_started_once_more(
    tmp_path: Path, effect: Effect, times: int, outcome: str
) -> None:
    breaking = BreakingOff(times)
    box = FakeTools(tool("Files-look", breaking, effect=effect))
    async with talking(tmp_path, script=LOOK_X, tools=box) as talk:
        talk.setup.policy.rule = lambda call: "allow"
        assert (await talk.ask()).status is RunStatus.COMPLETED
        log = await talk.log()
        starts = [event for event in log if isinstance(event, ToolStarted)]
        (finished,) = [event for event in log if isinstance(event, ToolFinished)]
        assert [start.attempt for start in starts] == [1, 2]
        assert {context.idempotency_key for context in box.contexts} == {starts[0].idempotency_key}
        assert finished.outcome == outcome
        assert finished.result == ("answered" if outcome == "ok" else "it broke off")
        assert breaking.executions == 2


async def test_question_of_a_tool_that_broke_off_is_withdrawn(tmp_path: Path) -> None:
    executions = 0

    async def work(arguments: dict[str, Any], context: ToolContext) -> str:
        nonlocal executions
        executions += 1
        if executions > 1:
            return "answered"
        assert context.ask is not None
        asking = asyncio.ensure_future(context.ask(Question("Which one?")))
        # It is stored, and nobody here knows of it yet.
        await store.is_stored.wait()
        asking.cancel()
        store.may_tell.set()
        raise ToolInterrupted

    box = FakeTools(tool("Files-look", work))
    async with (
        LateNews(tmp_path / "late.sqlite", ApprovalRequested) as store,
        talking(store, script=LOOK_X, tools=box) as talk,
    ):
        accepted = await talk.say()
        run = await talk.ended(accepted.run_id)
        assert run.status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["answered"]
        decided = [event for event in await talk.log() if isinstance(event, ApprovalDecided)]
        assert [event.outcome for event in decided] == ["withdrawn"]


async def test_question_that_is_answered_while_it_is_withdrawn_is_no_trouble() -> None:
    async def work(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.ask is not None
        asking = asyncio.ensure_future(context.ask(Question("Which one?")))
        await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        asking.cancel()
        return "never mind"

    def withdraws(commit: Commit) -> bool:
        return any(isinstance(event, ApprovalDecided) for event in commit.events)

    async def answer() -> None:
        assert await talk.decide(*await talk.approvals("r1"), answer="this one")

    store = TroubledStore()
    box = FakeTools(tool("Files-look", work))
    async with talking(store, script=LOOK_X, tools=box, lease_ttl=UNSWEPT) as talk:
        store.before_such = (withdraws, answer)
        await talk.say()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["never mind"]
        decided = [event for event in await talk.log() if isinstance(event, ApprovalDecided)]
        assert [event.outcome for event in decided] == ["approved"]


FORM = {
    "type": "object",
    "properties": {"size": {"type": "integer", "maximum": 9}, "name": {"type": "string"}},
    "required": ["size"],
}


@pytest.mark.parametrize(
    ("schema", "answer", "named"),
    [
        (FORM, {"size": "large"}, "size"),
        (FORM, {"size": 10}, "size"),
        (FORM, {"name": "x"}, "size"),
        (FORM, {"size": 1, "nmae": "x"}, "nmae"),
        (FORM, "large", "answer"),
        ({"type": "integer"}, "seven", "answer"),
    ],
)
async def test_answer_that_breaks_its_schema_is_refused_and_the_question_stays_open(
    tmp_path: Path, schema: dict[str, Any], answer: Any, named: str
) -> None:
    async def told(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"told {context.answer}"

    fake = tool("User-ask", told)
    box = FakeTools(replace(fake, spec=replace(fake.spec, question=True)))
    script = [calls(("User-ask", {"question": "Which?", "schema": schema})), says("ok")]
    async with talking(tmp_path, script=script, tools=box) as talk:
        question = await waiting(talk)
        with pytest.raises(InvalidInput, match=named):
            await talk.decide(question, answer=answer)
        assert await talk.approvals("r1") == [question]
        assert box.started == []
        fitting = 7 if schema["type"] == "integer" else {"size": 7}
        await talk.decide(question, answer=fitting)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == [f"told {fitting}"]


async def test_answer_that_breaks_its_schema_may_still_be_declined(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.ask is not None
        return f"got {await context.ask(Question('Which?', schema=FORM))}"

    async with talking(tmp_path, script=LOOK_X, tools=FakeTools(tool("Files-look", ask))) as talk:
        await talk.say()
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (asked,) = state.run("r1").pending_approvals
        with pytest.raises(InvalidInput, match="size"):
            await talk.decide(asked.request.approval_id, answer={"size": None})
        await talk.decide(asked.request.approval_id, approved=False, answer={"size": None})
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        (told,) = await talk.results("r1")
        assert told is not None and "did not want to answer" in told
