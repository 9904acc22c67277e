"""Streams that are cut, refused, delayed and restarted, and still tell everything once."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from sk_agents.client import (
    AnswerDelta,
    Answering,
    CursorLost,
    Event,
    ProtocolError,
    ServerUnreachable,
    TealServerError,
    ToolOutput,
    event_name,
)
from tests.client.loopback import (
    BEFORE_THE_HEAD,
    COMPLETE,
    INTERACTION,
    PLAIN,
    STARTED,
    Loopback,
    connected,
    id_at,
    refusal,
    said,
    stream_end,
    told,
)
from tests.client.paces import SettableTime
from tests.patience import seconds

GOLDEN = b"".join(frame for _, frame in PLAIN)
STORED = [4, 8, 9]
HEAD = len(STARTED[1])


def stored(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


def printed(events: Sequence[Event]) -> str:
    """What a client shows that prints each preview as it comes."""
    return "".join(event.content for event in events if isinstance(event, AnswerDelta))


async def test_uncut_stream_gives_every_event_in_order() -> None:
    server = Loopback()
    async with connected(server) as teal:
        events = [event async for event in teal.chat("c").say("hello", agent="helper")]
    names = [event_name(event) for event in events]
    assert names == ["Started", "AnswerDelta", "AnswerDelta", "Answer", "Complete"]
    assert {event.interaction_id for event in events} == {INTERACTION}
    (start,) = server.seen
    assert (start.method, start.path) == ("POST", "/chats/c/interactions")
    assert start.body == {"user_message": "hello", "agent": "helper"}


async def test_stream_cut_at_any_byte_gives_every_stored_event_once_and_in_order() -> None:
    server = Loopback()
    async with asyncio.timeout(seconds(60)), connected(server) as teal:
        for cut in range(BEFORE_THE_HEAD, len(GOLDEN)):
            server.cuts = [cut]
            events = [event async for event in teal.chat("c").say("hello")]
            assert stored(events) == STORED, f"cut at {cut}"
            assert printed(events) == "Grüß dich 🦆", f"cut at {cut}"
            first, *more = server.seen
            repeated_start = cut < HEAD
            assert [seen.method for seen in more] == ["POST" if repeated_start else "GET"]
            if repeated_start:
                key = "Idempotency-Key"
                assert more[0].headers[key] == first.headers[key]
                assert more[0].body == first.body
            else:
                assert more[0].path == f"/chats/c/interactions/{INTERACTION}/events"
            server.seen.clear()
    assert len(server.keys) == len(GOLDEN) + 1, "every start has a key of its own"


@pytest.mark.parametrize("size", [HEAD, HEAD + 1, 200, 300])
async def test_stream_cut_again_and_again_gives_every_stored_event_once(size: int) -> None:
    server = Loopback(cuts=[size] * 20)
    async with asyncio.timeout(seconds(20)), connected(server) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert len(server.seen) > 2


async def test_resumed_stream_says_what_was_seen_last() -> None:
    server = Loopback(cuts=[HEAD + 10, len(GOLDEN) - HEAD - 10])
    async with connected(server) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert [seen.headers.get("Last-Event-ID") for seen in server.seen] == [None, id_at(4), id_at(8)]


async def test_events_told_twice_are_given_once() -> None:
    log = [STARTED, STARTED, *PLAIN[1:5], STARTED, PLAIN[4], COMPLETE]
    async with connected(Loopback(log=log)) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED


async def test_previews_told_again_after_a_cut_are_given_once() -> None:
    log: list[tuple[int | None, bytes]] = [STARTED, (None, said("one two", 0)), COMPLETE]
    again: list[tuple[int | None, bytes]] = [STARTED, (None, said("one two three", 0)), COMPLETE]
    server = Loopback(log=log, cuts=[len(log[0][1] + log[1][1])])

    async def meanwhile() -> None:
        server.log = again

    async with connected(server, time=SettableTime(meanwhile=meanwhile)) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    pieces = [event for event in events if isinstance(event, AnswerDelta)]
    assert [(piece.offset, piece.content) for piece in pieces] == [(0, "one two"), (7, " three")]


async def test_tools_output_told_again_after_a_cut_is_given_once_and_anew_by_a_call() -> None:
    call = {"type": "TOOL_CALL", "id": "call_1", "tool_name": "t", "tool_input": "{}"}

    def printed(chunk: str, offset: int) -> tuple[None, bytes]:
        payload = {"call_id": "call_1", "offset": offset, "chunk": chunk}
        return None, told(None, "tool_output", payload)

    called = (5, told(5, "tool_call", call))
    log = [STARTED, called, printed("one ", 0), printed("two", 4), COMPLETE]
    again = [STARTED, called, printed("one two", 0), printed(" three", 7)]
    anew = [(6, told(6, "tool_call", call)), printed("one", 0), COMPLETE]
    server = Loopback(log=log, cuts=[sum(len(frame) for _, frame in log[:4])])

    async def meanwhile() -> None:
        server.log = again + anew

    async with connected(server, time=SettableTime(meanwhile=meanwhile)) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    pieces = [(event.offset, event.chunk) for event in events if isinstance(event, ToolOutput)]
    assert pieces == [(0, "one "), (4, "two"), (7, " three"), (0, "one")]


async def test_tools_output_without_an_offset_is_given_as_it_comes() -> None:
    piece = (None, told(None, "tool_output", {"call_id": "call_1", "chunk": "one"}))
    async with connected(Loopback(log=[STARTED, piece, piece, COMPLETE])) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert [event.chunk for event in events if isinstance(event, ToolOutput)] == ["one", "one"]


async def test_text_of_a_voided_attempt_is_replaced() -> None:
    log = [STARTED, (None, said("Hello", 0)), (None, said("Bye", 0, attempt=2)), COMPLETE]
    answering = Answering()
    async with connected(Loopback(log=log)) as teal:
        shown = [answering.add(event) async for event in teal.chat("c").say("hello")]
    assert shown == ["", "Hello", "Bye", "Bye"]


async def test_early_end_of_a_stream_is_not_shown_and_its_waiting_time_kept() -> None:
    time = SettableTime()
    server = Loopback(cuts=[HEAD], last_frames=[stream_end(3000)])
    async with connected(server, time=time) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert "Unknown" not in {event_name(event) for event in events}
    (wait,) = time.waits
    assert 3.0 <= wait < 4.0


async def test_server_that_only_ends_streams_is_given_up_on() -> None:
    time = SettableTime()
    server = Loopback(cuts=[0] * 1000, last_frames=[stream_end(100)] * 1000)
    async with connected(server, time=time, give_up_after=30.0) as teal:
        with pytest.raises(ServerUnreachable, match="shutting_down"):
            _ = [event async for event in teal.chat("c").say("hello")]
    assert 20.0 < sum(time.waits) <= 30.0


async def test_server_that_cuts_every_stream_at_once_is_given_up_on() -> None:
    time = SettableTime()
    server = Loopback(cuts=[0] * 1000)
    async with connected(server, time=time) as teal:
        with pytest.raises(ServerUnreachable):
            _ = [event async for event in teal.chat("c").say("hello")]
    assert 50.0 < sum(time.waits) <= 60.0
    assert len(server.keys) == 1


async def test_restart_of_the_server_on_its_port_is_survived() -> None:
    server = Loopback(cuts=[HEAD + 5])
    tries = 0

    async def meanwhile() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await server.stop()
        if tries == 4:
            await server.start()

    async with connected(server, time=SettableTime(meanwhile=meanwhile)) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert tries == 4


async def test_restart_before_the_first_event_repeats_the_start_under_its_key() -> None:
    server = Loopback(cuts=[HEAD - 1])
    tries = 0

    async def meanwhile() -> None:
        nonlocal tries
        tries += 1
        await (server.stop() if tries == 1 else server.start())

    async with connected(server, time=SettableTime(meanwhile=meanwhile)) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert [seen.method for seen in server.seen] == ["POST", "POST"]
    assert len(server.keys) == 1


async def test_busy_server_is_asked_again_when_it_says() -> None:
    time = SettableTime()
    server = Loopback(refusals=[refusal(503, "shutting_down", {"Retry-After": "7"})])
    async with connected(server, time=time) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED
    assert 7.0 <= time.waits[0] < 8.0


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
async def test_refusal_for_good_is_raised_at_once(status: int) -> None:
    time = SettableTime()
    server = Loopback(refusals=[refusal(status, "no_way", interaction_id="int_0")])
    async with connected(server, time=time) as teal:
        with pytest.raises(TealServerError) as raised:
            _ = [event async for event in teal.chat("c").say("hello")]
    error = raised.value
    assert (error.status, error.code, error.detail) == (status, "no_way", "No.")
    assert (error.correlation_id, error.problem["interaction_id"]) == ("x1", "int_0")
    assert time.waits == []


@pytest.mark.parametrize(("status", "code"), [(400, "cursor_ahead"), (410, "cursor_expired")])
async def test_cursor_of_another_log_is_raised_in_the_middle_of_an_interaction(
    status: int, code: str
) -> None:
    server = Loopback(cuts=[HEAD])

    async def meanwhile() -> None:
        server.refusals = [refusal(status, code)]

    seen: list[Event] = []
    async with connected(server, time=SettableTime(meanwhile=meanwhile)) as teal:
        with pytest.raises(CursorLost, match=code):
            async for event in teal.chat("c").say("hello"):
                seen += [event]
    assert stored(seen) == [4]


async def test_answer_that_is_no_stream_is_a_protocol_error() -> None:
    server = Loopback(refusals=[lambda: web.Response(text="<html>", content_type="text/html")])
    async with connected(server) as teal:
        with pytest.raises(ProtocolError):
            _ = [event async for event in teal.chat("c").say("hello")]


async def test_redirect_is_not_followed() -> None:
    server = Loopback(refusals=[lambda: web.Response(status=307, headers={"Location": "/x"})])
    async with connected(server) as teal:
        with pytest.raises(TealServerError, match="307"):
            _ = [event async for event in teal.chat("c").say("hello")]
    assert len(server.seen) == 1


async def test_silent_connection_is_lost_after_a_while() -> None:
    server = Loopback(log=[STARTED], hold=asyncio.Event())

    async def meanwhile() -> None:
        server.hold, server.log = None, list(PLAIN)

    time = SettableTime(meanwhile=meanwhile)
    async with asyncio.timeout(seconds(20)), connected(server, time=time, silence=0.05) as teal:
        events = [event async for event in teal.chat("c").say("hello")]
    assert stored(events) == STORED


async def test_leaving_a_stream_closes_its_connection_and_asks_nothing_more() -> None:
    server = Loopback(log=[STARTED], hold=asyncio.Event())
    async with asyncio.timeout(seconds(20)), connected(server) as teal:
        async with aclosing(teal.chat("c").say("hello")) as events:
            async for event in events:
                assert event.seq == 4
                break
        await server.is_left.wait()
    assert len(server.seen) == 1


async def test_cancelling_a_reader_closes_its_connection_and_asks_nothing_more() -> None:
    server = Loopback(log=[STARTED], hold=asyncio.Event())
    async with asyncio.timeout(seconds(20)), connected(server) as teal:

        async def read() -> None:
            async for _ in teal.chat("c").say("hello"):
                pass

        reader = asyncio.create_task(read())
        await server.is_held.wait()
        reader.cancel()
        await asyncio.wait([reader])
        assert reader.cancelled()
        await server.is_left.wait()
    assert len(server.seen) == 1


async def test_interaction_is_watched_from_its_beginning_or_from_an_event_on() -> None:
    server = Loopback()
    async with connected(server) as teal:
        chat = teal.chat("c")
        assert stored([event async for event in chat.watch(INTERACTION)]) == STORED
        assert stored([event async for event in chat.watch(INTERACTION, after=4)]) == [8, 9]
        assert [event async for event in chat.watch(INTERACTION, after=id_at(9))] == []
    assert [seen.headers.get("Last-Event-ID") for seen in server.seen] == [None, "4", id_at(9)]


@pytest.mark.parametrize(
    ("end", "first"), [({"last_seq": 3}, "3"), ({"last_seq": 3, "last_event_id": "3-x"}, "3-x")]
)
async def test_chat_is_watched_from_now_on_over_cuts_and_interactions(
    end: dict[str, Any], first: str
) -> None:
    renamed = (11, told(11, "chat_changed", {"interaction_id": None, "title": "Ducks"}))
    log = [*PLAIN, renamed]
    start = len(b"".join(frame for _, frame in PLAIN[:4]))
    server = Loopback(log=log, hold=asyncio.Event(), cuts=[0, start])
    server.documents["GET", "/chats/c"] = [
        {"id": "c", "interactions": [], "created_at": "now", **end}
    ]
    seen = []
    async with asyncio.timeout(seconds(20)), connected(server) as teal:
        async with aclosing(teal.chat("c").watch()) as events:
            async for event in events:
                if event.seq is not None:
                    seen.append(event.seq)
                if event.seq == 11:
                    break
    assert seen == [*STORED, 11]
    history, *streams = server.seen
    assert history.query == {"state": "false"}
    assert [stream.path for stream in streams] == ["/chats/c/events"] * 3
    assert [stream.query["after"] for stream in streams] == [first, first, id_at(4)]


async def test_edit_and_regenerate_start_streams_of_their_own() -> None:
    server = Loopback(cuts=[5])
    async with connected(server) as teal:
        chat = teal.chat("c")
        edited = [event async for event in chat.edit("int_0", "better", on_busy="interrupt")]
        again = [event async for event in chat.regenerate("int_0", key="k1")]
    assert stored(edited) == stored(again) == STORED
    first, repeated, last = server.seen
    assert first.path == repeated.path == "/chats/c/interactions/int_0/edit"
    assert first.body == {"new_user_message": "better", "on_busy": "interrupt"}
    assert (last.path, last.body) == ("/chats/c/interactions/int_0/regenerate", {})
    assert last.headers["Idempotency-Key"] == "k1"
    assert len(server.keys) == 2


async def test_token_is_fresh_for_every_connection() -> None:
    tokens = iter(["one", "two", "three"])

    async def token() -> str:
        return next(tokens)

    server = Loopback(cuts=[HEAD])
    async with connected(server, token=token) as teal:
        _ = [event async for event in teal.chat("c").say("hello")]
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer one", "Bearer two"]


async def test_server_that_is_not_there_is_unreachable() -> None:
    server = Loopback()
    async with connected(server, give_up_after=5.0) as teal:
        await server.stop()
        with pytest.raises(ServerUnreachable) as raised:
            _ = [event async for event in teal.chat("c").say("hello")]
    assert not raised.value.was_sent
