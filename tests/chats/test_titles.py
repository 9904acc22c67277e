"""Titles that a model makes after the first answer, beside the turn and not over a user's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import Turn, says
from tests.chats.serving import Served, names, serving

WITH_TITLES: dict[str, Any] = {"titles": True}
MESSAGE = "please tell me how the weather in Oslo will be"


async def title_that_comes(served: Served, chat: str = "c") -> str:
    """The first title that the chat's own stream tells of."""
    frames = await served.read_until("chat_changed", "GET", f"/chats/{chat}/events?after=0")
    title: str = frames[-1].data["title"]
    return title


async def settled(served: Served) -> None:
    """Nothing names a chat any more."""
    tasks = served.app.state.engines.main.parts.drivers.titling.under_way
    await asyncio.gather(*tasks, return_exceptions=True)


async def title_of(served: Served, chat: str = "c") -> str:
    await settled(served)
    title: str = (await served.get(f"/chats/{chat}"))["title"]
    return title


async def test_a_chat_is_named_after_its_first_answer_and_once(tmp_path: Path) -> None:
    script = [says("Sunny."), says('"**Weather in Oslo**."\nmore'), says("Rain."), says("x")]
    async with serving(tmp_path, script, agent=WITH_TITLES) as served:
        frames = await served.say(MESSAGE)
        title = await title_that_comes(served)
        listed = (await served.get("/chats"))["chats"][0]["title"]
        await served.say("and tomorrow?")
        await settled(served)
        asked = served.model.requests
        log = (await served.get("/chats/c/export"))["events"]
    # The answer's own stream ends before the title comes.
    assert names(frames) == ["interaction_started", "answer", "interaction_complete"]
    assert title == listed == "Weather in Oslo"
    assert len(asked) == 3
    assert "tools" not in asked[1]
    assert MESSAGE in asked[1]["messages"][-1]["content"]
    assert "Sunny." in asked[1]["messages"][-1]["content"]
    assert [event["metadata"] for event in log if event["type"] == "thread_changed"] == [
        {"title": "Weather in Oslo"}
    ]


async def test_without_the_setting_no_model_is_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Sunny.")]) as served:
        await served.say(MESSAGE)
        title = await title_of(served)
        assert len(served.model.requests) == 1
    assert title == MESSAGE


async def test_the_answer_does_not_wait_for_the_title_and_a_renamed_chat_keeps_its_name(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    slow: Turn = [gate, TextDelta("Made by the model"), TurnFinished()]
    async with serving(tmp_path, [says("Sunny."), slow], agent=WITH_TITLES) as served:
        frames = await served.say(MESSAGE)
        await served.client.patch("/chats/c", json={"title": "Mine"})
        gate.set()
        title = await title_of(served)
    assert names(frames)[-1] == "interaction_complete"
    assert title == "Mine"


async def test_of_two_titles_that_are_made_at_once_one_is_kept(tmp_path: Path) -> None:
    gate = asyncio.Event()
    one: Turn = [gate, TextDelta("One"), TurnFinished()]
    two: Turn = [gate, TextDelta("Two"), TurnFinished()]
    async with serving(tmp_path, [says("Sunny."), one, two], agent=WITH_TITLES) as served:
        await served.say(MESSAGE)
        house, engine = served.app.state.parts, served.app.state.engines.main
        [thread] = (await house.stores.main.threads(ThreadQuery("dummyuser"))).threads
        known = await engine.unowned_thread(thread.thread_id)
        [run] = known.state.runs.values()
        # As the instance would that has taken over the run from one that is not quite gone.
        engine.parts.drivers.titling.ended(known, run, house.agents["helper"].agent)
        assert len(engine.parts.drivers.titling.under_way) == 2
        gate.set()
        await settled(served)
        log = (await served.get("/chats/c/export"))["events"]
    assert [event["type"] for event in log].count("thread_changed") == 1


async def test_a_chat_that_was_made_with_a_title_keeps_it(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Sunny."), says("x")], agent=WITH_TITLES) as served:
        await served.client.post("/chats", json={"chat_id": "c", "title": "Mine"})
        await served.say(MESSAGE)
        title = await title_of(served)
        assert len(served.model.requests) == 1
    assert title == "Mine"


@pytest.mark.parametrize("reply", [ModelError("away"), says("  \n"), says("\x07")])
async def test_a_title_that_fails_leaves_the_heading_and_the_chat(
    tmp_path: Path, reply: Turn | Exception
) -> None:
    script = [says("Sunny."), *([reply] * 5)]
    async with serving(tmp_path, script, agent=WITH_TITLES) as served:
        await served.say(MESSAGE)
        title = await title_of(served)
        status = (await served.get("/chats/c"))["status"]
    assert (title, status) == (MESSAGE, "COMPLETED")


async def test_a_long_title_is_cut_and_secrets_are_taken_out(tmp_path: Path) -> None:
    agent = {**WITH_TITLES, "redact": {"kinds": ["cards"]}}
    long = f"Card 4111 1111 1111 1111 {'word ' * 40}"
    async with serving(tmp_path, [says("ok"), says(long)], agent=agent) as served:
        await served.say(MESSAGE)
        title = await title_that_comes(served)
    assert len(title) <= 80
    assert "4111" not in title


async def test_what_a_title_uses_is_in_the_usage_under_the_model_that_was_asked(
    tmp_path: Path,
) -> None:
    usage = Usage(prompt_tokens=30, completion_tokens=4)
    script = [
        says("Sunny.", usage=Usage(prompt_tokens=7, completion_tokens=1)),
        says("Weather", usage=usage),
    ]
    async with serving(tmp_path, script, agent={"titles": "cheap-test"}) as served:
        await served.say(MESSAGE)
        title = await title_that_comes(served)
        await settled(served)
        rows = {row["model"]: row for row in (await served.get("/usage"))["rows"]}
        asked = [request["model"] for request in served.model.requests]
    assert title == "Weather"
    assert asked == ["scripted-test", "cheap-test"]
    assert (rows["cheap-test"]["prompt_tokens"], rows["cheap-test"]["calls"]) == (30, 1)
    assert rows["scripted-test"]["prompt_tokens"] == 7


async def test_a_budget_that_is_used_up_names_no_chat(tmp_path: Path) -> None:
    usage = Usage(prompt_tokens=900, completion_tokens=100)
    agent = {**WITH_TITLES, "budget": {"user": "1500 tokens"}, "max_tokens": 200}
    script = [says("Sunny.", usage=usage), says("Weather")]
    async with serving(tmp_path, script, agent=agent) as served:
        await served.say(MESSAGE)
        title = await title_of(served)
        assert len(served.model.requests) == 1
    assert title == MESSAGE


async def test_the_setting_names_chats_of_all_agents_but_those_that_refuse(tmp_path: Path) -> None:
    async with serving(tmp_path / "on", [says("Sunny."), says("Weather")], titles="on") as served:
        await served.say(MESSAGE)
        assert await title_that_comes(served) == "Weather"
    refusing = {"titles": False}
    script = [says("Sunny.")]
    async with serving(tmp_path / "off", script, agent=refusing, titles="on") as served:
        await served.say(MESSAGE)
        assert await title_of(served) == MESSAGE
        assert len(served.model.requests) == 1
