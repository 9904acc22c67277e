"""What an operator sees of who is at work, and what not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.people import ADA, BOB, MALLORY, PeopleAuthorizer
from tests.chats.serving import Served, serving

SEND = calls(("Mail-send", {"to": "canary"}))


async def sessions(served: Served, query: str = "") -> dict[str, Any]:
    report: dict[str, Any] = await served.get(f"/sessions{query}", headers=MALLORY)
    return report


async def test_operator_sees_who_is_at_work_and_no_content(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [says("canary"), SEND, [TextDelta("canary "), gate, TurnFinished()]]
    async with serving(tmp_path, script, authorizer=PeopleAuthorizer()) as served:
        await served.say("a canary was said", chat="ended", headers=ADA)
        await served.say_until("approval_required", chat="waiting", headers=ADA)
        body = {"user_message": "canary"}
        address = "/chats/running/interactions"
        async with served.client.stream("POST", address, json=body, headers=BOB) as stream:
            await anext(stream.aiter_lines())
            report = await sessions(served)
            of_bob = await sessions(served, "?user=bob")
            cut = await sessions(served, "?limit=1")
            gate.set()
        refused = await served.client.get("/sessions", headers=ADA)
        unzoned = await served.client.get("/sessions?since=2026-11-01T00:00:00", headers=MALLORY)
        later = await sessions(served, "?since=2999-01-01T00:00:00Z")
    assert "canary" not in str(report)
    ada, bob = report["users"]
    assert (ada["user_id"], ada["running"], ada["waiting"], ada["ended"]) == ("ada", 0, 1, 1)
    assert (bob["user_id"], bob["running"], bob["streams"]) == ("bob", 1, 1)
    seen = [(one["user_id"], one["status"], one["is_driven"]) for one in report["sessions"]]
    assert seen[:2] == [("bob", "running", True), ("ada", "waiting", False)]
    assert [status for _, status, _ in seen] == ["running", "waiting", "completed"]
    assert {(one["surface"], one["agent"]) for one in report["sessions"]} == {("chats", "helper")}
    assert [one["user_id"] for one in of_bob["users"]] == ["bob"]
    assert (len(cut["sessions"]), cut["is_cut"], len(cut["users"])) == (1, True, 2)
    assert (refused.status_code, unzoned.status_code) == (403, 422)
    # What runs and waits is shown, however old it is.
    assert [one["status"] for one in later["sessions"]] in (["waiting"], ["running", "waiting"])
