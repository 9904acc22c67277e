"""`POST /chat`: the eight steps of a turn in their order, and a server that keeps nothing."""

import asyncio
from pathlib import Path
from typing import Any

from sk_agents.engine.events import Answered, RunStarted, ToolStarted
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import calls, says
from tests.patience import seconds
from tests.requirements import requirement
from tests.surfaces.todo_house import StrictAuthorizer, chatting, house, served

ADD = calls(("mcp_todo-add_task", {"title": "buy milk"}))
TWO = calls(
    ("mcp_todo-add_task", {"title": "buy milk"}), ("mcp_todo-add_task", {"title": "buy bread"})
)
LIST = calls(("mcp_todo-list_tasks", {}))
DELETE = calls(("mcp_todo-delete_task", {"task_id": 1}))


@requirement(
    "S003-1.1-receive",
    "S003-1.5-run-agent",
    "S003-1.6-mcp-tools",
    "S003-1.6-results",
    "S003-1.8-return",
)
async def test_turn_calls_the_todo_tools_and_returns_the_assistant_s_message(
    tmp_path: Path,
) -> None:
    script = [TWO, LIST, says("Milk and bread are on your list.")]
    async with chatting(tmp_path, script) as client:
        reply = await client.say("I need milk and bread", user_id="ada")
        tasks = await client.house.tasks("ada")
        prompts = client.house.prompts
    assert reply["response"] == "Milk and bread are on your list."
    assert (reply["session_id"], reply["status"], reply["approvals"]) == ("s", "Completed", [])
    assert [made["name"] for made in reply["tool_calls"]] == [
        "mcp_todo-add_task",
        "mcp_todo-add_task",
        "mcp_todo-list_tasks",
    ]
    assert reply["tool_calls"][0]["arguments"] == {"title": "buy milk", "notes": ""}
    assert sorted(task.title for task in tasks) == ["buy bread", "buy milk"]
    assert "TodoChatAgent" in prompts[0][0]["content"]
    results = [message["content"] for message in prompts[2] if message["role"] == "tool"]
    assert len(results) == 3 and "buy bread" in results[2]


@requirement("S003-1.4-store-first", "S003-1.7-store-response")
async def test_message_is_stored_before_the_model_is_called_and_the_answer_before_the_reply(
    tmp_path: Path,
) -> None:
    gate, tool_gate = asyncio.Event(), asyncio.Event()
    script: list[Any] = [
        [gate, *ADD],
        [TextDelta("It is "), tool_gate, TextDelta("noted."), TurnFinished()],
    ]
    async with chatting(tmp_path, script) as client:
        at = client.house
        reply = asyncio.ensure_future(client.say("Remind me to buy milk"))
        await called(at.model.requests, 1)
        # Step 4 is done, step 5 has begun: the model was called and has said nothing.
        stored = await at.events("ada", "s")
        assert [type(event) for event in stored] == [RunStarted]
        assert stored[0].message.text == "Remind me to buy milk"  # type: ignore[union-attr]
        assert await at.tasks("ada") == []
        gate.set()
        await called(at.model.requests, 2)
        # Step 6: the tool has run, its result went back to the model.
        assert [task.title for task in await at.tasks("ada")] == ["buy milk"]
        assert any(isinstance(event, ToolStarted) for event in await at.events("ada", "s"))
        assert not any(isinstance(event, Answered) for event in await at.events("ada", "s"))
        assert not reply.done()
        tool_gate.set()
        said = await reply
        # Steps 7 and 8: what was returned is what is stored.
        (answer,) = [one for one in await at.events("ada", "s") if isinstance(one, Answered)]
        assert said["response"] == answer.content == "It is noted."


async def called(requests: list[Any], times: int) -> None:
    async with asyncio.timeout(seconds(20)):
        while True:
            if len(requests) >= times:
                return
            await asyncio.sleep(0.005)


@requirement("S003-1.2-history", "S003-1.3-append")
async def test_prompt_is_the_whole_history_followed_by_the_new_message(tmp_path: Path) -> None:
    script = [says("Hello Ada."), ADD, says("Noted."), says("You are Ada.")]
    async with chatting(tmp_path, script) as client:
        await client.say("I am Ada")
        await client.say("Remind me to buy milk")
        await client.say("Who am I?")
        last = client.house.prompts[-1]
    assert [message["role"] for message in last] == [
        *("system", "user", "assistant"),
        *("user", "assistant", "tool", "assistant"),
        "user",
    ]
    assert last[1]["content"] == "I am Ada" and last[-1]["content"] == "Who am I?"


@requirement("S003-1.4-store-first")
async def test_message_survives_a_model_that_fails_and_the_next_turn_has_it(
    tmp_path: Path,
) -> None:
    script: list[Any] = [ModelError("no", status=400), says("You said milk.")]
    async with chatting(tmp_path, script) as client:
        failed = await client.post("Remind me to buy milk")
        assert failed.status_code == 502, failed.text
        problem = failed.json()
        assert (problem["session_id"], problem["code"][:4]) == ("s", "llm_")
        (kept,) = (await client.get("/chats/s"))["interactions"]
        assert (kept["id"], kept["status"]) == (problem["request_id"], "FAILED")
        assert (await client.say("What did I say?"))["response"] == "You said milk."
        last = client.house.prompts[-1]
    assert [m["content"] for m in last if m["role"] == "user"] == [
        "Remind me to buy milk",
        "What did I say?",
    ]


@requirement("S003-1.1-user-id")
async def test_user_id_that_is_not_the_verified_caller_s_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path, [says("Hello.")]) as at:
        async with served(at, StrictAuthorizer()) as client:
            refused = await client.post("hello", user="ada", user_id="bob")
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert at.model.requests == []
            assert (await client.say("hello", user="ada", user_id="ada"))["response"] == "Hello."


@requirement("S003-1.1-user-id-development")
async def test_user_id_is_the_user_while_nobody_proves_theirs(tmp_path: Path) -> None:
    async with chatting(tmp_path, [ADD, says("Noted.")]) as client:
        await client.say("Remind me to buy milk", user="ada", user_id="bob")
        assert await client.house.tasks("ada") == []
        assert [task.title for task in await client.house.tasks("bob")] == ["buy milk"]
        assert (await client.get("/chats/s?user_id=bob"))["id"] == "s"


async def test_users_have_their_own_lists_and_conversations_whatever_they_call_them(
    tmp_path: Path,
) -> None:
    script = [ADD, says("Noted."), LIST, says("Nothing there.")]
    async with chatting(tmp_path, script) as client:
        await client.say("Remind me to buy milk", user="ada")
        reply = await client.say("What is on my list?", user="bob")
        last = client.house.prompts[-2]
    assert "buy milk" not in reply["tool_calls"][0]["result"]
    assert [message["content"] for message in last if message["role"] == "user"] == [
        "What is on my list?"
    ]


async def test_deletion_waits_for_a_person_and_goes_on_when_it_is_approved(tmp_path: Path) -> None:
    script = [ADD, says("Noted."), DELETE, says("It is gone.")]
    async with chatting(tmp_path, script) as client:
        await client.say("Remind me to buy milk")
        reply = await client.say("Delete task 1")
        assert (reply["status"], reply["response"]) == ("Paused", "")
        (approval,) = reply["approvals"]
        assert approval["tool_name"] == "mcp_todo-delete_task"
        assert approval["arguments"] == {"task_id": 1}
        assert len(await client.house.tasks("ada")) == 1
        assert (await client.decide(approval, digest=approval["digest"])).status_code == 200
        path = f"/chats/s/interactions/{reply['request_id']}"
        await ended(client, path)
        kept = await client.get(path)
        assert kept["agent_events"][-1]["content"] == "It is gone."
        assert await client.house.tasks("ada") == []


async def ended(client: Any, path: str) -> None:
    async with asyncio.timeout(seconds(20)):
        while True:
            if (await client.get(path))["status"] not in {"RUNNING", "WAITING_APPROVAL"}:
                return
            await asyncio.sleep(0.01)


async def test_refused_deletion_leaves_the_task(tmp_path: Path) -> None:
    script = [ADD, says("Noted."), DELETE, says("I left it.")]
    async with chatting(tmp_path, script) as client:
        await client.say("Remind me to buy milk")
        reply = await client.say("Delete task 1")
        await client.decide(reply["approvals"][0], approved=False, message="keep it")
        await ended(client, f"/chats/s/interactions/{reply['request_id']}")
        assert len(await client.house.tasks("ada")) == 1


async def test_conversation_shows_among_the_chats(tmp_path: Path) -> None:
    async with chatting(tmp_path, [says("Hello.")]) as client:
        reply = await client.say("Remind me to buy milk", None)
        (chat,) = (await client.get("/chats"))["chats"]
    assert chat["id"] == reply["session_id"]
    assert (chat["title"], chat["agent"]) == ("Remind me to buy milk", "TodoChatAgent")


async def test_agent_s_tools_are_listed_once_their_server_is_there(tmp_path: Path) -> None:
    async with chatting(tmp_path, []) as client:
        (agent,) = (await client.get("/agents"))["agents"]
        (server,) = (await client.get("/health/ready"))["mcp"]
    assert [tool["name"] for tool in agent["tools"]][:2] == [
        "mcp_todo-add_task",
        "mcp_todo-list_tasks",
    ]
    assert (server["server"], server["status"], server["tools"]) == ("todo", "up", 5)


MALFORMED: list[dict[str, Any]] = [
    {},
    {"user_message": " "},
    {"user_message": "x", "session_id": "a/b"},
    {"user_message": "x", "session_id": ""},
    {"user_message": "x", "user_id": ""},
    {"user_message": "x", "on_busy": "wait"},
    {"user_message": "x", "agent": "other"},
    {"user_message": 1},
]


async def test_malformed_request_is_422_and_reaches_no_model(tmp_path: Path) -> None:
    async with chatting(tmp_path, []) as client:
        for body in MALFORMED:
            answer = await client.http.post("/chat", json=body, headers={"Authorization": "ada"})
            assert answer.status_code == 422, body
        assert client.house.model.requests == []


async def test_request_without_a_token_is_401(tmp_path: Path) -> None:
    async with chatting(tmp_path, []) as client:
        answer = await client.http.post("/chat", json={"user_message": "x"})
        assert answer.status_code == 401


async def test_request_sent_again_with_its_key_gets_the_same_reply(tmp_path: Path) -> None:
    async with chatting(tmp_path, [ADD, says("Noted.")]) as client:
        key: dict[str, Any] = {"headers": {"Idempotency-Key": "k"}}
        replies = [await client.say("Remind me", None, **key) for _ in range(3)]
        other = await client.post("Something else", None, **key)
        assert len(await client.house.tasks("ada")) == 1
    assert replies[0] == replies[1] == replies[2]
    assert other.status_code == 422


async def test_second_message_meanwhile_is_refused_or_waits_its_turn(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Any] = [[gate, *says("one")], says("two")]
    async with chatting(tmp_path, script) as client:
        first = asyncio.ensure_future(client.say("first"))
        await called(client.house.model.requests, 1)
        busy = await client.post("second")
        assert (busy.status_code, busy.json()["code"]) == (409, "thread_busy")
        assert busy.headers["Retry-After"] == "1"
        second = asyncio.ensure_future(client.say("third", on_busy="enqueue"))
        gate.set()
        assert (await first)["response"] == "one"
        assert (await second)["response"] == "two"
    assert busy.json()["request_id"] == (await first)["request_id"]


async def test_answer_that_takes_too_long_is_504_and_the_turn_goes_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Any] = [[gate, *says("at last")]]
    async with chatting(tmp_path, script, request_wait=0.2) as client:
        answer = await client.post("hello")
        assert (answer.status_code, answer.json()["code"]) == (504, "still_running")
        gate.set()
        path = f"/chats/s/interactions/{answer.json()['request_id']}"
        await ended(client, path)
        assert (await client.get(path))["agent_events"][-1]["content"] == "at last"
