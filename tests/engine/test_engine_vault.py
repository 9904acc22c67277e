"""An agent with a vault: its tools get secrets back, and nothing else sees them."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.calls.completions import DO_NOT_SEND
from sk_agents.engine.events import ApprovalRequested, ToolProposed
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Effect, Message, RunStatus, ToolCall
from sk_agents.engine.run.vault import PLACEHOLDER
from sk_agents.engine.turns import (
    CallRequested,
    Completion,
    ModelPiece,
    Prompt,
    Question,
    TextDelta,
    ToolContext,
    TurnFinished,
)
from sk_agents.exceptions import Forbidden, InvalidInput, ToolError
from sk_agents.persistence.store_factory import open_store
from sk_agents.redaction import HIDDEN, Redactor
from tests.engine.fake_tools import LOOK, SEND, FakePolicy, FakeTools, tool
from tests.engine.kit import Setup, Talk, talking
from tests.requirements import requirement
from tests.stores.encrypted import codec, hits

CARD = "4111 1111 1111 1111"
TOKEN = "tok_8fh3Kd92LmQ0"
KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"
OWN = "the-servers-own-key"
VAULT = Redactor.of([OWN]).for_prose(vault_tools=("*",))


class Copier:
    """A model that calls a tool with every placeholder it reads in the last message, and answers
    with what the tool returned."""

    def __init__(self, name: str = "Files-look") -> None:
        self.name = name
        self.prompts: list[Prompt] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        self.prompts.append(replace(prompt, messages=list(prompt.messages)))
        last = prompt.messages[-1]
        if last.role == "user" and (found := PLACEHOLDER.findall(last.content)):
            arguments = json.dumps({"text": f"pay with {' and '.join(found)}"})
            yield [CallRequested("1", self.name, arguments), TurnFinished("tool_calls")]
            return
        yield [TextDelta(f"answer: {last.content}"), TurnFinished()]


async def seen(talk: Talk) -> str:
    """All that anyone but a tool can see: the log without the vault, and the prompts."""
    model = talk.model
    assert isinstance(model, Copier)
    log = [event.model_dump_json(exclude={"secrets"}) for event in await talk.log()]
    return "\n".join([*log, *map(repr, await talk.log()), str(model.prompts)])


def vaulted(model: Copier | None = None, **more: Any) -> Setup:
    return Setup(model=model or Copier(), redaction=more.pop("redaction", VAULT), **more)


@requirement("S004-10.2-redaction")
async def test_tool_gets_the_secret_and_model_and_log_a_placeholder(tmp_path: Path) -> None:
    async with open_store(f"sqlite://{tmp_path}/s", codec=codec()) as store:
        async with talking(store, vaulted()) as talk:
            run = await talk.ask(f"my card is {CARD}, pay")
            assert talk.tools.started == [("Files-look", {"text": f"pay with {CARD}"})]
            mark = PLACEHOLDER.findall(run.message.text if run.message else "")[0]
            assert await talk.results("r1") == [f"echo pay with {mark}"]
            assert CARD not in await seen(talk)
            assert run.answer is not None and mark in run.answer.content
    assert hits(tmp_path, CARD) == [], "encrypted on the disk"


async def test_same_secret_has_the_same_placeholder_in_later_turns(tmp_path: Path) -> None:
    async with talking(tmp_path, vaulted()) as talk:
        for _ in range(2):
            await talk.ask(f"my card is {CARD}, pay")
        await talk.result(await talk.edit("r2", "again, please"))
        await talk.result(await talk.edit("r2"))
        state = fold(await talk.log())
        assert len(state.secrets) == 1
        assert [arguments["text"] for _, arguments in talk.tools.started] == [
            f"pay with {CARD}"
        ] * 3
        assert CARD not in await seen(talk)


async def test_approval_shows_the_placeholder_says_so_and_runs_the_secret_elsewhere(
    tmp_path: Path,
) -> None:
    setup = vaulted(Copier("Mail-send"))
    async with talking(tmp_path, setup, owner="a") as talk:
        await talk.ask(f"my card is {CARD}, pay")
        (approval_id,) = await talk.approvals("r1")
        (request,) = (e for e in await talk.log() if isinstance(e, ApprovalRequested))
        assert request.shown["redacted"] is True
        assert CARD not in json.dumps(request.shown)
    async with talking(tmp_path, replace(setup, tools=FakeTools(LOOK, SEND)), owner="b") as talk:
        await talk.decide(approval_id, digest=request.digest)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": f"pay with {CARD}"})]
        assert CARD not in await seen(talk)


async def test_secret_that_a_tool_finds_can_be_handed_to_the_next_one(tmp_path: Path) -> None:
    def find(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"Authorization: Bearer {TOKEN}" if "card" not in arguments else ""

    def use(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"it was {arguments['text']}, bare"

    class Handing(Copier):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
            self.prompts.append(replace(prompt, messages=list(prompt.messages)))
            last = prompt.messages[-1].content
            if found := PLACEHOLDER.search(last) if "Bearer" in last else None:
                arguments = json.dumps({"text": found[0]})
                yield [CallRequested("2", "Web-use", arguments), TurnFinished("tool_calls")]
            elif prompt.messages[-1].role == "user":
                yield [CallRequested("1", "Web-find", "{}"), TurnFinished("tool_calls")]
            else:
                yield [TextDelta(last), TurnFinished()]

    tools = FakeTools(tool("Web-find", find), tool("Web-use", use))
    async with talking(tmp_path, vaulted(Handing(), tools=tools)) as talk:
        await talk.ask("go")
        assert tools.started[-1] == ("Web-use", {"text": TOKEN})
        assert TOKEN not in await seen(talk), "nor where nothing says that it is a token"
        results = await talk.results("r1")
        assert PLACEHOLDER.search(str(results[1]))


async def test_check_and_rules_look_at_the_true_call_and_tell_no_secret(tmp_path: Path) -> None:
    class Strict(FakeTools):
        def check(self, call: ToolCall) -> dict[str, Any]:
            if CARD not in call.arguments["text"]:
                raise ToolError("no card")
            if "refused" in call.arguments["text"]:
                raise ToolError(f"{call.arguments['text']} is not accepted")
            return {**call.arguments, "default": 1}

    def rule(call: ToolCall) -> Any:
        return "deny" if CARD in call.arguments["text"] else "allow"

    tools = Strict(LOOK)
    async with talking(tmp_path, vaulted(tools=tools, policy=FakePolicy(rule))) as talk:
        await talk.ask(f"my card is {CARD}, pay")
        (proposed,) = (e for e in await talk.log() if isinstance(e, ToolProposed))
        assert (proposed.problem, proposed.arguments["default"]) == (None, 1)
        assert tools.started == [], "the rule has seen the card"
        assert CARD not in await seen(talk)


class Numbers(FakeTools):
    """Their argument is a number, which may be written as a text."""

    def check(self, call: ToolCall) -> dict[str, Any]:
        digits = str(call.arguments["text"]).removeprefix("pay with ").replace(" ", "")
        if not digits.isdecimal():
            raise ToolError("text: must be a number")
        return {"text": int(digits), "default": [1]}


async def test_secret_that_is_taken_for_a_number_is_kept_as_its_placeholder(
    tmp_path: Path,
) -> None:
    number = int(CARD.replace(" ", ""))
    judged: list[Any] = []

    def rule(call: ToolCall) -> Any:
        judged.append(call.arguments["text"])
        return "ask"

    tools = Numbers(tool("Mail-send", effect=Effect.AT_MOST_ONCE))
    setup = vaulted(Copier("Mail-send"), tools=tools, policy=FakePolicy(rule))
    async with talking(tmp_path, setup) as talk:
        await talk.ask(f"my card is {CARD}, pay")
        (mark,) = fold(await talk.log()).secrets
        (proposed,) = (e for e in await talk.log() if isinstance(e, ToolProposed))
        assert proposed.arguments == {"text": f"pay with {mark}", "default": [1]}
        (approval_id,) = await talk.approvals("r1")
        edited = {"text": f"pay with {mark} "}
        await talk.decide(approval_id, edited_arguments=edited)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert tools.started == [("Mail-send", {"text": number, "default": [1]})]
        assert set(judged) == {number}, "rules look at what will run"
        assert str(number) not in await seen(talk)


async def test_edited_call_is_checked_and_judged_with_the_secret(tmp_path: Path) -> None:
    def rule(call: ToolCall) -> Any:
        return "deny" if call.arguments["text"] == 5 else "ask"

    redaction = finding(r"(?<=pin )\S+")
    tools = Numbers(tool("Mail-send", effect=Effect.AT_MOST_ONCE))
    setup = vaulted(Copier("Mail-send"), tools=tools, policy=FakePolicy(rule), redaction=redaction)
    async with talking(tmp_path, setup) as talk:
        await talk.ask("pin 5")
        await talk.ask("pin 7")
        (approval_id,) = await talk.approvals("r2")
        mark = next(mark for mark, pin in fold(await talk.log()).secrets.items() if pin == "5")
        with pytest.raises(Forbidden):
            await talk.decide(approval_id, edited_arguments={"text": f"pay with {mark}"})
        with pytest.raises(InvalidInput, match="must be a number"):
            await talk.decide(approval_id, edited_arguments={"text": "pay with [secret-00000000]"})


@pytest.mark.parametrize(("tools", "gets"), [(("Files-*",), True), (("Mail-*",), False)])
async def test_only_the_named_tools_get_it(
    tmp_path: Path, tools: tuple[str, ...], gets: bool
) -> None:
    redaction = Redactor.of([OWN]).for_prose(vault_tools=tools)
    async with talking(tmp_path, vaulted(redaction=redaction)) as talk:
        await talk.ask(f"my card is {CARD}, pay")
        ((_, arguments),) = talk.tools.started
        assert (CARD in arguments["text"]) is gets
        assert bool(PLACEHOLDER.search(arguments["text"])) is not gets


async def test_what_the_server_keeps_secret_itself_is_given_to_no_tool(tmp_path: Path) -> None:
    async with talking(tmp_path, vaulted()) as talk:
        await talk.ask(f"the key is {OWN}")
        state = fold(await talk.log())
        assert state.secrets == {}
        assert HIDDEN in str(state.run("r1").message)


def finding(*patterns: str) -> Redactor:
    return Redactor.of([OWN]).for_prose(patterns=patterns, vault_tools=("*",))


async def test_pattern_that_finds_a_placeholder_leaves_it(tmp_path: Path) -> None:
    setup = vaulted(redaction=finding(r"(?<=password: )\S+"))
    async with talking(tmp_path, setup) as talk:
        run = await talk.ask("password: hunter22 pay")
        assert run.message is not None
        (mark,) = PLACEHOLDER.findall(run.message.text)
        again = await talk.ask(f"password: {mark} pay")
        said = await talk.ask(f"say password: {mark.removesuffix(']')} to {mark}")
        assert talk.tools.started[0] == talk.tools.started[1]
        assert talk.tools.started[1] == ("Files-look", {"text": "pay with hunter22"})
        assert again.message is not None and again.message.text == f"password: {mark} pay"
        assert said.answer is not None and mark in said.answer.content


async def test_answer_keeps_a_placeholder_that_a_pattern_finds(tmp_path: Path) -> None:
    class Parrot(Copier):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
            for character in prompt.messages[-1].content:
                yield [TextDelta(character)]
            yield [TurnFinished()]

    setup = vaulted(Parrot(), redaction=finding(r"(?<=password: )\S+"))
    async with talking(tmp_path, setup) as talk:
        run = await talk.ask("password: hunter22 pay")
        assert run.message is not None and run.answer is not None
        assert run.answer.content == run.message.text
        assert PLACEHOLDER.search(run.answer.content)


async def test_secret_with_a_secret_in_it_is_given_back_as_a_whole(tmp_path: Path) -> None:
    async with talking(tmp_path, vaulted(redaction=finding(r"pin=\S+"))) as talk:
        await talk.ask(f"pin={KEY} pay")
        assert talk.tools.started == [("Files-look", {"text": f"pay with pin={KEY}"})]
        run = await talk.ask(f"the key was {KEY}, pay")
        assert talk.tools.started[1] == ("Files-look", {"text": f"pay with {KEY}"})
        assert run.message is not None
        (mark,) = PLACEHOLDER.findall(run.message.text)
        await talk.ask(f"pin={mark} pay")
        assert talk.tools.started[2] == ("Files-look", {"text": f"pay with pin={KEY}"})
        assert KEY not in await seen(talk)


async def test_secret_that_is_a_word_of_placeholders_breaks_none(tmp_path: Path) -> None:
    setup = vaulted(redaction=finding(r"(?<=password: )\S+"))
    async with talking(tmp_path, setup) as talk:
        for _ in range(2):
            await talk.ask(f"password: secret and card {CARD}, pay")
        assert [arguments["text"] for _, arguments in talk.tools.started] == [
            f"pay with secret and {CARD}"
        ] * 2


async def test_question_of_a_tool_shows_the_placeholder_of_what_it_was_given(
    tmp_path: Path,
) -> None:
    async def confirm(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.ask is not None
        return str(await context.ask(Question(f"Really {arguments['text']}?")))

    setup = vaulted(
        tools=FakeTools(tool("Files-look", confirm)), redaction=finding(r"(?<=password: )\S+")
    )
    async with talking(tmp_path, setup) as talk:
        await talk.say("password: hunter22 pay")
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (approval,) = state.run("r1").pending_approvals
        (mark,) = state.secrets
        assert approval.request.shown["arguments"]["question"] == f"Really pay with {mark}?"
        await talk.decide(approval.request.approval_id, answer="yes")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert "hunter22" not in await seen(talk)


async def test_model_that_a_tool_asks_gets_the_placeholder(tmp_path: Path) -> None:
    async def ponder(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.complete is not None
        message = Message(role="user", content=f"What of {arguments['text']}?")
        return (await context.complete(Completion("The poet", (message,), 50))).text

    setup = vaulted(
        tools=FakeTools(tool("Files-look", ponder)), redaction=finding(r"(?<=password: )\S+")
    )
    async with talking(tmp_path, setup) as talk:
        await talk.say("password: hunter22 pay")
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (approval,) = state.run("r1").pending_approvals
        (mark,) = state.secrets
        assert approval.request.shown["arguments"]["question"].endswith(f"What of pay with {mark}?")
        await talk.decide(approval.request.approval_id, answer=DO_NOT_SEND)
        await talk.ended("r1")
        assert "hunter22" not in await seen(talk)


async def test_note_about_an_answer_has_no_secret_of_the_conversation(tmp_path: Path) -> None:
    setup = vaulted(redaction=finding(r"(?<=password: )\S+"))
    async with talking(tmp_path, setup) as talk:
        await talk.ask("password: hunter22 pay")
        await talk.engine.catalog.rate("t", "ada", "r1", "down", "it told hunter22")
        rated = fold(await talk.log()).run("r1").rated
        assert rated is not None and rated.note == f"it told {HIDDEN}"


async def test_placeholder_of_another_conversation_opens_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, vaulted()) as talk:
        run = await talk.ask(f"my card is {CARD}, pay")
        assert run.message is not None
        mark = PLACEHOLDER.findall(run.message.text)[0]
        await talk.ask(f"pay with {mark}", thread="other")
        assert talk.tools.started[-1] == ("Files-look", {"text": f"pay with {mark}"})
