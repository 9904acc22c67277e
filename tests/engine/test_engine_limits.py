"""Limits: of a tool's time and output, of a round, of a run; each with a clear failure."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.events import ApprovalDecided, ToolFinished
from sk_agents.engine.models import Attachment, Effect, Part, RunStatus
from sk_agents.engine.turns import (
    ToolChunk,
    ToolContext,
    ToolResult,
)
from sk_agents.testing import ScriptedModel
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import SEND, FakeTools, tool
from tests.engine.kit import endings, raw, talking
from tests.engine.openai_rules import problems
from tests.requirements import requirement


async def hang(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_read_only_tool_that_hangs_is_an_error_at_its_limit(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-look", hang, timeout=0.05), SEND)
    script = [calls(("Files-look", {})), says("slow today")]
    async with talking(tmp_path, script=script, tools=tools, http=True) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert "did not finish within 0.05 seconds" in talk.prompts[1][-1]["content"]


async def test_tool_that_will_not_be_cancelled_is_left_behind(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[Any]:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                yield ToolChunk("still here")
        yield ToolResult("at last")

    tools = FakeTools(tool("Files-look", stubborn, timeout=0.05))
    async with talking(tmp_path, script=[calls(("Files-look", {})), says("x")], tools=tools) as t:
        assert (await t.ask()).status is RunStatus.COMPLETED
        assert "did not finish" in t.prompts[1][-1]["content"]
        release.set()


async def test_at_most_once_tool_that_hangs_asks_what_became_of_it(tmp_path: Path) -> None:
    tools = FakeTools(tool("Mail-send", hang, effect=Effect.AT_MOST_ONCE, timeout=0.05))
    script = [calls(("Mail-send", {})), says("fine")]
    async with talking(tmp_path, script=script, tools=tools, http=True) as talk:
        accepted = await talk.say()
        await talk.result(accepted)
        await talk.decide(*await talk.approvals("r1"))
        state = await talk.until(
            lambda state: any(
                approval.request.kind == "outcome_unknown"
                for approval in state.run("r1").pending_approvals
            )
        )
        question = state.run("r1").pending_approvals[0].request
        assert question.choices == ("done", "retry", "give_up")
        await talk.decide(question.approval_id, choice="done")
        assert (await talk.result(accepted)).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 1


async def test_five_megabytes_are_cut_and_their_size_is_kept(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-look", lambda arguments, context: "é" * 2_500_000))
    script = [calls(("Files-look", {})), says("long")]
    async with talking(tmp_path, script=script, tools=tools, http=True) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        finished = next(e for e in await talk.log() if isinstance(e, ToolFinished))
        assert finished.full_size == 5_000_000
        assert len(finished.result.encode()) < 300_000
        assert "of 5000000 bytes are shown" in talk.prompts[1][-1]["content"]
        (whole,) = finished.attachments or ()
        assert (whole.name, whole.size) == ("output.txt", 5_000_000)
        assert b64decode(whole.uri.partition(",")[2]).decode() == "é" * 2_500_000


async def test_output_that_is_too_large_to_be_attached_is_only_cut(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-look", lambda arguments, context: "x" * 400_000))
    script = [calls(("Files-look", {})), says("long")]
    limits = RunLimits(tool_attachment_bytes=400_000)
    async with talking(tmp_path, script=script, tools=tools, limits=limits) as talk:
        await talk.ask()
        finished = next(e for e in await talk.log() if isinstance(e, ToolFinished))
        assert (finished.full_size, finished.attachments) == (400_000, None)


@requirement("S004-10.1-limits")
async def test_calls_past_the_limit_of_a_round_do_not_run(tmp_path: Path) -> None:
    many = calls(*[("Files-look", {"text": str(number)}) for number in range(20)])
    async with talking(tmp_path, script=[many, says("ok")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 16
        assert [r for r in await talk.results("r1") if "Too many calls" in (r or "")][3:] != []
        assert problems(talk.prompts[1]) == []


async def test_rounds_past_the_limit_fail_with_a_clear_code(tmp_path: Path) -> None:
    script = [calls(("Files-look", {})) for _ in range(3)]
    async with talking(tmp_path, script=script, limits=RunLimits(model_rounds=3)) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "max_rounds")
        assert len(talk.prompts) == 3


async def test_model_that_only_makes_invalid_calls_is_stopped(tmp_path: Path) -> None:
    bad, good = raw(("1", "Files-fly", "{}")), calls(("Files-look", {}))
    script = [bad, bad, good, bad, bad, bad]
    async with talking(tmp_path, script=script, limits=RunLimits(invalid_rounds=3)) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "invalid_tool_call")
        assert len(talk.prompts) == 6


@pytest.mark.parametrize(
    ("first", "limits"),
    [
        (calls(("Files-look", {})), RunLimits(model_rounds=1)),
        (raw(("1", "Files-fly", "{}")), RunLimits(invalid_rounds=1)),
    ],
    ids=["too many rounds", "only invalid calls"],
)
async def test_message_that_waits_behind_a_run_at_its_limit_is_answered(
    tmp_path: Path, first: Turn, limits: RunLimits, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[gate, *first], says("here I am")]
    async with talking(tmp_path, script=script, limits=limits) as talk:
        await talk.say("1")
        await talk.say("2", on_busy="enqueue")
        gate.set()
        assert (await talk.ended("r1")).status is RunStatus.FAILED
        run = await talk.ended("r2")
        assert run.answer is not None and run.answer.content == "here I am"
        await talk.parked()
        assert endings(await talk.log()) == [RunStatus.FAILED, RunStatus.COMPLETED]
    assert [record.message for record in caplog.records] == ["run failed"]


async def test_picture_of_a_tool_is_beside_its_text_in_the_prompt_and_no_other_file(
    tmp_path: Path,
) -> None:
    picture = Attachment(media_type="image/png", uri="data:image/png;base64,AAAA", name="a.png")
    paper = Attachment(media_type="application/pdf", uri="data:application/pdf;base64,AAAA")

    def draw(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("drawn", attachments=(picture, paper))

    tools = FakeTools(tool("Files-draw", draw))
    script = [calls(("Files-draw", {})), says("nice")]
    model = ScriptedModel(script)
    async with talking(tmp_path, tools=tools, model=model) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
    result = model.prompts[1].messages[-1]
    assert (result.role, result.content) == ("tool", "drawn")
    assert result.parts == (Part(kind="image", content=picture.uri, name="a.png"),)


async def test_open_approval_of_a_failed_run_is_withdrawn_by_the_failure(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-look", hang), SEND)
    script = [calls(("Files-look", {}), ("Mail-send", {"text": "x"})), says("later")]
    async with talking(
        tmp_path, script=script, tools=tools, limits=RunLimits(run_seconds=0.2)
    ) as talk:
        run = await talk.ask()
        while run.status is not RunStatus.FAILED:
            run = await talk.ended("r1")
        send = list(run.calls.values())[1]
        assert send.approval is not None and send.finished is not None
        (decided,) = [e for e in await talk.log() if isinstance(e, ApprovalDecided)]
        assert (decided.outcome, decided.by) == ("withdrawn", "failure")
        assert (send.finished.outcome, send.finished.by) == ("sealed", "failure")
        assert send.finished.result == "Not run: the run failed before it started."


async def test_run_past_its_time_fails_and_its_calls_are_sealed(tmp_path: Path) -> None:
    tools = FakeTools(tool("Files-look", hang))
    script = [calls(("Files-look", {})), says("later")]
    async with talking(
        tmp_path, script=script, tools=tools, limits=RunLimits(run_seconds=0.1)
    ) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "run_timeout")
        (finished,) = [e for e in await talk.log() if isinstance(e, ToolFinished)]
        assert (finished.outcome, finished.by) == ("sealed", "failure")
        assert (await talk.ask("and now?")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []
