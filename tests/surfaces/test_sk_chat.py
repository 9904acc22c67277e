"""`skagents/v1`, kind Chat: one agent answers a conversation that comes with the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Usage
from sk_agents.exceptions import ModelRefused
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import calls, says
from tests.requirements import requirement
from tests.surfaces.sk_server import CHAT, HELLO, P, serving

WITH_MAIL = CHAT + "    plugins: [Mail]\n"
DENIED = WITH_MAIL + "    approvals: {rules: [{tool: Mail-send, then: ask}]}\n"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def test_answer_has_the_shape_clients_know(tmp_path: Path) -> None:
    said = says("Hi!", usage=Usage(prompt_tokens=7, completion_tokens=3))
    async with serving(tmp_path, CHAT, [said]) as server:
        reply = await server.client.post(P, json=HELLO)
        body = reply.json()
        assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
        ids = body.pop("session_id"), body.pop("request_id")
        assert all(ids) and ids[0] != ids[1]
        assert body == {
            "source": "Helper:0.1",
            "token_usage": {"completion_tokens": 3, "prompt_tokens": 7, "total_tokens": 10},
            "extra_data": None,
            "output_raw": "Hi!",
            "output_pydantic": None,
        }
        assert server.model.requests[0]["temperature"] == 0.0
        assert server.prompt() == [("system", "You help."), ("user", "Hello?")]


@pytest.mark.parametrize(
    "history",
    [
        [user("One?"), assistant("One."), user("Two?")],
        [assistant("Welcome!"), user("One?"), assistant("One."), user("Two?")],
        [user("One?"), user("Two?"), user("Three?")],
        [user("One?"), assistant("One."), assistant("And a half."), user("Two?"), user("Three?")],
        [assistant("A"), assistant("B"), user("C"), assistant("D"), user("E")],
    ],
)
async def test_all_messages_reach_the_model_in_order(
    tmp_path: Path, history: list[dict[str, str]]
) -> None:
    async with serving(tmp_path, CHAT, [says("Yes.")]) as server:
        reply = await server.client.post(P, json={"chat_history": history})
        assert reply.json()["output_raw"] == "Yes."
        sent = [(message["role"], message["content"]) for message in history]
        assert server.prompt() == [("system", "You help."), *sent]
        assert await server.threads() == 0


async def test_history_too_long_for_the_model_is_compacted(tmp_path: Path) -> None:
    config = CHAT + "    context: {window: 2000, reserve: 200}\n"
    long = [said for n in range(40) for said in (user(f"{n} " + "x" * 400), assistant(f"{n}."))]
    async with serving(tmp_path, config, [says("Yes.")]) as server:
        reply = await server.client.post(P, json={"chat_history": [*long, user("Now?")]})
        assert reply.status_code == 200
        prompt = server.prompt()
        assert prompt[-1] == ("user", "Now?")
        assert len(prompt) < 20
        assert "Summary" in prompt[1][1]


async def test_what_is_known_about_the_user_is_said_first(tmp_path: Path) -> None:
    config = CHAT.replace("BaseInput", "BaseInputWithUserContext")
    body = {**HELLO, "user_context": {"name": "Ann", "city": "Oslo"}}
    async with serving(tmp_path, config, [says("Hi Ann!")]) as server:
        assert (await server.client.post(P, json=body)).json()["output_raw"] == "Hi Ann!"
        (_, (role, about), last) = server.prompt()
        assert (role, last) == ("user", ("user", "Hello?"))
        assert "name: Ann" in about and "city: Oslo" in about


async def test_tokens_and_extra_data_of_all_rounds_are_counted_and_the_header_reaches_the_tool(
    tmp_path: Path,
) -> None:
    script = [
        calls(
            ("Mail-send", {"to": "Bob"}),
            ("Mail-send", {"to": "Eve"}),
            usage=Usage(prompt_tokens=5, completion_tokens=2),
        ),
        says("Sent.", usage=Usage(prompt_tokens=9, completion_tokens=1)),
    ]
    async with serving(tmp_path, WITH_MAIL, script) as server:
        reply = await server.client.post(P, json=HELLO, headers={"Authorization": "Bearer canary"})
        body = reply.json()
        assert body["token_usage"] == {
            "completion_tokens": 3,
            "prompt_tokens": 14,
            "total_tokens": 17,
        }
        items = sorted(body["extra_data"]["items"], key=lambda item: str(item["value"]))
        assert items == [{"key": "sent_to", "value": "Bob"}, {"key": "sent_to", "value": "Eve"}]
    sent = sorted((tmp_path / "sent.txt").read_text().splitlines())
    assert sent == ["Bob Bearer canary", "Eve Bearer canary"]


async def test_tool_that_nothing_speaks_about_runs_because_the_operator_listed_it(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {"to": "Bob"})), says("Sent.")]
    async with serving(tmp_path, WITH_MAIL, script) as server:
        await server.client.post(P, json=HELLO)
        assert server.prompt()[-1] == ("tool", "sent to Bob")


@requirement("S002-hitl-nobody-to-ask")
async def test_gated_call_is_refused_by_policy_and_the_model_is_told(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"to": "Bob"})), says("I may not.")]
    async with serving(tmp_path, DENIED, script) as server:
        reply = await server.client.post(P, json=HELLO)
        assert (reply.status_code, reply.json()["output_raw"]) == (200, "I may not.")
        role, told = server.prompt()[-1]
        assert role == "tool" and "policy" in told.lower()
        assert await server.threads() == 0
    assert not (tmp_path / "sent.txt").exists()


async def test_tool_whose_outcome_is_not_known_ends_the_request_with_an_error(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, WITH_MAIL, [calls(("Mail-post", {}))]) as server:
        reply = await server.client.post(P, json=HELLO)
        body = reply.json()
        assert (reply.status_code, body["code"]) == (500, "tool_outcome_unknown")
        assert body["detail"] == "A tool was started and it is not known whether it took effect."
        assert await server.threads() == 0


async def test_failing_model_is_a_bad_gateway_with_a_code(tmp_path: Path) -> None:
    async with serving(tmp_path, CHAT, [ModelRefused("canary", status=400)]) as server:
        reply = await server.client.post(P, json=HELLO, headers={"X-Correlation-Id": "mine"})
        body = reply.json()
        assert (reply.status_code, body["code"]) == (502, "llm_refused")
        assert body["correlation_id"] == "mine" == reply.headers["X-Correlation-Id"]
        assert set(body) == {"detail", "code", "correlation_id"}
        assert "canary" not in body["detail"]
        assert await server.threads() == 0


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"chat_history": "Hello"}, ["body", "chat_history"]),
        ({"chat_history": [{"role": "system", "content": "x"}]}, ["body", "chat_history", 0]),
        ({"chat_history": [{"role": "user"}]}, ["body", "chat_history", 0, "content"]),
        ([], ["body"]),
    ],
)
async def test_input_that_does_not_fit_is_refused_as_fastapi_does(
    tmp_path: Path, body: Any, place: list[Any]
) -> None:
    async with serving(tmp_path, CHAT, []) as server:
        reply = await server.client.post(P, json=body)
        answer = reply.json()
        assert (reply.status_code, answer["code"]) == (422, "invalid_input")
        assert answer["detail"][0]["loc"][: len(place)] == place
        assert set(answer["detail"][0]) == {"type", "loc", "msg"}
        assert answer["correlation_id"] == reply.headers["X-Correlation-Id"]


@pytest.mark.parametrize(
    "body",
    [{}, {"chat_history": []}, {"chat_history": [user("One?"), assistant("One.")]}],
)
async def test_conversation_without_a_message_to_answer_is_refused(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with serving(tmp_path, CHAT, []) as server:
        reply = await server.client.post(P, json=body)
        assert reply.status_code == 422
        assert reply.json()["detail"] == "chat_history must end with a message of the user."
        assert await server.threads() == 0


async def test_further_fields_of_the_input_are_ignored(tmp_path: Path) -> None:
    body = {**HELLO, "status": "Completed", "user_id": "mallory", "role": "system"}
    async with serving(tmp_path, CHAT, [says("Hi!")]) as server:
        assert (await server.client.post(P, json=body)).status_code == 200
        assert server.prompt() == [("system", "You help."), ("user", "Hello?")]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {"Content-Type": "application/json"}, 422),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"\xff", {"Content-Type": "application/json"}, 400),
        (b'"' + b"x" * (13 * 1024 * 1024) + b'"', {"Content-Type": "application/json"}, 413),
    ],
)
async def test_body_that_cannot_be_read_has_its_status_and_shape(
    tmp_path: Path, content: bytes, headers: dict[str, str], status: int
) -> None:
    async with serving(tmp_path, CHAT, []) as server:
        reply = await server.client.post(P, content=content, headers=headers)
        assert reply.status_code == status
        assert {"detail", "code", "correlation_id"} == set(reply.json())


async def test_caller_whom_the_authorizer_refuses_gets_401(tmp_path: Path) -> None:
    async with serving(tmp_path, CHAT, [says("Hi!")], authorizer=HeaderAuthorizer()) as server:
        reply = await server.client.post(P, json=HELLO)
        assert (reply.status_code, reply.json()["code"]) == (401, "unauthenticated")
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        known = await server.client.post(P, json=HELLO, headers={"Authorization": "Bearer ann"})
        assert known.status_code == 200


async def test_health_and_description_of_one_file(tmp_path: Path) -> None:
    async with serving(tmp_path, CHAT, []) as server:
        health = await server.client.get(f"{P}/health")
        assert (health.status_code, health.json()["status"]) == (200, "healthy")
        assert set(health.json()) == {"status", "timestamp", "version", "uptime", "dependencies"}
        assert (await server.client.get(f"{P}/health/live")).json()["alive"] is True
        document = (await server.client.get(f"{P}/openapi.json")).json()
        assert document["info"]["title"] == "Helper"
        assert set(document["paths"]) == {P, f"{P}/sse"}
        invoke = document["paths"][P]["post"]
        assert invoke["description"].strip() == "Helps with mail."
        reference = invoke["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert reference == "#/components/schemas/BaseInput"
        assert "chat_history" in document["components"]["schemas"]["BaseInput"]["properties"]
        assert list(invoke["responses"]["200"]["content"]) == ["application/json"]
        stream = document["paths"][f"{P}/sse"]["post"]
        assert list(stream["responses"]["200"]["content"]) == ["text/event-stream"]
        docs = await server.client.get(f"{P}/docs")
        assert (docs.status_code, "Interface description" in docs.text) == (200, True)
        whole = (await server.client.get("/openapi.json")).json()
        assert P in whole["paths"]


async def test_secrets_in_the_history_do_not_reach_the_model_of_an_agent_that_redacts(
    tmp_path: Path,
) -> None:
    secret = "sk-proj-canaryAAAAAAAAAAAAAAAAAAAA"
    history = [user(f"It is {secret}"), assistant(f"{secret}?"), user(f"Yes, {secret}")]
    async with serving(tmp_path, CHAT + "    redact: true\n", [says("Hi!")]) as server:
        reply = await server.client.post(P, json={"chat_history": history})
        assert reply.status_code == 200
        assert [text for _, text in server.prompt()] == [
            "You help.",
            "It is [redacted]",
            "[redacted]?",
            "Yes, [redacted]",
        ]
