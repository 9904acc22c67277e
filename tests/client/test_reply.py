"""An interaction as one reply, whole or waiting."""

import asyncio
from typing import Any

from sk_agents.client import Failed, Reply, Status, ToolUse, Usage
from sk_agents.client.event_stream import event_of
from sk_agents.client.reply import ReplySoFar
from sk_agents.client.sse_parser import SseParser
from tests.client.loopback import (
    COMPLETE,
    INTERACTION,
    STARTED,
    Loopback,
    connected,
    id_at,
    said,
    told,
)
from tests.patience import seconds

Log = list[tuple[int | None, bytes]]


def stored(seq: int, name: str, **payload: Any) -> tuple[int | None, bytes]:
    return seq, told(seq, name, payload)


def called(seq: int, id: str) -> tuple[int | None, bytes]:
    return stored(seq, "tool_call", type="TOOL_CALL", id=id, tool_name="send", tool_input="{}")


def returned(seq: int, id: str) -> tuple[int | None, bytes]:
    return stored(seq, "tool_result", type="TOOL_RESULT", id=id, tool_name="send", tool_output="ok")


def asked(seq: int, id: str, kind: str = "tool") -> tuple[int | None, bytes]:
    return stored(
        seq,
        "approval_required",
        approval_id=f"approval_{id}",
        kind=kind,
        call_id=id,
        tool_name="send",
        tool_input="{}",
        digest="d",
        expires_at=None,
    )


def decided(seq: int, id: str, name: str = "approved") -> tuple[int | None, bytes]:
    return stored(
        seq,
        name,
        approval_id=f"approval_{id}",
        call_id=id,
        tool_name="send",
        by="human",
        decided_by=None,
    )


DONE = ToolUse("a", "send", "{}", "ok")


async def ask(log: Log) -> Reply:
    async with (
        asyncio.timeout(seconds(10)),
        connected(Loopback(log=log, hold=asyncio.Event())) as teal,
    ):
        return await teal.chat("c").ask("hello")


async def test_reply_has_text_status_calls_and_usage() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    log: Log = [
        STARTED,
        called(5, "a"),
        returned(6, "a"),
        (None, said("It is", 0)),
        stored(7, "answer", type="ANSWER", content="It is done."),
        stored(8, "interaction_complete", status="COMPLETED", usage=usage),
    ]
    reply = await ask(log)
    assert reply == Reply(
        interaction_id=INTERACTION,
        text="It is done.",
        status=Status.COMPLETED,
        tool_calls=(DONE,),
        usage=Usage(prompt_tokens=3, completion_tokens=4),
        last_seq=8,
        last_event_id=id_at(8),
    )


async def test_failed_interaction_is_a_reply_with_its_error() -> None:
    log: Log = [
        STARTED,
        stored(5, "error", code="llm_refused", message="No.", correlation_id="x"),
        stored(6, "interaction_complete", status="FAILED"),
    ]
    reply = await ask(log)
    assert (reply.status, reply.text) == ("FAILED", "")
    assert isinstance(reply.error, Failed)
    assert reply.error.code == "llm_refused"


async def test_cancelled_interaction_keeps_what_was_said() -> None:
    log: Log = [
        STARTED,
        (None, said("It is", 0)),
        stored(5, "cancelled"),
        stored(6, "interaction_complete", status="CANCELLED"),
    ]
    reply = await ask(log)
    assert (reply.status, reply.text) == ("CANCELLED", "It is")


async def test_reply_that_waits_names_every_call_to_decide_about() -> None:
    reply = await ask([STARTED, asked(5, "a"), asked(6, "b")])
    assert reply.status == "WAITING_APPROVAL"
    assert [approval.call_id for approval in reply.approvals] == ["a", "b"]


async def test_reply_waits_for_calls_that_run_beside_those_that_wait() -> None:
    reply = await ask([STARTED, asked(5, "b"), called(6, "a"), returned(7, "a")])
    assert reply.tool_calls == (DONE,)
    assert [approval.call_id for approval in reply.approvals] == ["b"]


async def test_call_of_unknown_outcome_is_something_to_decide_about() -> None:
    reply = await ask([STARTED, called(5, "a"), asked(6, "a", kind="outcome_unknown")])
    assert reply.status == "WAITING_APPROVAL"
    assert reply.approvals[0].kind == "outcome_unknown"


async def test_asked_interaction_goes_on_without_a_reader_unless_told_otherwise() -> None:
    server = Loopback()
    async with connected(server) as teal:
        await teal.chat("c").ask("hello")
        await teal.chat("c").ask("hello", on_disconnect="cancel")
    assert [seen.body["on_disconnect"] for seen in server.seen] == ["continue", "cancel"]


async def test_waiting_reply_goes_on_after_the_decision_to_its_end() -> None:
    log: Log = [STARTED, asked(5, "a")]
    server = Loopback(log=log, hold=asyncio.Event())
    path = f"/chats/c/interactions/{INTERACTION}/approve"
    receipt = {"status": "processed", "approval_id": "approval_a", "approved": True}
    server.documents["POST", path] = [receipt]
    async with asyncio.timeout(seconds(10)), connected(server) as teal:
        chat = teal.chat("c")
        waiting = await chat.ask("hello")
        done = await chat.approve(waiting.approvals[0], message="go on", remember="thread")
        log += [decided(6, "a"), called(7, "a"), returned(8, "a"), COMPLETE]
        reply = await chat.wait(waiting)
    assert done.approved
    assert (reply.status, reply.tool_calls, reply.approvals) == ("COMPLETED", (DONE,), ())
    _, approval, resumed = server.seen
    assert approval.body == {
        "approval_id": "approval_a",
        "approved": True,
        "message": "go on",
        "remember": "thread",
        "digest": "d",
    }
    assert approval.headers["Idempotency-Key"]
    assert resumed.headers["Last-Event-ID"] == id_at(5)


async def test_waiting_reply_with_one_of_two_decided_waits_for_the_other() -> None:
    log: Log = [STARTED, asked(5, "a"), asked(6, "b")]
    server = Loopback(log=log, hold=asyncio.Event())
    async with asyncio.timeout(seconds(10)), connected(server) as teal:
        waiting = await teal.chat("c").ask("hello")
        log += [decided(7, "a"), called(8, "a"), returned(9, "a")]
        reply = await teal.chat("c").wait(waiting)
    assert reply.status == "WAITING_APPROVAL"
    assert [approval.call_id for approval in reply.approvals] == ["b"]
    assert reply.tool_calls == (DONE,)


async def test_rejected_call_no_longer_waits() -> None:
    log: Log = [STARTED, asked(5, "a"), decided(6, "a", "rejected"), asked(7, "b")]
    reply = await ask(log)
    assert [approval.call_id for approval in reply.approvals] == ["b"]


def pauses(*log: tuple[int | None, bytes]) -> list[bool]:
    """After each event, whether nothing but a decision can move the reply on."""
    so_far, parser = ReplySoFar(), SseParser()
    found = []
    for _, frame in log:
        for told_frame in parser.feed(frame):
            so_far.add(event_of(told_frame))
            found.append(so_far.is_paused)
    return found


def test_reply_is_not_paused_while_a_call_runs() -> None:
    log = [STARTED, called(5, "a"), asked(6, "b"), returned(7, "a")]
    assert pauses(*log) == [False, False, False, True]


def test_reply_is_not_paused_between_an_approval_and_the_result_of_its_call() -> None:
    log = [asked(5, "a"), asked(6, "b"), decided(7, "a"), called(8, "a"), returned(9, "a")]
    assert pauses(*log) == [True, True, False, False, True]


def test_rejected_call_leaves_the_reply_paused_for_the_other() -> None:
    assert pauses(asked(5, "a"), asked(6, "b"), decided(7, "a", "rejected"))[-1]


def test_approved_call_without_a_result_of_its_own_does_not_hide_the_next_question() -> None:
    assert pauses(asked(5, "a", "question"), decided(6, "a"), asked(7, "b"))[-1]


def test_ended_reply_is_not_paused() -> None:
    assert not pauses(asked(5, "a"), COMPLETE)[-1]
