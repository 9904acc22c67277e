"""What the engine tells becomes spans, to a real collector; the engine itself is not here."""

import asyncio

import pytest

from sk_agents.engine.events import Failed, RunEnded
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import ModelRateLimited
from sk_agents.telemetry.exporters import http_exporters
from sk_agents.telemetry.otlp import Sending
from sk_agents.telemetry.spans import current_traceparent
from tests.patience import seconds
from tests.telemetry.collector import Collector
from tests.telemetry.stories import AGENT, CALL, NOON, Story, sending


async def told(tell: str = "tell_whole") -> Collector:
    async with Collector() as collector:
        async with sending(collector) as telemetry:
            getattr(Story(telemetry), tell)()
    return collector


async def test_whole_run_is_one_tree() -> None:
    collector = await told()
    [run] = collector.named("invoke_agent")
    parts = [span for span in collector.spans if span is not run]
    assert sorted(span.name for span in parts) == [
        "approval tool",
        "chat llama",
        "chat llama",
        "execute_tool Mail-send",
    ]
    assert {span.parent_id for span in parts} == {run.span_id}
    assert {span.trace_id for span in parts} == {run.trace_id}


async def test_approval_wait_lasts_from_the_question_to_the_decision() -> None:
    collector = await told()
    [wait] = collector.named("approval")
    assert wait.end - wait.start == 60 * 10**9
    assert wait.attributes["teal.outcome"] == "approved"
    assert wait.attributes["teal.approval.decided_by"] == "human"


async def test_run_span_lasts_as_long_as_the_log_says() -> None:
    collector = await told()
    [run] = collector.named("invoke_agent")
    assert run.start == int((NOON.timestamp() + 1) * 10**9)
    assert run.end - run.start == 64 * 10**9


async def test_two_processes_hang_their_parts_under_the_same_run() -> None:
    async with Collector() as collector:
        async with sending(collector) as first:
            story = Story(first)
            story.begin()
            with first.observer.driving(story.thread, story.state):
                story.ask_model()
        async with sending(collector) as second:
            story.observer = second.observer
            with second.observer.driving(story.thread, story.state):
                story.ask_model()
                story.end()
    [run] = collector.named("invoke_agent")
    chats = collector.named("chat")
    assert [chat.parent_id for chat in chats] == [run.span_id] * 2
    assert {chat.trace_id for chat in chats} == {run.trace_id}


async def test_model_error_is_told_by_its_code() -> None:
    async with Collector() as collector, sending(collector) as telemetry:
        story = Story(telemetry)
        story.begin()
        with pytest.raises(ModelRateLimited):
            with telemetry.observer.model_call(story.thread, story.run, AGENT, 1):
                raise ModelRateLimited("canary: the key sk-1 is used too often")
        await telemetry.flush()
        [chat] = collector.named("chat")
    assert chat.is_error
    assert chat.attributes["error.type"] == ModelRateLimited.code
    assert b"canary" not in collector.raw


async def test_cancelled_tool_is_told_as_cancelled() -> None:
    async with Collector() as collector, sending(collector) as telemetry:
        story = Story(telemetry)
        story.begin()
        with pytest.raises(asyncio.CancelledError):
            with telemetry.observer.tool_call(story.thread, story.run, AGENT, CALL):
                raise asyncio.CancelledError
        await telemetry.flush()
        [tool] = collector.named("execute_tool")
    assert tool.attributes["error.type"] == "cancelled"


async def test_failed_run_carries_the_code_and_not_the_text() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry:
            story = Story(telemetry)
            story.begin()
            story.commit(
                Failed(code="max_rounds", message="canary"), RunEnded(status=RunStatus.FAILED)
            )
    [run] = collector.named("invoke_agent")
    assert run.is_error
    assert run.attributes["error.type"] == "max_rounds"
    assert b"canary" not in collector.raw


async def test_nothing_that_was_said_or_done_and_no_user_is_sent() -> None:
    collector = await told()
    assert len(collector.spans) == 5
    assert b"canary" not in collector.raw


async def test_calls_out_of_a_run_carry_its_trace_while_spans_are_sent() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry:
            story = Story(telemetry)
            story.begin()
            with telemetry.observer.driving(story.thread, story.state):
                with telemetry.observer.model_call(story.thread, story.run, AGENT, 1):
                    sent = current_traceparent()
            assert current_traceparent() is None
    [chat] = collector.named("chat")
    assert sent is not None
    assert sent.split("-")[1:3] == [chat.trace_id, chat.span_id]


async def test_collector_that_is_gone_costs_only_what_was_to_be_sent() -> None:
    async with Collector() as collector:
        url_of_nobody = collector.url
    gone = Collector(url=url_of_nobody)
    async with asyncio.timeout(seconds(30)):
        async with sending(gone) as telemetry:
            Story(telemetry).tell_whole()
    assert gone.spans == []


async def test_collector_that_never_answers_does_not_keep_a_server_from_stopping() -> None:
    silent, asked = asyncio.Event(), asyncio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await silent.wait()
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sending_there = Sending(http_exporters(f"http://127.0.0.1:{port}", metrics=True, logs=True))
    sending_there.tracer.start_span("lost").end()
    async with asyncio.timeout(seconds(30)):
        await asyncio.to_thread(sending_there.close, 0.3)
        await asked.wait()
    assert not silent.is_set()
    silent.set()
    server.close()
    await server.wait_closed()
