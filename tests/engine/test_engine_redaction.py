"""An agent that redacts: secrets reach neither the log nor the model nor a reader."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.commands import StartRun
from sk_agents.engine.events import Answered, ApprovalDecided, ApprovalRequested, ToolFinished
from sk_agents.engine.log.state import TITLE, fold
from sk_agents.engine.models import Attachment, NewThread, Part, RunStatus, UserInput
from sk_agents.engine.run.redacting import FILE_PIECE, edited_as_meant
from sk_agents.engine.turns import ReasoningState, ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import InvalidInput
from sk_agents.redaction import HIDDEN, Redactor
from sk_agents.testing.scripted_model import ScriptedModel, Turn, calls, says
from tests.engine.fake_tools import LOOK, SEND, FakeTools, tool
from tests.engine.kit import USER, Talk, said, talking, waiting
from tests.requirements import requirement

CANARY = "hunter2canary"
REDACTION = Redactor.of([CANARY])


async def everything(talk: Talk) -> str:
    """All that is stored, and all that the model was asked."""
    log = [event.model_dump_json() for event in await talk.log()]
    return "\n".join([*log, str(talk.prompts), str(await talk.store.thread("t"))])


@requirement("S004-10.2-redaction")
async def test_message_is_redacted_before_it_is_stored_and_before_the_model_sees_it(
    tmp_path: Path,
) -> None:
    script = [says("hello"), says("again"), says("edited")]
    async with talking(tmp_path, script=script, redaction=REDACTION) as talk:
        await talk.ask(f"my password is {CANARY}", title=f"my password is {CANARY[:9]}")
        await talk.ask(f"again {CANARY}")
        await talk.result(await talk.edit("r2", f"or {CANARY}"))
        assert CANARY not in await everything(talk)
        assert CANARY[:9] not in await everything(talk), "nor the part that fits into a title"
        assert fold(await talk.log()).run("r1").message == UserInput(
            parts=(Part(content=f"my password is {HIDDEN}"),)
        )


@requirement("S004-10.2-redaction")
async def test_title_that_a_thread_is_made_with_is_redacted(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("hello")], redaction=REDACTION) as talk:
        titled = NewThread(USER, agent="a", metadata={TITLE: f"my password is {CANARY[:9]}"})
        message = said(f"my password is {CANARY}")
        start = StartRun(thread_id="t", run_id="r1", user_id=USER, message=message, new=titled)
        await talk.result(await talk.engine.start(start))
        assert CANARY[:9] not in await everything(talk)


@requirement("S004-10.2-redaction")
async def test_answer_is_redacted_wherever_its_pieces_are_cut(tmp_path: Path) -> None:
    text = f"the password is {CANARY}, yes"
    script = [says(text, pieces=pieces) for pieces in range(1, len(text) + 1)]
    async with talking(tmp_path, script=script, redaction=REDACTION) as talk:
        for _ in script:
            seen = await talk.items(await talk.say())
            assert CANARY not in "".join(str(item) for item in seen)
            assert CANARY not in "".join(getattr(item, "text", "") for item in seen)
        assert CANARY not in await everything(talk)
        answers = [event.content for event in await talk.log() if isinstance(event, Answered)]
        assert answers == [f"the password is {HIDDEN}, yes"] * len(script)


async def leak(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[object]:
    for piece in (f"reading {CANARY[:5]}", CANARY[5:], " done\n"):
        yield ToolChunk(piece)
    yield ToolResult(f"found {CANARY}", {"token": CANARY})


@requirement("S004-10.2-redaction")
async def test_tool_result_and_its_output_are_redacted(tmp_path: Path) -> None:
    script = [calls(("Web-leak", {})), says("done")]
    tools = FakeTools(LOOK, SEND, tool("Web-leak", leak))
    async with talking(tmp_path, script=script, tools=tools, redaction=REDACTION) as talk:
        seen = await talk.items(await talk.say())
        assert CANARY not in "".join(str(item) for item in seen)
        assert CANARY not in await everything(talk)
        assert await talk.results("r1") == [f"found {HIDDEN}"]


def attached(data: bytes, media_type: str, name: str) -> Attachment:
    uri = f"data:{media_type};base64,{b64encode(data).decode()}"
    return Attachment(media_type=media_type, uri=uri, size=len(data), name=name)


@requirement("S004-10.2-redaction")
async def test_files_that_are_text_are_redacted_and_others_stay(tmp_path: Path) -> None:
    table = f"{'x,' * FILE_PIECE}{CANARY},y\n".encode()
    other = b"\xff\xfe" + CANARY.encode()

    async def files(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[object]:
        files = (attached(table, "text/csv", f"{CANARY}.csv"), attached(other, "x/y", "z"))
        yield ToolResult("two files", attachments=files)

    script = [calls(("Web-files", {})), says("done")]
    tools = FakeTools(LOOK, SEND, tool("Web-files", files))
    async with talking(tmp_path, script=script, tools=tools, redaction=REDACTION) as talk:
        await talk.ask("go")
        (finished,) = (e for e in await talk.log() if isinstance(e, ToolFinished))
        assert finished.attachments is not None
        first, second = finished.attachments
        hidden = table.replace(CANARY.encode(), HIDDEN.encode())
        assert first.uri == attached(hidden, "text/csv", "").uri
        assert (first.size, first.name) == (len(hidden), f"{HIDDEN}.csv")
        assert second.uri == attached(other, "x/y", "").uri


@requirement("S004-10.2-redaction")
async def test_approval_says_that_it_was_redacted_and_the_tool_gets_the_true_arguments(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {"text": f"it is {CANARY}"})), says("sent")]
    async with talking(tmp_path, script=script, redaction=REDACTION) as talk:
        approval_id = await waiting(talk)
        (request,) = (e for e in await talk.log() if isinstance(e, ApprovalRequested))
        assert request.shown["arguments"] == {"text": f"it is {HIDDEN}"}
        assert request.shown["redacted"] is True
        await talk.decide(approval_id, digest=request.digest)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": f"it is {CANARY}"})]


async def test_approval_without_secrets_says_nothing_of_it(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"text": "x"})), says("sent")]
    async with talking(tmp_path, script=script, redaction=REDACTION) as talk:
        await waiting(talk)
        (request,) = (e for e in await talk.log() if isinstance(e, ApprovalRequested))
        assert "redacted" not in request.shown


@requirement("S004-10.2-redaction")
async def test_reason_of_a_decision_is_redacted(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"text": "x"})), says("then not")]
    async with talking(tmp_path, script=script, redaction=REDACTION) as talk:
        await talk.decide(await waiting(talk), approved=False, message=f"no, it is {CANARY}")
        await talk.ended("r1")
        assert CANARY not in await everything(talk)
        (decided,) = (e for e in await talk.log() if isinstance(e, ApprovalDecided))
        assert decided.message == f"no, it is {HIDDEN}"


@requirement("S004-10.2-redaction")
async def test_signed_thoughts_with_a_secret_are_not_kept(tmp_path: Path) -> None:
    def asked(thought: str) -> Turn:
        *pieces, end = calls(("Web-look", {"url": "x"}))
        return [*pieces, ReasoningState({"blocks": [{"thinking": thought}]}), end]

    script: list[Turn] = [asked(f"it is {CANARY}"), asked("it is fine"), says("done")]
    model = ScriptedModel(script)
    async with talking(tmp_path, model=model, redaction=REDACTION) as talk:
        await talk.ask("go")
        assert CANARY not in await everything(talk)
        states = [one.reasoning_state for one in model.prompts[-1].messages if one.tool_calls]
        assert states == [None, {"blocks": [{"thinking": "it is fine"}]}]


@pytest.mark.parametrize(
    ("edited", "meant"),
    [
        ({"a": [HIDDEN, 1], "b": {HIDDEN: HIDDEN}}, {"a": [CANARY, 1], "b": {CANARY: CANARY}}),
        ({"a": [2, HIDDEN, 1]}, {"a": [2, CANARY, 1]}),
        ({"a": [True], "c": 1, "b": {HIDDEN: 2}}, {"a": [True], "c": 1, "b": {CANARY: 2}}),
        ({}, {}),
    ],
)
def test_what_a_reviewer_leaves_as_it_was_shown_is_what_was_written(
    edited: dict[str, Any], meant: dict[str, Any]
) -> None:
    written = {"a": [CANARY, 1], "b": {CANARY: CANARY}}
    assert edited_as_meant(REDACTION, written, edited) == meant
    assert edited_as_meant(None, written, edited) is edited


@pytest.mark.parametrize("edited", [{"c": HIDDEN}, {"a": f"{HIDDEN}!"}, {"a": {"b": HIDDEN}}])
def test_mark_of_a_secret_that_was_moved_is_refused(edited: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="stands for a secret"):
        edited_as_meant(REDACTION, {"a": CANARY}, edited)
    harmless = {"a": "nothing hidden"}
    assert edited_as_meant(REDACTION, harmless, edited) is edited
