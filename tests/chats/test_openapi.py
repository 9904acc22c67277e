"""The interface's description: whole, and kept to by every answer."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from sk_agents.engine.turns import ReasoningDelta
from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import Turn, calls, says
from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES, Frames
from tests.chaos.scale import trials
from tests.chats.serving import Frame, serving
from tests.patience import seconds

EXAMPLES = trials(full=300, small=8)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES = """
GET /agents
GET /chats
POST /chats
POST /chats/import
GET /chats/{chat_id}
PATCH /chats/{chat_id}
DELETE /chats/{chat_id}
GET /chats/{chat_id}/events
GET /chats/{chat_id}/passages
GET /chats/{chat_id}/shares
POST /chats/{chat_id}/shares
DELETE /shared/{share_id}
GET /shared/{share_id}
POST /shared/{share_id}/copy
GET /chats/{chat_id}/branches
POST /chats/{chat_id}/branch
GET /chats/{chat_id}/export
GET /chats/{chat_id}/interactions/{interaction_id}/attachments/{call_id}/{number}
POST /chats/{chat_id}/interactions
GET /chats/{chat_id}/interactions/{interaction_id}
GET /chats/{chat_id}/interactions/{interaction_id}/events
POST /chats/{chat_id}/interactions/{interaction_id}/approve
POST /chats/{chat_id}/interactions/{interaction_id}/cancel
POST /chats/{chat_id}/interactions/{interaction_id}/steer
PUT /chats/{chat_id}/interactions/{interaction_id}/feedback
DELETE /chats/{chat_id}/interactions/{interaction_id}/feedback
POST /chats/{chat_id}/interactions/{interaction_id}/edit
POST /chats/{chat_id}/interactions/{interaction_id}/regenerate
GET /interactions/{interaction_id}
GET /approvals
GET /approvals/{approval_id}
POST /approvals/{approval_id}
DELETE /approvals/{approval_id}/vote
GET /grants
DELETE /grants/{grant_id}
GET /usage
GET /budgets
GET /tags
GET /feedback
GET /prompts
POST /prompts/fill
GET /resources
POST /resources/read
GET /sign-ins
POST /sign-ins
DELETE /sign-ins/{server}
""".strip().splitlines()
MCP = ("/prompts", "/resources", "/sign-ins")
OURS = (
    *("/chats", "/interactions", "/shared", "/approvals", "/grants", "/agents", "/usage"),
    *("/budgets", "/tags", "/feedback"),
    *MCP,
)


@contextmanager
def served_elsewhere(folder: Path) -> Iterator[str]:
    """A server on a thread of its own; its address."""
    ready = threading.Event()
    address: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(folder, [says("ok")] * 10_000) as served:
            address.append(served.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(seconds(20))
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(seconds(20))
        loop.close()


def operations(schema: Any) -> Iterator[Any]:
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.startswith(OURS):
            yield operation


@pytest.mark.timeout(seconds(900))
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
# The server on the other thread draws random numbers too.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
def test_every_answer_is_one_that_the_description_names(tmp_path: Path) -> None:
    with served_elsewhere(tmp_path) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        tried = set()
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        for operation, mode in product(operations(schema), modes):

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def ask(case: Any) -> None:
                if case.operation.path == "/chats/{chat_id}/events":
                    # A chat that is there would be listened to without end.
                    case.path_parameters["chat_id"] = "never_made"
                case.call_and_validate(base_url=url, checks=CHECKS, timeout=seconds(20))

            # What takes no input cannot be given a wrong one.
            takes_any = mode is GenerationMode.POSITIVE
            with nullcontext() if takes_any else suppress(Unsatisfiable):
                ask()
            tried.add(f"{operation.method.upper()} {operation.path}")
    assert tried == set(ROUTES)


async def test_every_route_is_described_with_its_errors_and_examples(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        document = await served.get("/openapi.json")
    described = {
        (method, path): operation
        for path, item in document["paths"].items()
        if path.startswith(OURS)
        for method, operation in item.items()
    }
    assert {f"{method.upper()} {path}" for method, path in described} == set(ROUTES)
    for (method, path), operation in described.items():
        named = [entry["name"] for entry in operation.get("parameters", [])]
        assert len(named) == len(set(named)), path
        assert {part[1:-1] for part in path.split("/") if part.startswith("{")} <= set(named)
        assert {"401", "422", "503"} <= operation["responses"].keys(), (method, path)
        body = operation.get("requestBody")
        if body is not None and not path.endswith("import"):
            assert body["content"]["application/json"]["examples"], path
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert "application/problem+json" in answer["content"], (path, status)
    assert {"limit", "cursor", "q"} <= {
        entry["name"] for entry in described["get", "/chats"]["parameters"]
    }
    stream = described["post", "/chats/{chat_id}/interactions"]["responses"]["200"]
    assert stream["content"]["text/event-stream"]["x-events"].keys() == INTERACTION_FRAMES.keys()


def patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            yield from patterns(value)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value)


async def test_patterns_are_written_in_the_words_of_javascript(tmp_path: Path) -> None:
    """To JSON Schema's expressions `\\A` and `\\z` are the letters: no id would match them."""
    async with serving(tmp_path) as served:
        found = {*patterns(await served.get("/openapi.json"))}
        found |= {*patterns(await served.get("/helper/0.1/openapi.json"))}
    assert found
    assert [one for one in found if re.search(r"\\[AzZ]|\(\?P?[<i]", one)] == []


def test_examples_of_events_are_what_their_models_say() -> None:
    for name, (model, example) in CHAT_FRAMES.items():
        assert model.model_validate(example), name


def check(frame: Frame, frames: Frames) -> None:
    model, _ = frames[frame.name]
    known = TypeAdapter(model).validate_python(frame.data)
    assert known.model_dump(mode="json", by_alias=True, exclude_unset=True) == frame.data


async def test_the_frames_that_are_sent_are_what_their_models_say(tmp_path: Path) -> None:
    send = calls(("Mail-send", {"to": "ada"}))
    count: Turn = [ReasoningDelta("hm"), *calls(("Mail-count", {"to": 2}))]
    script: list[Turn | Exception] = [
        count, says("one", pieces=2), send, says("two"), send, says("three"),
        ModelError("x", status=400), send,
    ]  # fmt: skip
    edited: dict[str, Any] = {"edited_arguments": {"to": "bob"}, "message": "m"}
    async with serving(tmp_path, script) as served:
        frames = await served.say()
        for answer in (edited, {"approved": False}):
            asked = (await served.say_until("approval_required"))[-1].data
            await served.decide(asked, **answer)
            frames += await served.follow(asked["interaction_id"])
        frames += await served.say("fails")
        asked = (await served.say_until("approval_required"))[-1].data
        frames += await served.say_until("interaction_queued", body={"on_busy": "enqueue"})
        await served.client.post(f"/chats/c/interactions/{asked['interaction_id']}/cancel")
        frames += await served.follow(asked["interaction_id"])
        await served.client.patch("/chats/c", json={"title": "Renamed"})
        chat = await served.read_until("chat_changed", "GET", "/chats/c/events?after=0")
    for frame in frames:
        check(frame, INTERACTION_FRAMES)
    for frame in chat:
        check(frame, CHAT_FRAMES)
    seen = {frame.name for frame in frames}
    # What others than the requester do is checked in `test_reviews`, the rest in `test_steering`.
    elsewhere = {
        *("vote_cast", "vote_withdrawn", "review_extended"),
        *("steered", "steering_delivered", "stopping"),
    }
    passing = {"stream_end", "thinking_delta", "tool_output"}
    assert seen >= INTERACTION_FRAMES.keys() - passing - elsewhere
