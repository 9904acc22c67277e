"""What outsiders feed is worked through in time that grows with its size, not with its square.

Each row is one path at n and at 8n. `tests/complexity/work.py` says what is compared.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from sk_agents.chats.archive import Archive, archive, restored
from sk_agents.chats.history import window_of
from sk_agents.chats.render import ChatRenderer, branch_views, chat_summary
from sk_agents.cli.logs import RepeatLimit
from sk_agents.client.sse_parser import SseParser
from sk_agents.config.strict_yaml import read_yaml
from sk_agents.engine.calls.proposals import parse_arguments
from sk_agents.engine.events import Event, within
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.log.commits import Absent
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import NewThread, ToolCall
from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.reading.live import LiveRun
from sk_agents.engine.turns import ToolSpec
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.hitl.rules import read_approvals
from sk_agents.http.strict_json import check_json
from sk_agents.llm.replies import StreamedReply
from sk_agents.llm.streamed_chat import SseReader
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.redaction import Redactor
from sk_agents.tealagents.v1alpha1.agent import Progress
from sk_agents.telemetry.logs import LineWriter
from sk_agents.testing.commits import new_commit
from sk_agents.tools.json_schema import ArgumentSchema, check_schema
from sk_agents.tools.openapi.document import parsed_document
from sk_agents.tools.openapi.operations import operations_of
from sk_agents.wire.images import checked_image
from sk_agents.wire.requests import StartInteraction
from sk_agents.wire.views import ChatPage
from tests.chats.long_chat import turns
from tests.complexity.work import MOST_CALLS, MOST_TIME, TIMES, calls_of, seconds_of
from tests.engine.builders import answered, ended, finished, log, proposed, started, tool_started
from tests.engine.heads import head_after

Work = Callable[[], object]
Path_ = Callable[[int], Work]
PATHS: dict[str, tuple[int, Path_]] = {}


def path(name: str, n: int) -> Callable[[Path_], Path_]:
    """Register what makes the work of a size; `n` takes some milliseconds."""

    def register(make: Path_) -> Path_:
        PATHS[name] = (n, make)
        return make

    return register


def numbered(events: Sequence[Event]) -> list[Event]:
    return [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1)]


def many_calls(n: int) -> list[Event]:
    """One run with so many calls, each run and finished."""
    middle = [
        event
        for number in range(n)
        for call in (f"call_{number}",)
        for event in (proposed(call), tool_started(call), finished(call))
    ]
    return log(started(), *middle, answered(), ended())


@path("a body of many values", 1_000)
def _(n: int) -> Work:
    text = json.dumps({"items": [{"a": number} for number in range(n)]})
    return lambda: check_json(text, 10**9)


@path("a body of one long text", 100_000)
def _(n: int) -> Work:
    text = json.dumps({"user_message": "x \\ \u00e9" * (n // 5)})
    adapter = TypeAdapter(StartInteraction)

    def work() -> None:
        check_json(text)
        try:
            adapter.validate_json(text)
        except ValueError:
            # Too long is looked at, too.
            return

    return work


@path("a picture of many parts", 4_000)
def _(n: int) -> Work:
    frame = b"\xff\xc0" + struct.pack(">HBHH", 8, 8, 10, 10)
    data = b"\xff\xd8" + b"\xff\xe0\x00\x04ab" * n + frame
    uri = "data:image/jpeg;base64," + base64.b64encode(data).decode()
    return lambda: checked_image(uri)


@path("a model's reply in many chunks", 500)
def _(n: int) -> Work:
    chunks = [{"choices": [{"delta": {"content": "word "}}]} for _ in range(n)]

    def work() -> None:
        reply = StreamedReply()
        for chunk in chunks:
            reply.take(chunk)
            reply.drain()

    return work


@path("a model's stream in small reads", 8_000)
def _(n: int) -> Work:
    whole = b"data: " + b"x" * n + b"\n\n"

    def work() -> None:
        reader = SseReader()
        for start in range(0, len(whole), 8):
            reader.feed(whole[start : start + 8])

    return work


@path("a stream that the client reads in small pieces", 8_000)
def _(n: int) -> Work:
    whole = b"data: " + b"x" * n + b"\n\n"

    def work() -> None:
        parser = SseParser()
        for start in range(0, len(whole), 8):
            parser.feed(whole[start : start + 8])

    return work


@path("arguments of a call", 200)
def _(n: int) -> Work:
    text = json.dumps({f"key {number}": [number, "x"] for number in range(n)})
    return lambda: canonical_json(parse_arguments(text))


@path("text that appears, read along", 500)
def _(n: int) -> Work:
    def work() -> None:
        live, seen = LiveRun("r"), dict[Any, tuple[int, int]]()
        for _ in range(n):
            live.add_text("answer", "word ")
            list(live.deltas_since(seen))

    return work


@path("text that appeared, read late", 20_000)
def _(n: int) -> Work:
    live = LiveRun("r")
    for _ in range(n):
        live.add_text("answer", "word ")

    def work() -> None:
        seen: dict[Any, tuple[int, int]] = {}
        while live.is_ahead_of(seen):
            list(live.deltas_since(seen))

    return work


@path("a long history", 100)
def _(n: int) -> Work:
    events = numbered(turns(n))
    return lambda: fold(events)


@path("a run of many calls", 50)
def _(n: int) -> Work:
    events = many_calls(n)
    return lambda: fold(events)


@path("a long log as frames", 50)
def _(n: int) -> Work:
    events = many_calls(n)
    return lambda: ChatRenderer("c").frames(events)


@path("pages of a long log", 300)
def _(n: int) -> Work:
    events = numbered(turns(n))

    def work() -> None:
        start = 0
        while start < len(events):
            start += len(within(events[start : start + 500], 64 * 1024))

    return work


@path("a part of a long chat", 100)
def _(n: int) -> Work:
    events = numbered(turns(n))
    return lambda: window_of(events)


@path("branches", 100)
def _(n: int) -> Work:
    state = fold(numbered(turns(n)))
    return lambda: list(branch_views(state))


@path("a chat taken away and brought back", 40)
def _(n: int) -> Work:
    events = many_calls(n)
    head, state = head_after(started()), fold(events)

    async def taken_away() -> bytes:
        async def pages() -> AsyncIterator[Sequence[Event]]:
            for start in range(0, len(events), 100):
                yield events[start : start + 100]

        return b"".join([piece async for piece in archive(head, state, pages())])

    def work() -> None:
        document = Archive.model_validate_json(asyncio.run(taken_away()))
        restored(document, lambda agent: True)

    return work


@path("a page of the list of many chats", 400)
def _(n: int) -> Work:
    store = MemoryStore()

    async def fill() -> None:
        for number in range(n):
            new = NewThread("ada", wire_id=f"c{number}", surface="chats")
            await store.commit(
                new_commit(f"t{number}", Absent(new), started(), answered(), ended())
            )

    async def page(text: str | None) -> bytes:
        found = await store.threads(ThreadQuery("ada", surface="chats", text=text, limit=100))
        chats = [chat_summary(thread) for thread in found.threads]
        return ChatPage(chats=chats, next=found.after).model_dump_json().encode()

    asyncio.run(fill())
    return lambda: [asyncio.run(page(text)) for text in (None, "hello", "nothing has this")]


@path("a request of Teal's API with many calls", 50)
def _(n: int) -> Work:
    events = many_calls(n)

    def work() -> None:
        progress = Progress()
        for event in events:
            progress.take(event)

    return work


SPEC = ToolSpec("Mail-send", "Sends.", {"type": "object", "properties": {"to": {}}})


@path("rules of an agent file", 60)
def _(n: int) -> Work:
    rule = {"tool": "Mail-*", "when": {"to": {"matches": "*@x.example"}}, "then": "deny"}
    rules = read_approvals({"rules": [rule] * n}, path=Path("x.yaml"))
    policy = ApprovalPolicy(rules)
    call = ToolCall(
        id="c", plugin_name="Mail", function_name="send", arguments={"to": "a@y.example"}
    )
    return lambda: policy.verdict(call, SPEC)


@path("a value that a rule looks at", 500)
def _(n: int) -> Work:
    rule = {"tool": "Mail-*", "when": {"to": {"in": [["a"] * 10]}}, "then": "deny"}
    policy = ApprovalPolicy(read_approvals({"rules": [rule]}, path=Path("x.yaml")))
    call = ToolCall(
        id="c",
        plugin_name="Mail",
        function_name="send",
        arguments={"to": [f"a{number}" for number in range(n)]},
    )
    return lambda: policy.verdict(call, SPEC)


@path("a schema that an MCP server offers", 60)
def _(n: int) -> Work:
    properties = {f"p{number}": {"type": "string"} for number in range(n)}
    schema = {"type": "object", "properties": properties}
    values = dict.fromkeys(properties, "x")

    def work() -> None:
        check_schema(schema)
        ArgumentSchema(schema).check(values)

    return work


@path("an OpenAPI document", 20)
def _(n: int) -> Work:
    answer = {"200": {"description": "ok"}}
    paths = {
        f"/things/{number}": {"get": {"operationId": f"get{number}", "responses": answer}}
        for number in range(n)
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "x", "version": "1"},
        "servers": [{"url": "http://localhost"}],
        "paths": paths,
    }
    data = json.dumps(document).encode()
    return lambda: list(operations_of(parsed_document(data, "x"), server_url=None))


@path("a log line", 10_000)
def _(n: int) -> Work:
    redactor = Redactor.of(["a-secret-value", "another-one"])
    line = "bearer   " * (n // 9) + "!"
    return lambda: redactor.text(line)


@path("many log lines", 500)
def _(n: int) -> Work:
    def work() -> None:
        repeats, writer = RepeatLimit(), LineWriter(io.StringIO(), max_bytes=1_000)
        for number in range(n):
            repeats.admit(("a", 30, f"message {number % 2_000}"))
            writer.put("x" * 100)
        writer.close()

    return work


@pytest.mark.parametrize("name", PATHS)
def test_eight_times_as_much_is_at_most_linearly_more_work(name: str) -> None:
    n, make = PATHS[name]
    make(n)()  # What is built with the first use is not counted.
    assert calls_of(make(TIMES * n)) <= MOST_CALLS * calls_of(make(n)) + 100
    small, large = (seconds_of(lambda size=size: make(size)) for size in (n, TIMES * n))  # type: ignore[misc]  # a default binds it
    assert large <= MOST_TIME * max(small, 0.0005)


@pytest.mark.parametrize("kind", ["keys", "list", "depth of aliases"])
def test_a_yaml_file_is_at_most_linear(tmp_path: Path, kind: str) -> None:
    def make(n: int) -> Work:
        file = tmp_path / f"{kind}-{n}.yaml"
        lines = {
            "keys": "".join(f"key{number}: value\n" for number in range(n)),
            "list": "".join(f"- {{a: {number}}}\n" for number in range(n)),
            "depth of aliases": "base: &b {a: 1}\n" + "".join(f"k{x}: *b\n" for x in range(n)),
        }
        file.write_text(lines[kind])
        return lambda: read_yaml(file)

    make(300)()
    assert calls_of(make(TIMES * 300)) <= MOST_CALLS * calls_of(make(300)) + 100
    assert seconds_of(lambda: make(TIMES * 300)) <= MOST_TIME * seconds_of(lambda: make(300))
