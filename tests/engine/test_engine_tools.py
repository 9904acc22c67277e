"""Calls a model asks for: run at the same time, asked about one by one, never fatal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sk_agents.cli.logs import TextFormatter
from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls import runner
from sk_agents.engine.events import ApprovalRequested, ToolFinished, ToolStarted
from sk_agents.engine.log.commits import Commit
from sk_agents.engine.models import Effect, Review, RunStatus, ToolCall, Usage
from sk_agents.engine.turns import (
    TextDelta,
    ToolChunk,
    ToolContext,
    ToolResult,
    ToolSpec,
)
from sk_agents.exceptions import ToolError
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.redaction import Redactor
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import LOOK, FakePolicy, FakeTools, Verdict, tool
from tests.engine.kit import Setup, kinds, raw, talking
from tests.engine.openai_rules import problems
from tests.engine.test_engine_troubles import idle
from tests.engine.troubled_store import TroubledStore
from tests.requirements import requirement


@requirement("S004-13-echo-tool", "S002-loop-rounds", "S002-loop-extraction", "S000-request-scope")
@pytest.mark.parametrize("http", [False, True])
async def test_echo_tool_runs_and_its_result_reaches_the_model(tmp_path: Path, http: bool) -> None:
    script = [calls(("Files-look", {"text": "hi"})), says("it said hi")]
    async with talking(tmp_path, script=script, http=http) as talk:
        run = await talk.ask()
        assert run.answer is not None
        assert (run.status, run.answer.content) == (RunStatus.COMPLETED, "it said hi")
        assert talk.tools.started == [("Files-look", {"text": "hi"})]
        assert talk.prompts[1][-1]["content"] == "echo hi"
        assert talk.tools.contexts[0].run_id == run.run_id
        assert all(event.run_id == run.run_id for event in await talk.log())
        assert [problems(prompt) for prompt in talk.prompts] == [[], []]


@pytest.mark.parametrize("url", ["memory:", "file://{}"])
async def test_turn_with_a_tool_and_an_approval_works_on_every_store(
    tmp_path: Path, url: str
) -> None:
    script = [calls(("Mail-send", {"text": "x"})), says("sent")]
    async with talking(url.format(tmp_path / "store"), script=script) as talk:
        accepted = await talk.say()
        assert (await talk.result(accepted)).status is RunStatus.WAITING
        await talk.decide(*await talk.approvals("r1"))
        assert (await talk.result(accepted)).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": "x"})]


@requirement("S002-loop-parallel")
async def test_calls_of_one_round_run_at_the_same_time(tmp_path: Path) -> None:
    barrier = asyncio.Barrier(3)

    async def meet(arguments: dict[str, Any], context: ToolContext) -> str:
        await barrier.wait()
        return "met"

    script = [calls(*[("Files-meet", {"text": str(n)}) for n in range(3)]), says("done")]
    async with talking(
        tmp_path, script=script, tools=FakeTools(tool("Files-meet", meet)), http=True
    ) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["met"] * 3


async def test_results_that_come_while_others_are_stored_share_the_next_commit() -> None:
    store = TroubledStore()
    gates = {number: asyncio.Event() for number in "1234"}

    async def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        await gates[arguments["text"]].wait()
        return "held"

    def finishes(commit: Commit) -> bool:
        return any(isinstance(event, ToolFinished) for event in commit.events)

    async def end_the_others() -> None:
        for number in "234":
            gates[number].set()
            await idle()

    script = [calls(*(("Files-look", {"text": number}) for number in "1234")), says("done")]
    tools = FakeTools(tool("Files-look", hold))
    async with talking(store, script=script, tools=tools) as talk:
        store.before_such = (finishes, end_the_others)
        await talk.say()
        gates["1"].set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["held"] * 4
        stored = [len(commit.events) for commit in store.commits if finishes(commit)]
        assert stored == [1, 3]


MANY = 30


class Steps:
    """Counts the steps of the event loop, and notes in which of them a policy was asked."""

    def __init__(self) -> None:
        self.now = 0
        self.noted: list[int] = []

    async def count(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)


class NotingPolicy(FakePolicy):
    def __init__(self, steps: Steps, verdict: Verdict) -> None:
        super().__init__(lambda call: verdict)
        self._steps = steps

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Verdict:
        self._steps.noted.append(self._steps.now)
        return super().verdict(call, spec)

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        self._steps.noted.append(self._steps.now)
        return None


@pytest.mark.parametrize("verdict", ["allow", "ask"])
async def test_round_of_many_calls_lets_others_in_between_any_two_of_them(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    """As if each of them took as long as all of them may."""
    monkeypatch.setattr(runner, "SLICE_SECONDS", 0.0)
    steps, starts = Steps(), []

    def look(arguments: dict[str, Any], context: ToolContext) -> str:
        starts.append(steps.now)
        return "seen"

    script = [calls(*[("Files-look", {"text": str(n)}) for n in range(MANY)]), says("done")]
    limits = RunLimits(calls_per_round=MANY)
    setup = Setup(script, FakeTools(tool("Files-look", look)), NotingPolicy(steps, verdict), limits)
    async with talking(MemoryStore(), setup) as talk:
        counting = asyncio.ensure_future(steps.count())
        started = asyncio.ensure_future(talk.ask())
        if verdict == "allow":
            assert (await started).status is RunStatus.COMPLETED
            # While each was proposed, and then while each start was made.
            assert len(set(steps.noted)) == MANY
            assert starts[0] - steps.noted[-1] >= MANY
        else:
            assert (await started).status is RunStatus.WAITING
            # While each was proposed, while its next step was sought, and while it was taken.
            assert len(set(steps.noted)) >= 3 * MANY
        counting.cancel()


async def test_policy_is_asked_once_about_a_call_that_starts_at_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def note(call: ToolCall) -> None:
        asked.append(call.arguments["text"])

    script = [calls(("Files-look", {"text": "a"}), ("Files-look", {"text": "b"})), says("done")]
    async with talking(tmp_path, script=script, policy=FakePolicy(note)) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
    assert asked == ["a", "b"]


@requirement("S002-hitl-individual", "S002-hitl-before-execution", "S002-hitl-control")
async def test_free_calls_run_at_once_and_keep_their_results_while_gated_ones_wait(
    tmp_path: Path,
) -> None:
    asked = [("Files-look", {"text": "a"}), ("Mail-send", {}), ("Files-look", {"text": "b"})]
    async with talking(tmp_path, script=[calls(*asked), says("done")], http=True) as talk:
        accepted = await talk.say()
        await talk.until(lambda state: len(state.run("r1").unresolved_calls) == 1)
        assert await talk.results("r1") == ["echo a", None, "echo b"]
        assert [name for name, _ in talk.tools.started] == ["Files-look", "Files-look"]
        assert len(talk.prompts) == 1
        log = await talk.log()
        asked_at = next(e.seq for e in log if isinstance(e, ApprovalRequested))
        assert all(event.seq > asked_at for event in log if isinstance(event, ToolFinished))
        await talk.decide(*await talk.approvals("r1"))
        assert (await talk.result(accepted)).status is RunStatus.COMPLETED
        results = [m["content"] for m in talk.prompts[1] if m["role"] == "tool"]
        assert results == ["echo a", "echo ", "echo b"]


async def test_approving_the_second_of_three_runs_only_the_second(tmp_path: Path) -> None:
    three = [("Mail-send", {"text": str(number)}) for number in (1, 2, 3)]
    async with talking(tmp_path, script=[calls(*three), says("done")], http=True) as talk:
        accepted = await talk.say()
        await talk.result(accepted)
        first, second, third = await talk.approvals("r1")
        await talk.decide(second)
        await talk.until(lambda state: len(state.run("r1").unresolved_calls) == 2)
        run = await talk.result(accepted)
        assert run.status is RunStatus.WAITING
        assert talk.tools.started == [("Mail-send", {"text": "2"})]
        assert await talk.results("r1") == [None, "echo 2", None]
        assert await talk.approvals("r1") == [first, third]
        await talk.decide(third)
        await talk.decide(first, approved=False)
        assert (await talk.result(accepted)).status is RunStatus.COMPLETED
        assert [arguments["text"] for _, arguments in talk.tools.started] == ["2", "3"]


def failing(error: BaseException) -> Any:
    async def fail(arguments: dict[str, Any], context: ToolContext) -> str:
        raise error

    return fail


@requirement("S004-7.1-error-result", "S004-7.1-model-decides", "S004-7.1-safe-text")
@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("password=hunter2"), "The tool failed (code tool_failed)."),
        (ToolError("No such city: Atlantis."), "No such city: Atlantis."),
        (asyncio.CancelledError(), "The tool failed (code tool_failed)."),
        (TimeoutError("of its own"), "The tool failed (code tool_failed)."),
    ],
)
async def test_tool_that_raises_gives_an_error_result_and_the_run_goes_on(
    tmp_path: Path, error: BaseException, shown: str
) -> None:
    tools = FakeTools(tool("Files-look", failing(error)))
    script = [calls(("Files-look", {})), says("never mind")]
    async with talking(tmp_path, script=script, tools=tools, http=True) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert talk.prompts[1][-1]["content"] == shown
        assert "hunter2" not in str(await talk.log())


async def test_log_says_where_a_tool_has_failed_and_not_what_it_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = FakeTools(tool("Files-look", failing(ValueError("password=hunter2"))))
    script = [calls(("Files-look", {})), says("never mind")]
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.ask()
    (record,) = (one for one in caplog.records if one.getMessage() == "tool failed")
    line = TextFormatter(Redactor.of(()), with_texts=False).format(record)
    assert f'File "{__file__}"' in line
    assert "in fail" in line
    assert line.endswith("ValueError")
    assert "hunter2" not in line


async def test_tool_without_a_result_is_an_error_to_the_model(tmp_path: Path) -> None:
    async def silent(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[ToolChunk]:
        yield ToolChunk("working")

    tools = FakeTools(tool("Files-look", silent))
    async with talking(tmp_path, script=[calls(("Files-look", {})), says("x")], tools=tools) as t:
        assert (await t.ask()).status is RunStatus.COMPLETED
        assert "tool_no_result" in t.prompts[1][-1]["content"]


async def test_what_cannot_be_stored_as_it_is_does_not_stop_the_run(tmp_path: Path) -> None:
    odd = ToolResult(
        "half a pair \ud800",
        extra_data={"object": object(), "nan": float("nan"), "bytes": b"\xff"},
        usage=Usage(prompt_tokens=1),
    )
    tools = FakeTools(tool("Files-look", lambda arguments, context: odd))
    async with talking(tmp_path, script=[calls(("Files-look", {})), says("ok")], tools=tools) as t:
        assert (await t.ask()).status is RunStatus.COMPLETED
        finished = next(e for e in await t.log() if isinstance(e, ToolFinished))
        assert finished.result.startswith("half a pair \ufffd")
        assert finished.extra_data is not None
        assert finished.extra_data["nan"] == "NaN"


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (("1", "Files-fly", "{}"), "There is no tool"),
        (("1", "", "{}"), "There is no tool"),
        (("1", "drop table; --" * 1000, "{}"), "There is no tool"),
        (("1", "Files.look", "{}"), "There is no tool"),
        (("1", "-Files-look", "{}"), "There is no tool"),
        (("1", "Files-look", '{"text": '), "not valid JSON"),
        (("1", "Files-look", '{"text": "a", "text": "b"}'), "appears twice"),
        (("1", "Files-look", "[1]"), "one JSON object"),
        (("1", "Files-look", '{"text": 1}'), "must be a string"),
        (("1", "Files-look", '{"text": "' + "x" * 5_000_000 + '"}'), "larger than"),
    ],
)
async def test_call_that_cannot_be_made_is_explained_and_nothing_runs(
    tmp_path: Path, request_: tuple[str, str, str], told: str
) -> None:
    async with talking(tmp_path, script=[raw(request_), says("sorry")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert told in talk.prompts[1][-1]["content"]
        assert talk.tools.started == []
        assert problems(talk.prompts[1]) == []
        assert len(str(await talk.log())) < 10_000


async def test_repeated_provider_id_runs_the_first_call_only(tmp_path: Path) -> None:
    twice = raw(("same", "Files-look", '{"text": "a"}'), ("same", "Files-look", '{"text": "b"}'))
    async with talking(tmp_path, script=[twice, says("ok")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Files-look", {"text": "a"})]
        assert "repeats the id" in talk.prompts[1][-1]["content"]
        assert problems(talk.prompts[1]) == []


@requirement("S004-10.1-log")
async def test_log_tells_arguments_approval_and_outcome_of_every_call(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"text": "x"}), ("Files-look", {"text": "y"})), says("ok")]
    async with talking(tmp_path, script=script) as talk:
        accepted = await talk.say()
        await talk.result(accepted)
        (approval_id,) = await talk.approvals("r1")
        await talk.decide(approval_id)
        run = await talk.result(accepted)
        send, look = run.calls.values()
        assert (send.proposal.arguments, look.proposal.arguments) == ({"text": "x"}, {"text": "y"})
        assert send.started is not None and look.started is not None
        assert (send.started.approval_id, look.started.approval_id) == (approval_id, None)
        assert send.finished is not None and send.finished.outcome == "ok"


async def test_words_beside_calls_are_thinking_and_stay_in_the_prompt(tmp_path: Path) -> None:
    turn: Turn = [TextDelta("Let me look."), *calls(("Files-look", {}))]
    async with talking(tmp_path, script=[turn, says("done")], http=True) as talk:
        run = await talk.ask()
        assert [(t.content, t.spoken) for t in run.thoughts] == [("Let me look.", True)]
        assert run.answer is not None and run.answer.content == "done"
        assert talk.prompts[1][-2]["content"] == "Let me look."
        assert "Thinking" in kinds(await talk.log())


async def test_idempotent_tool_gets_the_same_key_as_its_start_record(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-put", effect=Effect.IDEMPOTENT), LOOK)
    async with talking(tmp_path, script=[calls(("Files-put", {})), says("ok")], tools=tools) as t:
        accepted = await t.say()
        await t.result(accepted)
        await t.decide(*await t.approvals("r1"))
        await t.result(accepted)
        started = next(e for e in await t.log() if isinstance(e, ToolStarted))
        assert [context.idempotency_key for context in tools.contexts] == [started.idempotency_key]
