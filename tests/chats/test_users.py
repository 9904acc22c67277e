"""Every user has chats of their own; what is another's is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import calls, says
from tests.chats.proven import ADA, BOB, ProvenAuthorizer
from tests.chats.serving import Served, first, id_of, serving
from tests.requirements import requirement

SEND = calls(("Mail-send", {"to": "canary"}))


def requests_about(chat: str, interaction: str, approval: str, grant: str) -> Iterator[
    tuple[str, str, object]
]:  # fmt: skip
    """Every request that names something of a user's."""
    path = f"/chats/{chat}/interactions/{interaction}"
    decision = {"approved": True}
    yield from (
        ("GET", f"/chats/{chat}", None),
        ("PATCH", f"/chats/{chat}", {"title": "mine"}),
        ("DELETE", f"/chats/{chat}", None),
        ("GET", f"/chats/{chat}/events", None),
        ("GET", f"/chats/{chat}/events?after=9999", None),
        ("GET", f"/chats/{chat}/branches", None),
        ("POST", f"/chats/{chat}/branch", {"interaction_id": interaction}),
        ("GET", f"/chats/{chat}/export", None),
        ("GET", path, None),
        ("GET", f"{path}/events", None),
        ("GET", f"{path}/events?after=9999", None),
        ("POST", f"{path}/approve", {"approval_id": approval, **decision}),
        ("POST", f"{path}/cancel", None),
        ("POST", f"{path}/steer", {"user_message": "x"}),
        ("POST", f"{path}/edit", {"new_user_message": "x"}),
        ("POST", f"{path}/regenerate", None),
        ("GET", f"/approvals/{approval}", None),
        ("POST", f"/approvals/{approval}", decision),
        ("DELETE", f"/grants/{grant}", None),
    )


def shape(answer: httpx.Response) -> tuple[int, object, object]:
    body = answer.json()
    body.pop("correlation_id")
    changing = {"date", "x-correlation-id"}
    headers = {name: value for name, value in answer.headers.items() if name not in changing}
    return answer.status_code, body, headers


async def waiting_chat(served: Served) -> tuple[str, str, str]:
    """Of Ada: an interaction that waits, its approval, and a grant."""
    frames = await served.say_until("approval_required", chat="own", headers=ADA)
    await served.decide(frames[-1].data, chat="own", headers=ADA, remember="thread")
    [grant] = (await served.get("/grants", headers=ADA))["grants"]
    await served.follow(id_of(frames), chat="own", headers=ADA)
    await served.client.delete(f"/grants/{grant['grant_id']}", headers=ADA)
    frames = await served.say_until("approval_required", chat="own", headers=ADA)
    return id_of(frames), frames[-1].data["approval_id"], grant["grant_id"]


@requirement("S004-10.2-access")
async def test_anothers_and_what_never_existed_cannot_be_told_apart(tmp_path: Path) -> None:
    script = [SEND, says("x"), SEND]
    async with serving(tmp_path, script, authorizer=HeaderAuthorizer()) as served:
        interaction, approval, grant = await waiting_chat(served)
        before = (await served.get("/chats/own", headers=ADA))["interactions"]
        real = list(requests_about("own", interaction, approval, grant))
        never = list(requests_about("non", "int_0", "approval_0", "grant_0"))
        for (method, url, body), (_, other_url, other_body) in zip(real, never, strict=True):
            theirs = await served.client.request(method, url, json=body, headers=BOB)
            none = await served.client.request(method, other_url, json=other_body, headers=BOB)
            assert theirs.status_code == 404, url
            assert shape(theirs) == shape(none), url
            assert "canary" not in theirs.text and "lovelace" not in theirs.text
        lists = [await served.get(url, headers=BOB) for url in ("/chats", "/approvals", "/grants")]
        assert (await served.get("/chats/own", headers=ADA))["interactions"] == before
    assert [page[name] for page, name in zip(lists, ("chats", "approvals", "grants"), strict=True)
            ] == [[], [], []]  # fmt: skip


async def test_the_same_id_is_another_chat_for_another_user(tmp_path: Path) -> None:
    script = [says("for ada"), says("for bob")]
    async with serving(tmp_path, script, authorizer=HeaderAuthorizer()) as served:
        hers = id_of(await served.say("hello from ada", headers=ADA))
        his = await served.say("hello from bob", headers=BOB)
        chat = await served.get("/chats/c", headers=BOB)
        crossed = await served.client.get(f"/chats/c/interactions/{hers}", headers=BOB)
    assert [entry["user_message"] for entry in chat["interactions"]] == ["hello from bob"]
    assert first(his, "answer")["content"] == "for bob"
    assert crossed.status_code == 404


async def test_nobody_is_served_without_a_name(tmp_path: Path) -> None:
    urls = [(method, url) for method, url, _ in requests_about("c", "int_1", "a", "g")]
    urls += [("POST", url) for url in ("/chats", "/chats/import", "/chats/c/interactions")]
    urls += [("GET", url) for url in ("/chats", "/approvals", "/grants", "/agents")]
    async with serving(tmp_path, authorizer=HeaderAuthorizer()) as served:
        for method, url in urls:
            answer = await served.client.request(method, url)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), url
            assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_in_development_the_query_names_the_user(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        frames = await served.read_until(
            "approval_required",
            "POST",
            "/chats/c/interactions?user_id=bob+b",
            json={"user_message": "hi"},
        )
        interaction = id_of(frames)
        nobody = await served.client.get("/chats/c")
        inbox = await served.get("/approvals?user_id=bob%20b")
        decided = await served.client.post(
            f"/approvals/{frames[-1].data['approval_id']}?user_id=bob+b", json={"approved": True}
        )
        url = f"/chats/c/interactions/{interaction}/events?user_id=bob+b"
        whole = await served.read("GET", url)
        odd = await served.client.get("/chats", params={"user_id": "x" * 300})
        async with served.stream("GET", "/chats/c/events?user_id=bob+b") as chat:
            await served.client.delete("/chats/c?user_id=bob+b")
            *_, end = [frame async for frame in chat]
    assert nobody.status_code == 404
    assert len(inbox["approvals"]) == 1
    assert decided.status_code == 200
    assert first(whole, "approved")["decided_by"] == "bob b"
    assert odd.status_code == 422
    assert end.data == {"reason": "deleted", "resume_url": "/chats/c/events?user_id=bob+b"}


async def test_with_proof_the_query_cannot_name_another(tmp_path: Path) -> None:
    async with serving(tmp_path, authorizer=ProvenAuthorizer()) as served:
        other = await served.client.get("/chats?user_id=bob", headers=ADA)
        same = await served.client.get("/chats?user_id=ada_lovelace", headers=ADA)
    assert (other.status_code, other.json()["code"]) == (403, "forbidden")
    assert same.status_code == 200


@pytest.mark.parametrize("authorizer", [ProvenAuthorizer(), HeaderAuthorizer()])
async def test_a_user_has_so_many_streams_and_no_run_begins_beyond_them(
    tmp_path: Path, authorizer: RequestAuthorizer
) -> None:
    is_limited = not authorizer.insecure
    script = [says("x"), says("y"), says("z")]
    async with serving(tmp_path, script, authorizer=authorizer, streams_per_user=2) as served:
        await served.say(headers=ADA)
        events = "/chats/c/events"
        async with (
            served.stream("GET", events, headers=ADA),
            served.stream("GET", events, headers=ADA),
        ):
            body = {"user_message": "more"}
            answer = await served.client.post("/chats/c/interactions", json=body, headers=ADA)
            chat = await served.get("/chats/c", headers=ADA)
            await served.say(chat="d", headers=BOB)
        assert len(chat["interactions"]) == (1 if is_limited else 2)
        if is_limited:
            assert (answer.status_code, answer.json()["code"]) == (429, "limit_exceeded")
            assert int(answer.headers["Retry-After"]) > 0
