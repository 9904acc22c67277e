"""Cursors of a log that is no more: a backup was restored, or the chat was deleted and made again.

A reader that comes back with one is told so. It is never sent on from the same place of another
log, as if nothing had been there before it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Frame, Served, durable, first, id_of, serving
from tests.stores.conftest import DURABLE

CHAT = "/chats/c/events"
SEND = calls(("Mail-send", {"to": "ada"}))


@pytest.fixture(params=DURABLE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path / 'data' / DURABLE[request.param]}"


def back_up(folder: Path) -> None:
    """As an operator does, while the server is stopped."""
    shutil.copytree(folder / "data", folder / "backup")


def restore(folder: Path) -> None:
    shutil.rmtree(folder / "data")
    shutil.copytree(folder / "backup", folder / "data")


async def assert_gone(served: Served, frames: Sequence[Frame], url: str = CHAT) -> None:
    for frame in frames:
        by_query = await refusal(served, url, params={"after": frame.id})
        by_header = await refusal(served, url, headers={"Last-Event-ID": frame.id})
        for problem in (by_query, by_header):
            assert (problem["status"], problem["code"]) == (410, "cursor_expired")
            assert "read it again" in problem["detail"]


async def refusal(served: Served, url: str, **request: Any) -> Any:
    """The answer's body, which must not be a stream: that would have no end."""
    async with served.client.stream("GET", url, **request) as answer:
        assert answer.headers["Content-Type"] == "application/problem+json", answer.status_code
        return json.loads(await answer.aread())


async def replayed(served: Served, after: str) -> list[str]:
    """The ids of the chat's stored events after this one."""
    last: str = (await served.get("/chats/c"))["last_event_id"]
    found: list[str] = []
    async with served.stream("GET", CHAT, params={"after": after}) as frames:
        while last not in found:
            found.append((await anext(frames)).id)
    return found


async def test_cursor_from_after_a_restored_backup_is_refused(tmp_path: Path, store: str) -> None:
    async with serving(tmp_path, [says("one")], store=store) as served:
        kept = durable(await served.say())
    back_up(tmp_path)
    async with serving(tmp_path, [says("two")], store=store) as served:
        lost = durable(await served.say())
        end: str = (await served.get("/chats/c"))["last_event_id"]
    restore(tmp_path)
    async with serving(tmp_path, [says("other"), says("more")], store=store) as served:
        problem = await refusal(served, CHAT, params={"after": end})
        assert (problem["status"], problem["code"]) == (400, "cursor_ahead")
        new = durable(await served.say())
        assert [frame.seq for frame in new] == [frame.seq for frame in lost]
        new += durable(await served.say())
        await assert_gone(served, [*lost, Frame("answer", {}, end)])
        ids = [frame.id for frame in kept + new]
        for place, frame in enumerate(kept, 1):
            assert await replayed(served, frame.id) == ids[place:]
        number = str(lost[0].seq)
        assert await replayed(served, number) == [
            frame.id for frame in new if frame.seq > lost[0].seq
        ], "a plain number is taken as it is"


async def test_interaction_that_went_on_differently_after_a_restore_has_other_cursors(
    tmp_path: Path, store: str
) -> None:
    async with serving(tmp_path, [SEND], store=store) as served:
        asked = await served.say_until("approval_required")
        approval = first(asked, "approval_required")
    url = f"/chats/c/interactions/{id_of(asked)}/events"
    back_up(tmp_path)
    async with serving(tmp_path, [says("sent")], store=store) as served:
        await served.decide(approval)
        lost = durable(await served.follow(id_of(asked)))[len(durable(asked)) :]
    restore(tmp_path)
    async with serving(tmp_path, [says("not sent")], store=store) as served:
        await served.decide(approval, approved=False)
        whole = durable(await served.follow(id_of(asked)))
        assert whole[: len(durable(asked))] == durable(asked)
        known = [frame for frame in lost if frame.seq <= whole[-1].seq]
        assert known, "some of what was lost has a place in the log as it is now"
        await assert_gone(served, known, url)


async def test_chat_made_again_expires_the_cursors_of_the_deleted_one_at_every_instance(
    tmp_path: Path,
) -> None:
    store = f"sqlite://{tmp_path}/chats.sqlite"
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            serving(tmp_path / "here", [says("one"), says("two")], store=store)
        )
        warm = await stack.enter_async_context(serving(tmp_path / "warm", [], store=store))
        old = durable(await here.say())
        assert await replayed(warm, "0") == [frame.id for frame in old]
        await here.client.delete("/chats/c")
        new = durable(await here.say())
        assert [frame.seq for frame in new] == [frame.seq for frame in old]
        cold = await stack.enter_async_context(serving(tmp_path / "cold", [], store=store))
        for served in (here, warm, cold):
            await assert_gone(served, old)
            assert await replayed(served, new[0].id) == [frame.id for frame in new[1:]]


async def test_id_of_no_event_is_refused(tmp_path: Path, store: str) -> None:
    async with serving(tmp_path, [says("x")], store=store) as served:
        frames = durable(await served.say())
        tag = frames[0].id.partition("-")[2]
        await assert_gone(served, [Frame("", {}, f"{seq}-{tag}") for seq in (0, frames[-1].seq)])
