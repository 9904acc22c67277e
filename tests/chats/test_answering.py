"""A question to the user, over HTTP: an answer that does not fit changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import Served, first, serving

AGENT = {"builtin": {"tools": ["ask_user"]}}
FORM = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


def asking(**arguments: Any) -> Turn:
    return calls(("User-ask_user", {"question": "Which one?", **arguments}))


async def decide(served: Served, asked: dict[str, Any], at: str, answer: Any) -> Any:
    """By one of the two routes there are."""
    body = {"approved": True, "answer": answer}
    if at == "approvals":
        return await served.client.post(f"/approvals/{asked['approval_id']}", json=body)
    path = f"/chats/c/interactions/{asked['interaction_id']}/approve"
    return await served.client.post(path, json={**body, "approval_id": asked["approval_id"]})


@pytest.mark.parametrize("at", ["approvals", "chats"])
@pytest.mark.parametrize(
    ("question", "bad", "named", "good", "told"),
    [
        ({"schema": FORM}, {"size": "large"}, "size", {"size": 7}, '{"size":7}'),
        ({"schema": FORM}, {"colour": 1}, "colour", {"size": 7}, '{"size":7}'),
        ({"choices": ["red", "blue"]}, "green", "red, blue", "blue", "blue"),
        ({"choices": ["red", "blue"]}, {"x": ["red"]}, "red, blue", "blue", "blue"),
    ],
)
async def test_an_answer_that_does_not_fit_is_422_and_the_question_stays_open(
    tmp_path: Path, at: str, question: dict[str, Any], bad: Any, named: str, good: Any, told: str
) -> None:
    script = [asking(**question), says("Thanks.")]
    async with serving(tmp_path, script, agent=AGENT) as served:
        asked = (await served.say_until("approval_required"))[-1].data
        refused = await decide(served, asked, at, bad)
        left = await served.get(f"/approvals/{asked['approval_id']}")
        taken = await decide(served, asked, at, good)
        frames = await served.follow(asked["interaction_id"])
    assert asked["kind"] == "question"
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert named in refused.json()["detail"]
    assert left["state"] == "pending"
    assert taken.status_code == 200
    assert first(frames, "tool_result")["tool_output"] == told
    assert first(frames, "interaction_complete")["status"] == "COMPLETED"


async def test_a_question_with_an_unusable_schema_is_told_to_the_model(tmp_path: Path) -> None:
    script = [asking(schema={"type": "nothing"}), says("Then not.")]
    async with serving(tmp_path, script, agent=AGENT) as served:
        frames = await served.say()
    assert "schema" in first(frames, "tool_result")["tool_output"]
    assert first(frames, "interaction_complete")["status"] == "COMPLETED"
