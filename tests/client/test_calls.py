"""Everything that is asked for once: lists, records, decisions, and what is repeated of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sk_agents.client import (
    AgentInfo,
    Answer,
    ChatSummary,
    ProtocolError,
    ServerUnreachable,
    TealClient,
    TealServerError,
    file_item,
)
from tests.client.loopback import Loopback, connected, refusal
from tests.client.paces import SettableTime
from tests.patience import seconds
from tests.pdfs import pdf_of

SUMMARY = {
    "id": "c",
    "title": "Ducks",
    "agent": "helper",
    "status": "IDLE",
    "created_at": "then",
    "updated_at": "now",
}
APPROVAL = {
    "approval_id": "approval_1",
    "chat_id": "c",
    "interaction_id": "int_1",
    "agent": "helper",
    "kind": "tool",
    "call_id": "call_1",
    "tool_name": "Mail-send",
    "tool_input": "{}",
    "digest": "d1",
    "requested_at": "now",
    "expires_at": None,
}
RECEIPT = {"status": "processed", "approval_id": "approval_1", "approved": True}
BRANCHES = {
    "head": "int_2",
    "branches": [
        {
            "interaction_id": "int_1",
            "parent_id": None,
            "edits": None,
            "status": "COMPLETED",
            "user_message": "hi",
            "created_at": "then",
            "visible": False,
        }
    ],
}


def interaction(id: str) -> dict[str, Any]:
    return {
        "id": id,
        "status": "COMPLETED",
        "user_message": "hi",
        "agent_events": [
            {"type": "THINKING", "content": "hm"},
            {"type": "TOOL_CALL", "id": "a", "tool_name": "look", "tool_input": "{}"},
            {"type": "TOOL_RESULT", "id": "a", "tool_name": "look", "tool_output": "x"},
            {"type": "ANSWER", "content": f"answer of {id}"},
        ],
        "final_agent_state": None,
        "created_at": "then",
        "completed_at": "now",
        "approvals": [APPROVAL],
        "error": None,
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def history(*ids: str, next: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "interactions": [interaction(id) for id in ids],
        "created_at": "then",
        "last_seq": 9,
        "next": next,
    }


def answering(method: str, path: str, *documents: Any) -> Loopback:
    return Loopback(documents={(method, path): list(documents)})


async def test_pages_of_a_list_are_one_list() -> None:
    pages = [
        {"chats": [{**SUMMARY, "id": "a"}, {**SUMMARY, "id": "b"}], "next": "p2"},
        {"chats": [], "next": "p3"},
        {"chats": [{**SUMMARY, "id": "c"}], "next": None},
    ]
    server = answering("GET", "/chats", *pages)
    async with connected(server) as teal:
        assert [chat.id async for chat in teal.chats("duck")] == ["a", "b", "c"]
    assert [seen.query.get("cursor") for seen in server.seen] == [None, "p2", "p3"]
    assert {seen.query["q"] for seen in server.seen} == {"duck"}


async def test_list_that_does_not_go_on_is_a_protocol_error() -> None:
    server = answering("GET", "/chats", {"chats": [], "next": "p2"})
    async with connected(server) as teal:
        with pytest.raises(ProtocolError):
            _ = [chat async for chat in teal.chats()]
    assert len(server.seen) == 2


async def test_inbox_is_listed_and_decided_from() -> None:
    server = answering("GET", "/approvals", {"approvals": [APPROVAL], "next": None})
    server.documents["POST", "/approvals/approval_1"] = [RECEIPT]
    async with connected(server) as teal:
        (waiting,) = [approval async for approval in teal.approvals()]
        assert (await teal.approve(waiting, edited_arguments={"to": "bob"})).approved
        await teal.reject("approval_1", reason="no")
        with pytest.raises(TypeError, match="a decision has no reasn; it has message, reason"):
            await teal.reject("approval_1", reasn="no")  # type: ignore[call-arg]  # a typing error
    _, approved, rejected = server.seen
    assert approved.body == {"approved": True, "edited_arguments": {"to": "bob"}, "digest": "d1"}
    assert rejected.body == {"approved": False, "message": "no"}


async def test_one_approval_is_read_by_its_id() -> None:
    async with connected(answering("GET", "/approvals/approval_1", APPROVAL)) as teal:
        assert (await teal.approval("approval_1")).tool_name == "Mail-send"


async def test_grants_are_listed_and_taken_back() -> None:
    grant = {"grant_id": "g1", "chat_id": "c", "tool": "send", "scope": "thread"}
    server = answering("GET", "/grants", {"grants": [grant], "next": None})
    server.documents["DELETE", "/grants/g1"] = [None]
    async with connected(server) as teal:
        async for given in teal.grants():
            await teal.revoke(given)
    assert [seen.method for seen in server.seen] == ["GET", "DELETE"]


async def test_agents_are_listed() -> None:
    agent = {"name": "helper", "description": None, "model": "m", "tools": [{"name": "send"}]}
    async with connected(answering("GET", "/agents", {"agents": [agent]})) as teal:
        assert await teal.agents() == (AgentInfo.model_validate(agent),)


async def test_chat_is_made_renamed_and_deleted() -> None:
    server = answering("POST", "/chats", SUMMARY)
    server.documents["PATCH", "/chats/c"] = [{**SUMMARY, "title": "Geese"}]
    server.documents["DELETE", "/chats/c"] = [None]
    async with connected(server) as teal:
        made = await teal.create("c", agent="helper", title="Ducks")
        renamed = await teal.chat(made.id).rename("Geese")
        await teal.chat(made.id).delete()
    assert made == ChatSummary.model_validate(SUMMARY)
    assert renamed.title == "Geese"
    bodies = [seen.body for seen in server.seen]
    assert bodies[0] == {"chat_id": "c", "agent": "helper", "title": "Ducks"}
    assert bodies[1:] == [{"title": "Geese"}, None]


async def test_chat_is_exported_and_imported() -> None:
    server = answering("GET", "/chats/c/export", {"format": "teal-chat"})
    server.documents["POST", "/chats/import"] = [SUMMARY]
    async with connected(server) as teal:
        document = await teal.chat("c").export()
        await teal.import_chat(document, chat_id="d")
    assert server.seen[1].body == {"format": "teal-chat"}
    assert server.seen[1].query == {"chat_id": "d"}


async def test_history_is_typed() -> None:
    server = answering("GET", "/chats/c", history("int_1"))
    async with connected(server) as teal:
        past = await teal.chat("c").history(superseded=True)
    (first,) = past.interactions
    assert first.answer == "answer of int_1"
    assert isinstance(first.agent_events[-1], Answer)
    assert first.approvals[0].approval_id == "approval_1"
    assert server.seen[0].query == {"include": "superseded"}


async def test_long_chat_is_read_backwards_part_by_part() -> None:
    server = answering("GET", "/chats/c", history("int_2", "int_3", next="17"), history("int_1"))
    async with connected(server) as teal:
        ids = [past.id async for past in teal.chat("c").interactions()]
    assert ids == ["int_3", "int_2", "int_1"]
    assert [seen.query.get("before") for seen in server.seen] == [None, "17"]


async def test_one_interaction_is_read_by_its_id() -> None:
    path = "/chats/c/interactions/int_1"
    async with connected(answering("GET", path, interaction("int_1"))) as teal:
        assert (await teal.chat("c").interaction("int_1")).status == "COMPLETED"


async def test_branches_are_shown_and_switched() -> None:
    server = answering("GET", "/chats/c/branches", BRANCHES)
    server.documents["POST", "/chats/c/branch"] = [BRANCHES]
    async with connected(server) as teal:
        shown = await teal.chat("c").branches()
        switched = await teal.chat("c").switch(shown.branches[0].interaction_id)
    assert shown.head == switched.head == "int_2"
    assert server.seen[1].body == {"interaction_id": "int_1"}


async def test_cancel_says_whether_there_was_something_to_stop() -> None:
    server = answering("POST", "/chats/c/interactions/int_1/cancel", {"status": "cancelling"})
    async with connected(server) as teal:
        assert await teal.chat("c").cancel("int_1")
        server.refusals = [refusal(409, "already_terminal")]
        assert not await teal.chat("c").cancel("int_1")
        server.refusals = [refusal(404, "run_not_found")]
        with pytest.raises(TealServerError, match="run_not_found"):
            await teal.chat("c").cancel("int_1")


def cut_off() -> web.StreamResponse:
    """Announces more than it sends, and goes."""
    response = web.Response(body=b"{", headers={"Content-Length": "100"})
    response.force_close()
    return response


async def test_request_that_may_be_repeated_is() -> None:
    server = answering("GET", "/agents", {"agents": []})
    server.refusals = [refusal(503, "store_unavailable"), cut_off, refusal(502, "?")]
    async with connected(server) as teal:
        assert await teal.agents() == ()
    assert len(server.seen) == 4


async def test_repeated_decision_carries_the_same_key() -> None:
    server = answering("POST", "/approvals/approval_1", RECEIPT)
    server.refusals = [cut_off]
    async with connected(server) as teal:
        assert (await teal.approve("approval_1")).approved
    first, second = (seen.headers["Idempotency-Key"] for seen in server.seen)
    assert first == second


async def test_chat_without_an_id_of_its_own_is_made_once_however_often_it_is_asked_for() -> None:
    server = answering("POST", "/chats", SUMMARY)
    server.refusals = [cut_off]
    async with connected(server) as teal:
        assert (await teal.create()).id == "c"
    first, second = (seen.headers["Idempotency-Key"] for seen in server.seen)
    assert first == second


@pytest.mark.parametrize("lost", [cut_off, refusal(503, "store_unavailable")])
async def test_request_that_may_have_been_done_is_not_repeated(lost: Any) -> None:
    server = answering("POST", "/chats/import", SUMMARY)
    server.refusals = [lost]
    async with connected(server) as teal:
        with pytest.raises((ServerUnreachable, TealServerError)):
            await teal.import_chat({})
    assert len(server.seen) == 1


@pytest.mark.parametrize("refused", [refusal(429, "limit"), refusal(503, "shutting_down")])
async def test_request_that_was_certainly_not_done_is_repeated(refused: Any) -> None:
    server = answering("POST", "/chats/import", SUMMARY)
    server.refusals = [refused]
    async with connected(server) as teal:
        assert (await teal.import_chat({})).id == "c"


async def test_server_that_starts_late_is_waited_for() -> None:
    server = answering("POST", "/chats/import", SUMMARY)
    time = SettableTime(meanwhile=server.start)
    async with asyncio.timeout(seconds(20)), connected(server, time=time) as teal:
        await server.stop()
        assert (await teal.import_chat({})).id == "c"


async def test_deleting_again_what_the_first_try_deleted_is_done() -> None:
    server = answering("DELETE", "/chats/c", None)
    server.refusals = [cut_off, refusal(404, "thread_not_found")]
    async with connected(server) as teal:
        await teal.chat("c").delete()
        server.refusals = [refusal(404, "thread_not_found")]
        with pytest.raises(TealServerError):
            await teal.chat("c").delete()


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>"),
        lambda: web.Response(text="[]", content_type="application/json"),
        lambda: web.Response(text='{"agents": [{}]}', content_type="application/json"),
    ],
)
async def test_answer_that_makes_no_sense_is_a_protocol_error(answer: Any) -> None:
    async with connected(Loopback(refusals=[answer])) as teal:
        with pytest.raises(ProtocolError):
            await teal.agents()


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=418, text="<html>"),
        lambda: web.Response(status=418, text="[1]"),
        lambda: web.Response(status=418),
    ],
)
async def test_refusal_by_something_else_than_a_server_is_told_by_its_status(answer: Any) -> None:
    async with connected(Loopback(refusals=[answer])) as teal:
        with pytest.raises(TealServerError) as raised:
            await teal.agents()
    assert (raised.value.status, raised.value.code) == (418, "http_418")
    assert raised.value.correlation_id is None


async def test_retry_after_may_be_a_date() -> None:
    time = SettableTime()
    server = answering("GET", "/agents", {"agents": []})
    headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    server.refusals = [refusal(503, "x", headers), refusal(503, "x", {"Retry-After": "soon"})]
    async with connected(server, time=time) as teal:
        await teal.agents()
    assert len(time.waits) == 2
    assert max(time.waits) <= 1.0


@pytest.mark.parametrize("chat_id", ["", "..", "a/b", "a?b", "ä", "x" * 65])
def test_impossible_chat_id_is_refused_before_anything_is_sent(chat_id: str) -> None:
    with pytest.raises(ValueError, match="chat id"):
        TealClient("http://127.0.0.1:1").chat(chat_id)


@pytest.mark.parametrize("id", ["", ".", ".."])
async def test_id_that_would_lead_elsewhere_is_refused(id: str) -> None:
    async with connected(Loopback()) as teal:
        with pytest.raises(ValueError, match="id"):
            await teal.chat("c").cancel(id)


async def test_id_stays_one_segment_of_its_path() -> None:
    server = answering("POST", "/chats/c/interactions/a/b?c/cancel", {})
    async with connected(server) as teal:
        await teal.chat("c").cancel("a/b?c")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://"])
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        TealClient(url)


async def test_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await TealClient("http://127.0.0.1:1").agents()


async def test_server_may_live_under_a_path() -> None:
    server = answering("GET", "/teal/agents", {"agents": []})
    async with connected(server), TealClient(f"{server.url}/teal/") as teal:
        assert await teal.agents() == ()


def test_files_become_items_by_what_is_in_them(tmp_path: Path) -> None:
    made = {
        "a.bin": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1",
        "b.txt": pdf_of("hi"),
        "c.log": "größe".encode(),
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    items = [file_item(tmp_path / name) for name in made]
    assert [item["content_type"] for item in items] == ["image", "pdf", "text"]
    assert [item["name"] for item in items] == list(made)
    assert items[1]["content"].startswith("data:application/pdf;base64,")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * (2 * 1024 * 1024 + 1), "a text may have 2097152 bytes"),
        (b"%PDF-" + bytes(8 * 1024 * 1024), "a PDF may have 8388608 bytes"),
        (b" ", "is empty"),
        (b"\xff\0", "is neither text nor"),
    ],
)
def test_file_that_no_message_takes_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        file_item(path)
