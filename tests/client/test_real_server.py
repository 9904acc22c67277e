"""The client and the server, each other's only witness."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from sk_agents.client import (
    Answer,
    Answering,
    ApprovalRequired,
    Approved,
    ChatChanged,
    Complete,
    CursorLost,
    Event,
    Rejected,
    Started,
    Steered,
    SteeringDelivered,
    TealClient,
    TealServerError,
    ToolCall,
    ToolResult,
    Unknown,
    event_name,
)
from sk_agents.engine.turns import ReasoningDelta
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import serving
from tests.client.paces import SettableTime
from tests.client.relay import Relay
from tests.patience import seconds

SEND = calls(("Mail-send", {"to": "ada", "text": "hi"}))
SEND_TWO = calls(("Mail-send", {"to": "ada"}), ("Mail-send", {"to": "bob"}))


def names(events: Sequence[Event]) -> list[str]:
    return [event_name(event) for event in events if event.seq is not None]


async def test_events_of_the_server_are_all_known_and_make_the_answer(tmp_path: Path) -> None:
    script = [
        [ReasoningDelta("hm"), *calls(("Mail-look", {"what": "Oslo"}))],
        says("It is cold.", pieces=3),
    ]
    answering = Answering()
    async with serving(tmp_path, script) as served, TealClient(served.url) as teal:
        events = []
        async for event in teal.chat("c").say("How is Oslo?"):
            events.append(event)
            answering.add(event)
    assert names(events) == ["Started", "Thinking", "ToolCall", "ToolResult", "Answer", "Complete"]
    assert not any(isinstance(event, Unknown) for event in events)
    assert (answering.text, answering.is_final, answering.is_over) == ("It is cold.", True, True)


async def test_call_is_approved_with_other_arguments_while_the_stream_is_read(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    async with serving(tmp_path, [SEND, says("Sent.")]) as served, TealClient(served.url) as teal:
        chat = teal.chat("c")
        async for event in chat.say("write to ada"):
            events.append(event)
            if isinstance(event, ApprovalRequired):
                await chat.approve(event, edited_arguments={"to": "bob", "text": "hi"})
    assert names(events) == [
        "Started",
        "ApprovalRequired",
        "Approved",
        "ToolCall",
        "ToolResult",
        "Answer",
        "Complete",
    ]
    result = next(event for event in events if isinstance(event, ToolResult))
    assert result.tool_output.endswith("sent 'hi' to bob")


async def test_asked_question_waits_is_decided_call_by_call_and_ends(tmp_path: Path) -> None:
    script = [SEND_TWO, says("One sent.")]
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, script) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        waiting = await chat.ask("write to both")
        assert waiting.status == "WAITING_APPROVAL"
        inbox = [approval async for approval in teal.approvals()]
        first, second = waiting.approvals
        assert {first.approval_id, second.approval_id} == {a.approval_id for a in inbox}
        await chat.approve(first)
        halfway = await chat.wait(waiting)
        assert [use.tool_output for use in halfway.tool_calls] == ["sent 'hello' to ada"]
        await chat.reject(second, message="not bob")
        reply = await chat.wait(halfway)
        assert [approval async for approval in teal.approvals()] == []
        with pytest.raises(TealServerError) as again:
            await chat.approve(second)
    assert (reply.status, reply.text, reply.approvals) == ("COMPLETED", "One sent.", ())
    assert (again.value.status, again.value.code) == (400, "approval_already_processed")


async def test_same_key_is_the_same_interaction(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Hi.")]) as served, TealClient(served.url) as teal:
        chat = teal.chat("c")
        first = await chat.ask("hello", key="k1")
        second = await chat.ask("hello", key="k1")
        assert first == second
        assert len((await chat.history()).interactions) == 1
        with pytest.raises(TealServerError) as other:
            await chat.ask("something else", key="k1")
    assert other.value.status == 422


async def test_ended_interaction_is_read_again_from_any_place(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Hi.")]) as served, TealClient(served.url) as teal:
        chat = teal.chat("c")
        told = [event async for event in chat.say("hello") if event.seq is not None]
        for place, event in enumerate(told):
            rest = [e async for e in chat.watch(event.interaction_id, after=event.seq)]
            assert rest == told[place + 1 :]
            assert [e async for e in chat.watch(event.interaction_id, after=event.event_id)] == rest
        for elsewhere, code in (("10000", "cursor_ahead"), ("1-00000000", "cursor_expired")):
            with pytest.raises(CursorLost, match=code):
                _ = [e async for e in chat.watch(told[0].interaction_id, after=elsewhere)]


async def test_whole_chat_is_watched_while_others_talk(tmp_path: Path) -> None:
    script = [says("One."), says("Two.")]
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, script) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        await chat.ask("first")
        watched: list[Event] = []
        async with aclosing(chat.watch(after=0)) as events:
            async for event in events:
                watched.append(event)
                if isinstance(event, Complete):
                    break
            second = asyncio.create_task(chat.ask("second"))
            async for event in events:
                watched.append(event)
                if isinstance(event, Complete):
                    break
            await second
            await chat.rename("Numbers")
            async for event in events:
                watched.append(event)
                if isinstance(event, ChatChanged):
                    break
    assert names(watched) == ["Started", "Answer", "Complete"] * 2 + ["ChatChanged"]
    seqs = [event.seq for event in watched if event.seq is not None]
    assert seqs == sorted(set(seqs))
    answers = [event.content for event in watched if isinstance(event, Answer)]
    assert answers == ["One.", "Two."]
    assert all(event.interaction_id for event in watched[:-1])


async def test_edited_and_repeated_messages_are_branches(tmp_path: Path) -> None:
    script = [says("One."), says("Two."), says("Three.")]
    async with serving(tmp_path, script) as served, TealClient(served.url) as teal:
        chat = teal.chat("c")
        first = await chat.ask("hello")
        edited = [event async for event in chat.edit(first.interaction_id, "hullo")]
        _ = [event async for event in chat.regenerate(edited[0].interaction_id)]
        assert [past.answer async for past in chat.interactions()] == ["Three."]
        shown = await chat.branches()
        assert [branch.visible for branch in shown.branches] == [False, False, True]
        await chat.switch(first.interaction_id)
        assert [past.answer async for past in chat.interactions()] == ["One."]
        everything = [past async for past in chat.interactions(superseded=True)]
        assert [past.answer for past in everything] == ["Three.", "Two.", "One."]


async def test_waiting_interaction_is_cancelled_and_its_stream_ends(tmp_path: Path) -> None:
    events: list[Event] = []
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, [SEND]) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        async for event in chat.say("write to ada"):
            events.append(event)
            if isinstance(event, ApprovalRequired):
                assert await chat.cancel(event.interaction_id)
    assert isinstance(events[-1], Complete)
    assert events[-1].status == "CANCELLED"
    assert any(isinstance(event, Rejected) and event.by == "cancel" for event in events)


async def test_interaction_at_work_is_told_more_and_stopped_after_its_step(tmp_path: Path) -> None:
    events: list[Event] = []
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, [SEND, says("Briefly."), SEND]) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        async for event in chat.say("write to ada"):
            events.append(event)
            if isinstance(event, ApprovalRequired):
                said = await chat.steer(event.interaction_id, "be brief")
                await chat.approve(event)
        reply = await chat.ask("once more")
        assert await chat.cancel(reply.interaction_id, after="step")
        with pytest.raises(TealServerError, match="already_terminal"):
            await chat.steer(reply.interaction_id, "too late")
        stopped = await chat.interaction(reply.interaction_id)
    assert [event.content for event in events if isinstance(event, Steered)] == ["be brief"]
    assert [e.message_ids for e in events if isinstance(e, SteeringDelivered)] == [(said,)]
    assert stopped.status == "CANCELLED"


async def test_interaction_that_has_ended_cannot_be_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Hi.")]) as served, TealClient(served.url) as teal:
        reply = await teal.chat("c").ask("hello")
        assert not await teal.chat("c").cancel(reply.interaction_id)


async def test_real_stream_cut_anywhere_is_resumed(tmp_path: Path) -> None:
    script = [calls(("Mail-look", {"what": "Łódź"})), says("Grüß dich 🦆")]
    async with (
        asyncio.timeout(seconds(100)),
        serving(tmp_path, script) as served,
        Relay(served.url) as relay,
        TealClient(relay.url, pace=SettableTime().pace) as teal,
    ):
        chat = teal.chat("c")
        reply = await chat.ask("hello")
        golden = [event async for event in chat.watch(reply.interaction_id)]
        size = relay.last_size
        assert names(golden) == ["Started", "ToolCall", "ToolResult", "Answer", "Complete"]
        # Every byte is tried with the loopback server; a prime step meets every part of a frame.
        for cut in range(0, size, 7):
            relay.cuts = [cut]
            assert [event async for event in chat.watch(reply.interaction_id)] == golden


async def test_restart_while_a_call_waits_is_survived_by_the_open_stream(tmp_path: Path) -> None:
    events: list[Event] = []
    async with (
        asyncio.timeout(seconds(60)),
        Relay("") as relay,
        TealClient(relay.url, pace=SettableTime().pace) as teal,
        AsyncExitStack() as first_life,
        AsyncExitStack() as second_life,
    ):
        served = await first_life.enter_async_context(serving(tmp_path, [SEND]))
        relay.target = served.url
        chat = teal.chat("c")
        async for event in chat.say("write"):
            events.append(event)
            if isinstance(event, ApprovalRequired):
                await first_life.aclose()
                again = serving(tmp_path, [says("Sent.")])
                relay.target = (await second_life.enter_async_context(again)).url
                await chat.approve(event)
    assert names(events) == [
        "Started",
        "ApprovalRequired",
        "Approved",
        "ToolCall",
        "ToolResult",
        "Answer",
        "Complete",
    ]


async def test_remembered_approval_is_a_grant_that_can_be_taken_back(tmp_path: Path) -> None:
    script = [SEND, says("Sent."), SEND, says("Again."), SEND]
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, script) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        waiting = await chat.ask("write")
        await chat.approve(waiting.approvals[0], remember="thread")
        assert (await chat.wait(waiting)).text == "Sent."
        assert (await chat.ask("write again")).text == "Again."
        (grant,) = [grant async for grant in teal.grants()]
        await teal.revoke(grant)
        assert [grant async for grant in teal.grants()] == []
        assert (await chat.ask("and again")).status == "WAITING_APPROVAL"


async def test_chat_is_made_listed_exported_imported_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Hi.")]) as served, TealClient(served.url) as teal:
        (agent,) = await teal.agents()
        made = await teal.create(title="Ducks", agent=agent.name)
        chat = teal.chat(made.id)
        await chat.ask("hello")
        copy = await teal.import_chat(await chat.export(), chat_id="copy")
        assert {summary.id async for summary in teal.chats()} == {made.id, "copy"}
        assert [past.answer async for past in teal.chat(copy.id).interactions()] == ["Hi."]
        await chat.delete()
        with pytest.raises(TealServerError) as gone:
            await chat.history()
    assert (gone.value.status, bool(gone.value.correlation_id)) == (404, True)


async def test_long_list_of_chats_is_read_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, TealClient(served.url) as teal:
        made = {(await teal.create(f"chat_{number}")).id for number in range(51)}
        listed = [summary.id async for summary in teal.chats()]
    assert len(listed) == 51
    assert set(listed) == made


async def test_message_to_a_busy_chat_waits_for_its_turn(tmp_path: Path) -> None:
    script = [SEND, says("Sent."), says("Second.")]
    async with (
        asyncio.timeout(seconds(20)),
        serving(tmp_path, script) as served,
        TealClient(served.url) as teal,
    ):
        chat = teal.chat("c")
        waiting = await chat.ask("write")
        with pytest.raises(TealServerError) as busy:
            await chat.ask("me too")
        events = []
        async with aclosing(chat.say("me too", on_busy="enqueue")) as queued:
            async for event in queued:
                events.append(event)
                if len(events) == 1:
                    await chat.approve(waiting.approvals[0])
    assert (busy.value.status, busy.value.code) == (409, "thread_busy")
    assert busy.value.problem["interaction_id"] == waiting.interaction_id
    assert names(events) == ["Queued", "Started", "Answer", "Complete"]


async def test_types_that_a_match_needs_are_there(tmp_path: Path) -> None:
    seen = []
    async with serving(tmp_path, [SEND, says("Sent.")]) as served, TealClient(served.url) as teal:
        chat = teal.chat("c")
        async for event in chat.say("write"):
            match event:
                case Started():
                    seen.append("started")
                case ApprovalRequired(tool_name=name):
                    seen.append(f"may {name} run?")
                    await chat.approve(event)
                case Approved(decided_by=who):
                    seen.append(f"approved by {who is not None}")
                case ToolCall(tool_name=name):
                    seen.append(f"{name} runs")
                case Answer(content=text):
                    seen.append(text)
                case Complete(status=status):
                    seen.append(status)
                case _:
                    pass
    assert seen == [
        "started",
        "may Mail-send run?",
        "approved by True",
        "Mail-send runs",
        "Sent.",
        "COMPLETED",
    ]


async def test_refusal_of_a_body_names_its_wrong_fields(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("hi")]) as served, TealClient(served.url) as teal:
        with pytest.raises(TealServerError) as refused:
            await teal.create("c", title="")
    assert refused.value.status == 422
    assert "title: String should have at least 1 character" in str(refused.value)
