"""Long conversations: compacted in time, and once more if the provider says so."""

from pathlib import Path

from sk_agents.engine.events import Compacted, ModelRestarted
from sk_agents.engine.models import RunStatus
from sk_agents.engine.run.context_window import ContextWindow
from sk_agents.exceptions import ContextTooLong
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import talking

LONG = "word " * 300


async def test_old_turns_are_left_out_of_the_prompt_and_stay_in_the_log(tmp_path: Path) -> None:
    script = [says(f"answer {number} {LONG}") for number in range(1, 11)]
    context = ContextWindow(window=3_000, reserve=500)
    async with talking(tmp_path, script=script, context=context) as talk:
        for number in range(1, 11):
            run = await talk.ask(f"question {number}")
            assert run.phase is RunStatus.COMPLETED
        compactions = [event for event in await talk.log() if isinstance(event, Compacted)]
        assert compactions
        assert len((await talk.engine.thread("t", "ada")).state.branch()) == 10
        for prompt in talk.prompts:
            assert sum(len(str(message["content"])) for message in prompt) < 4 * context.window
        last = talk.prompts[-1]
        assert last[1]["content"].startswith("Summary of the conversation so far")
        assert last[-1]["content"] == "question 10"


async def test_a_provider_that_counts_otherwise_gets_a_shorter_prompt(tmp_path: Path) -> None:
    script = [says(LONG), says(LONG), ContextTooLong(), says("now it fits")]
    async with talking(
        tmp_path, script=script, context=ContextWindow(window=2_000, reserve=0)
    ) as talk:
        await talk.ask("one")
        await talk.ask("two")
        run = await talk.ask("three")
        assert run.answer is not None
        assert run.answer.content == "now it fits"
        assert any(isinstance(event, ModelRestarted) for event in await talk.log())
        assert len(str(talk.prompts[-1])) < len(str(talk.prompts[-2]))


async def test_a_prompt_that_cannot_be_made_to_fit_fails_the_run_with_its_code(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=[ContextTooLong(), says("hello again")]) as talk:
        run = await talk.ask("far too long")
        assert run.failure is not None
        assert run.failure.code == "llm_context"
        assert (await talk.ask("short")).phase is RunStatus.COMPLETED


async def test_provider_that_counts_otherwise_gets_about_half_of_what_it_refused(
    tmp_path: Path,
) -> None:
    script = [*(says(LONG) for _ in range(8)), ContextTooLong(), says("now it fits")]
    async with talking(tmp_path, script=script) as talk:
        for number in range(9):
            await talk.ask(f"question {number}")
        refused, taken = talk.prompts[-2:]
        assert len(str(refused)) / 4 < len(str(taken)) < len(str(refused)) / 2
        assert taken[-1]["content"] == "question 8"


async def test_run_whose_shorter_prompt_is_refused_too_fails_with_its_code(tmp_path: Path) -> None:
    script = [says(LONG), says(LONG), ContextTooLong(), ContextTooLong(), says("never")]
    async with talking(tmp_path, script=script) as talk:
        await talk.ask("one")
        await talk.ask("two")
        run = await talk.ask("three")
        assert run.failure is not None
        assert run.failure.code == "llm_context"
        assert len(talk.prompts) == 4


async def test_tool_output_that_does_not_fit_is_cut_in_the_prompt_and_whole_in_the_log(
    tmp_path: Path,
) -> None:
    output = "y" * 60_000
    tools = FakeTools(tool("Files-look", lambda arguments, context: output))
    script = [calls(("Files-look", {})), says("a lot")]
    context = ContextWindow(window=4_000, reserve=0)
    async with talking(tmp_path, script=script, tools=tools, context=context) as talk:
        await talk.ask("look")
        assert await talk.results("r1") == [output]
        (shown,) = [m["content"] for m in talk.prompts[-1] if m["role"] == "tool"]
        assert 1_000 < len(shown) < 4 * context.budget
        assert "characters are left out here" in shown


async def test_tool_output_that_fits_is_sent_whole(tmp_path: Path) -> None:
    output = "y" * 9_000
    tools = FakeTools(tool("Files-look", lambda arguments, context: output))
    script = [calls(("Files-look", {})), says("enough")]
    context = ContextWindow(window=4_000, reserve=0)
    async with talking(tmp_path, script=script, tools=tools, context=context) as talk:
        await talk.ask("look")
        assert [m["content"] for m in talk.prompts[-1] if m["role"] == "tool"] == [output]
