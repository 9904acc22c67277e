"""Several servers on one database: a turn each, and none of them needed for the next one."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.patience import seconds
from tests.requirements import requirement
from tests.surfaces.todo_house import House, Instance, house, instance

ADD = calls(("mcp_todo-add_task", {"title": "buy milk"}))
LIST = calls(("mcp_todo-list_tasks", {}))


async def instances(stack: AsyncExitStack, at: House, count: int) -> list[Instance]:
    agent = at.agent_file()
    started = await asyncio.gather(
        *(stack.enter_async_context(instance(agent, at.folder, at.store)) for _ in range(count))
    )
    return list(started)


@requirement("S003-3a-any-instance", "S003-2-external-state", "S003-2-reconstruction")
async def test_two_processes_answer_alternate_turns_of_one_conversation(tmp_path: Path) -> None:
    script = [ADD, says("Noted."), LIST, says("Milk."), says("Milk, still."), says("And so on.")]
    async with house(tmp_path, script) as at, AsyncExitStack() as stack:
        one, two = await instances(stack, at, 2)
        assert (await one.post("Remind me to buy milk"))["response"] == "Noted."
        listed = await two.post("What is on my list?")
        assert "buy milk" in listed["tool_calls"][0]["result"]
        assert (await one.post("And now?"))["response"] == "Milk, still."
        assert (await two.post("And then?"))["response"] == "And so on."
        last = at.prompts[-1]
    said = [message["content"] for message in last if message["role"] == "user"]
    assert said == ["Remind me to buy milk", "What is on my list?", "And now?", "And then?"]


@requirement("S003-3b-crash", "S003-1.4-store-first")
async def test_turn_cut_by_kill_9_is_in_the_history_of_the_next_one_elsewhere(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    script: list[Any] = [
        says("Hello Ada."),
        [held],
        says("Carried on."),
        says("Carried on."),
    ]
    async with house(tmp_path, script) as at, AsyncExitStack() as stack:
        one, two = await instances(stack, at, 2)
        await one.post("I am Ada")
        cut = asyncio.ensure_future(one.post("Remember the milk"))
        async with asyncio.timeout(seconds(20)):
            while True:
                if len(at.model.requests) == 2:
                    break
                await asyncio.sleep(0.01)
        one.process.send_signal(signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            await cut
        body = {"user_message": "Who am I?", "session_id": "s", "user_id": "ada"}
        answer = await two.http.post(f"{two.url}/chat", json={**body, "on_busy": "enqueue"})
        assert answer.status_code == 200, answer.text
        last = at.prompts[-1]
    said = [message["content"] for message in last if message["role"] == "user"]
    assert said == ["I am Ada", "Remember the milk", "Who am I?"]
