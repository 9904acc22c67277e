"""Replies of any size: bounded before they are stored, handled in time that grows as they do."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls.proposals import MAX_ARGUMENT_BYTES, parse_arguments
from sk_agents.engine.calls.steps import invalid_rounds
from sk_agents.engine.events import Event, Failed, Thinking, ToolProposed
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Message, RunStatus
from sk_agents.engine.run.context_window import ContextWindow, cut_to_fit
from sk_agents.engine.run.conversation import thread_messages
from sk_agents.engine.run.rounds import Reply
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    ReplyLimits,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import ReplyTooLarge, ToolError
from sk_agents.llm.replies import StreamedReply
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.builders import finished, log, proposed, started
from tests.engine.kit import Setup, talking

LOOK = CallRequested("p", "Files-look", "{}")
KIB = 1024


def many(count: int) -> Turn:
    return calls(*[("Files-look", {"text": str(number)}) for number in range(count)])


class Endless:
    """A model that never stops; it counts what is read of it."""

    def __init__(self, piece: ModelPiece) -> None:
        self._piece = piece
        self.read = 0
        self.is_closed = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        try:
            while True:
                self.read += 1
                yield [self._piece]
        finally:
            self.is_closed = True


@pytest.mark.parametrize(
    ("piece", "most"),
    [
        (TextDelta("é" * 512), KIB),
        (ReasoningDelta("x" * KIB), KIB),
        (LOOK, 64),
        (CallRequested("p", "Files-look", "x" * KIB * KIB), 8),
    ],
    ids=["text", "reasoning", "calls", "arguments"],
)
async def test_endless_reply_is_read_to_its_limit_and_nothing_of_it_is_stored(
    tmp_path: Path, piece: ModelPiece, most: int
) -> None:
    model = Endless(piece)
    async with talking(tmp_path, Setup(model=model)) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "llm_reply_too_large")
        assert model.is_closed and model.read == most + 1
        assert [type(e).__name__ for e in await talk.log()] == ["RunStarted", "Failed", "RunEnded"]


async def test_half_of_a_character_in_a_reply_becomes_the_replacement_character(
    tmp_path: Path,
) -> None:
    """The clients of providers see to it themselves; a model may be the operator's own."""
    half = "\ud83d"
    script: list[Turn] = [
        [
            ReasoningDelta(f"a{half}"),
            TextDelta(f"b{half}"),
            CallRequested(half, f"Files-look{half}", half),
            TurnFinished("tool_calls"),
        ],
        [TextDelta(f"done{half}"), TurnFinished(half)],
    ]
    async with talking(tmp_path, script=script) as talk:
        run = await talk.ask()
        assert run.answer is not None and run.answer.content == "done\ufffd"
        thoughts = [e.content for e in await talk.log() if isinstance(e, Thinking)]
        assert thoughts == ["a\ufffd", "b\ufffd"]


async def test_reply_of_exactly_its_limit_is_stored_whole(tmp_path: Path) -> None:
    limits = RunLimits(reply_bytes=4 * KIB, calls_per_round=2)
    script = [many(8), says("é" * 2 * KIB, pieces=7)]
    async with talking(tmp_path, script=script, limits=limits) as talk:
        run = await talk.ask()
        assert run.answer is not None and run.answer.content == "é" * 2 * KIB
        assert len(talk.tools.started) == 2
        assert len(await talk.results("r1")) == 8


async def test_one_byte_and_one_call_more_are_too_large(tmp_path: Path) -> None:
    limits = RunLimits(reply_bytes=4 * KIB, calls_per_round=2)
    for name, turn in {"text": says("x" * (4 * KIB + 1)), "calls": many(9)}.items():
        async with talking(tmp_path, script=[turn], limits=limits) as talk:
            run = await talk.ask(thread=name)
            assert run.failure is not None and run.failure.code == "llm_reply_too_large"


async def test_conversation_goes_on_after_a_reply_that_was_too_large(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[many(20_000), says("better")], http=True) as talk:
        assert (await talk.ask()).status is RunStatus.FAILED
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert isinstance(next(e for e in await talk.log() if isinstance(e, Failed)), Failed)


async def test_large_arguments_are_an_error_result_and_not_stored(tmp_path: Path) -> None:
    large = CallRequested("1", "Files-look", json.dumps({"text": "x" * 5 * KIB * KIB}))
    script: list[Turn] = [[large, TurnFinished("tool_calls")], says("smaller then")]
    async with talking(tmp_path, script=script, http=True) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        (proposal,) = [e for e in await talk.log() if isinstance(e, ToolProposed)]
        assert proposal.arguments == {}
        assert "larger than 65536 bytes" in talk.prompts[1][-1]["content"]


@pytest.mark.parametrize(
    ("limits", "fits", "is_too_much"),
    [
        (ReplyLimits(text_bytes=8), [TextDelta("text"), ReasoningDelta("éé")], TextDelta("x")),
        (ReplyLimits(text_bytes=8), [ReasoningDelta("reasoned")], ReasoningDelta("x")),
        (ReplyLimits(calls=2), [CallRequested("1", "a", "{}")] * 2, CallRequested("1", "a", "")),
        (
            ReplyLimits(argument_bytes=8),
            [CallRequested("1", "a", "text"), CallRequested("2", "a", "éé")],
            CallRequested("3", "a", "x"),
        ),
    ],
    ids=["text and reasoning", "reasoning", "calls", "arguments"],
)
def test_reply_may_be_as_large_as_its_limit_and_not_larger(
    limits: ReplyLimits,
    fits: list[TextDelta | ReasoningDelta | CallRequested],
    is_too_much: TextDelta | ReasoningDelta | CallRequested,
) -> None:
    reply = Reply("r1", 1, limits=limits)

    def take(piece: TextDelta | ReasoningDelta | CallRequested) -> None:
        if isinstance(piece, CallRequested):
            reply.take_call(piece)
        else:
            reply.take(piece)

    for piece in fits:
        take(piece)
    with pytest.raises(ReplyTooLarge, match="larger than 8|more than 2"):
        take(is_too_much)


def test_client_holds_no_more_of_a_reply_than_it_may_have() -> None:
    reply = StreamedReply(ReplyLimits(calls=3, argument_bytes=10 * MAX_ARGUMENT_BYTES))
    for index in range(3):
        reply.take(_chunk(index, arguments="x"))
    with pytest.raises(ReplyTooLarge):
        reply.take(_chunk(3, arguments="x"))
    for number in range(9):
        reply.take(_chunk(0, name=f"{number:04}" * 64, arguments="x" * MAX_ARGUMENT_BYTES))
    with pytest.raises(ReplyTooLarge):
        reply.take(_chunk(1, arguments="x" * MAX_ARGUMENT_BYTES))
    reply.finish()
    first = next(piece for piece in reply.drain() if isinstance(piece, CallRequested))
    assert len(first.arguments) < 3 * MAX_ARGUMENT_BYTES
    assert len(first.name) < 2 * KIB


def _chunk(index: int, **function: str) -> dict[str, Any]:
    call = {"index": index, "id": f"c{index}", "function": function}
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


def cost(work: Callable[[int], object], size: int) -> float:
    """CPU seconds of this thread for so much, the least of several tries."""
    tries = []
    for _ in range(10):
        began = time.thread_time()
        work(size)
        tries.append(time.thread_time() - began)
    return min(tries)


def cutting(size: int) -> object:
    messages = [
        Message(role="tool", content="x" * (2_500 + n % 100), tool_call_id="c") for n in range(size)
    ]
    return cut_to_fit(messages, ContextWindow(window=2, reserve=1))


def repeating(size: int) -> object:
    pairs = ",".join(f'"{number}":0' for number in range(size * 3))
    with pytest.raises(ToolError, match="appears twice"):
        parse_arguments("{" + pairs + f',"{size * 3 - 1}":1}}')
    return None


def folding(size: int) -> object:
    """A run of so many rounds, looked at after each as its driver does."""
    events: list[Event] = [started()]
    for number in range(1, size + 1):
        call_id = f"c{number}"
        events.append(proposed(call_id, round=number))
        events.append(finished(call_id))
    state = fold(log(*events[:1]))
    for event in log(*events)[1:]:
        state.apply(event)
        run = state.run("r1")
        _ = run.status, run.unresolved_calls, run.pending_approvals, run.next_round, run.is_refused
        invalid_rounds(run)
    return thread_messages(state)


@pytest.mark.parametrize(("work", "size"), [(cutting, 400), (repeating, 200), (folding, 400)])
def test_eight_times_as_much_takes_about_eight_times_as_long(
    work: Callable[[int], object], size: int
) -> None:
    """Twice that is allowed for; what grows with the square would take 64 times as long."""
    assert cost(work, 8 * size) < 16 * cost(work, size)


async def test_others_get_their_turn_while_a_large_reply_is_handled(tmp_path: Path) -> None:
    """Sixteen calls of 60 KiB of numbers each, in small slices. A task that slept needs three of
    them: one until its time is looked at, one until it is called, one that is not over yet."""
    arguments = json.dumps({"list": list(range(9_000))})
    big: Turn = [
        *(CallRequested(f"p{number}", "Files-look", arguments) for number in range(16)),
        TurnFinished("tool_calls"),
    ]
    async with talking(tmp_path, script=[big, says("done")]) as talk:
        gaps = Gaps()
        async with gaps:
            assert (await talk.ask()).status is RunStatus.COMPLETED
        whole = sum(gaps.seen)
        assert max(gaps.seen) < whole / 3


class Gaps:
    """How much work others did before another task got its turn, each time.

    By this thread's own processor time: that the machine is busy delays no task in particular.
    """

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._measure())

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.seen.append(time.thread_time() - began)
