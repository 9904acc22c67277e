"""A model that fails: a clear code, a conversation that goes on."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import Failed
from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import ModelPiece, Prompt, ReasoningState, TextDelta, TurnFinished
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)
from sk_agents.testing.scripted_model import ScriptedModel, calls, says
from tests.engine.kit import Script, Setup, kinds, talking
from tests.engine.openai_rules import problems
from tests.requirements import requirement


@requirement("S004-7.2-failed")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelRateLimited(), "llm_rate_limited"),
        (ModelUnavailable(), "llm_unavailable"),
        (ModelProtocolError(), "llm_protocol"),
        (ModelRefused(), "llm_refused"),
        (ContextTooLong(), "llm_context"),
        (ModelError(), "llm_unavailable"),
        (RuntimeError("key=hunter2"), "llm_unavailable"),
    ],
)
async def test_model_error_fails_the_run_with_its_code_and_the_next_message_works(
    tmp_path: Path, error: Exception, code: str
) -> None:
    script = [calls(("Files-look", {})), [TextDelta("I th"), error], says("better now")]
    async with talking(tmp_path, script=script) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, code)
        assert run.failure.correlation_id
        assert kinds(await talk.log())[-2:] == ["Failed", "RunEnded"]
        assert "hunter2" not in str(await talk.log())
        assert (await talk.ask("and now?")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []
        assert [m["role"] for m in talk.prompts[-1]][-3:] == ["assistant", "tool", "user"]


@pytest.mark.parametrize("http", [False, True])
async def test_stream_that_breaks_off_twice_fails_the_run(tmp_path: Path, http: bool) -> None:
    half: list[Any] = [TextDelta("Hel"), ModelInterrupted()]
    async with talking(tmp_path, script=[half, half, says("again")], http=http) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "llm_interrupted")
        assert run.answer is None
        assert (await talk.ask("once more")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []


@pytest.mark.parametrize(
    ("status", "code"), [(429, "llm_rate_limited"), (503, "llm_unavailable"), (401, "llm_refused")]
)
async def test_status_of_a_real_server_becomes_the_runs_code(
    tmp_path: Path, status: int, code: str
) -> None:
    script: Script = [ModelError("no", status=status), says("fine")]
    async with talking(tmp_path, Setup(script, http=True)) as talk:
        run = await talk.ask()
        assert run.failure is not None and run.failure.code == code
        assert (await talk.ask()).status is RunStatus.COMPLETED


async def test_empty_answer_is_kept_and_left_out_of_later_prompts(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says(""), says("hello?")]) as talk:
        run = await talk.ask("one")
        assert run.status is RunStatus.COMPLETED
        assert run.answer is not None and run.answer.content == ""
        await talk.ask("two")
        assert problems(talk.prompts[1]) == []


async def test_failure_tells_its_log_nothing_of_the_model_s_words(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[RuntimeError("secret")]) as talk:
        await talk.ask()
        failed = next(e for e in await talk.log() if isinstance(e, Failed))
        assert failed.message == "The model did not give a usable reply."


class ClosingStream:
    """Says hello and would go on for ever."""

    def __init__(self) -> None:
        self.pieces: Iterator[ModelPiece] = iter([TextDelta("hello"), TurnFinished("stop")])
        self.is_closed = False

    def __aiter__(self) -> "ClosingStream":
        return self

    async def __anext__(self) -> Sequence[ModelPiece]:
        return (next(self.pieces),)

    async def aclose(self) -> None:
        self.is_closed = True


async def test_stream_is_closed_once_the_reply_is_whole(tmp_path: Path) -> None:
    stream = ClosingStream()

    class Model:
        def stream(self, prompt: Prompt) -> ClosingStream:
            return stream

    async with talking(tmp_path, model=Model()) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
    assert stream.is_closed


async def test_state_of_the_reasoning_is_sent_back_until_the_answer_also_by_another_instance(
    tmp_path: Path,
) -> None:
    state = {"kind": "some", "blocks": [{"signature": "s1"}]}
    *asked, end = calls(("Mail-send", {"text": "x"}))
    script = [[*asked, ReasoningState(state), end], says("sent"), says("again")]
    model = ScriptedModel(script)
    async with talking(tmp_path, Setup(model=model)) as talk:
        accepted = await talk.say()
        assert (await talk.result(accepted)).status is RunStatus.WAITING
    async with talking(tmp_path, Setup(model=model), owner="b") as talk:
        await talk.decide(*await talk.approvals("r1"))
        assert (await talk.result(accepted)).status is RunStatus.COMPLETED
        await talk.ask(run_id="r2")
    states = [
        [message.reasoning_state for message in prompt.messages if message.tool_calls]
        for prompt in model.prompts
    ]
    assert states == [[], [state], [None]]
