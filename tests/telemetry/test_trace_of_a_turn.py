"""One trace tells a whole turn: request, run, model, tool, and the wait for a person."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import CallRequested, TextDelta, TurnFinished
from tests.requirements import requirement
from tests.surfaces.teal_server import P, Script, message, place, server, serving
from tests.telemetry.collector import CLIENT, Collector, ReceivedSpan

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
MAIL = CallRequested("call_1", "Mail-send", '{"to": "bob", "text": "canary-argument"}')
SCRIPT: Script = [
    [MAIL, TurnFinished("tool_calls", Usage(prompt_tokens=11, completion_tokens=3))],
    [
        TextDelta("canary-answer"),
        TurnFinished("stop", Usage(prompt_tokens=20, completion_tokens=5)),
    ],
]


def sending_to(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"telemetry_enabled": True, "otel_endpoint": collector.url, **more}


def only(spans: list[ReceivedSpan]) -> ReceivedSpan:
    assert len(spans) == 1, [span.name for span in spans]
    return spans[0]


async def paused_and_approved(folder: Path, collector: Collector, **more: Any) -> dict[str, Any]:
    """A turn with a tool that a person allows, in the trace of its caller."""
    settings = sending_to(collector, **more)
    async with server(folder, SCRIPT, settings=settings) as running:
        asked = await running.post(P, message("canary-question"), traceparent=TRACEPARENT)
        assert asked.json()["status"] == "Paused", asked.text
        path = f"{P}/resume/{asked.json()['request_id']}"
        done = await running.post(path, {"action": "approve"})
        assert done.json()["status"] == "Completed", done.text
        assert [headers["traceparent"][3:35] for headers in running.place.model.headers] == [
            TRACE,
            TRACE,
        ]
    reply: dict[str, Any] = done.json()
    return reply


@requirement("S000-request-traceability", "S000-app-telemetry")
async def test_turn_with_a_tool_and_an_approval_is_one_trace_under_its_caller(
    tmp_path: Path,
) -> None:
    async with Collector() as collector:
        reply = await paused_and_approved(tmp_path, collector)
    spans = {span.span_id: span for span in collector.spans}
    run = only(collector.named("invoke_agent"))
    asking = spans[run.parent_id]
    assert (asking.name, asking.parent_id) == (f"POST {P}", CALLER)
    models = collector.named("chat x")
    tool = only(collector.named("execute_tool Mail-send"))
    wait = only(collector.named("approval tool"))
    assert len(models) == 2
    parts = [*models, tool, wait]
    assert {span.parent_id for span in parts} == {run.span_id}
    assert {span.trace_id for span in [asking, run, *parts]} == {TRACE}
    assert models[0].start < wait.start < tool.start < models[1].start
    assert run.start <= models[0].start and run.end >= models[1].end - 2_000_000
    ids = {
        "session.id": reply["session_id"],
        "teal.thread.id": reply["task_id"],
        "teal.run.id": reply["request_id"],
    }
    for span in [asking, run, *parts]:
        assert ids.items() <= span.attributes.items(), span.name


async def test_deciding_request_is_linked_to_the_wait_it_ended(tmp_path: Path) -> None:
    async with Collector() as collector:
        await paused_and_approved(tmp_path, collector)
    wait = only(collector.named("approval tool"))
    deciding = only(collector.named(f"POST {P}/resume/{{request_id}}"))
    assert wait.links == (deciding.span_id,)
    assert deciding.trace_id != TRACE


async def test_model_and_tool_spans_carry_the_conventions_attributes(tmp_path: Path) -> None:
    async with Collector() as collector:
        await paused_and_approved(tmp_path, collector)
    model = collector.named("chat x")[0]
    assert model.kind == CLIENT
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "x",
        "gen_ai.response.model": "x",
        "server.address": "127.0.0.1",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("tool_calls",),
    }.items() <= model.attributes.items()
    tool = only(collector.named("execute_tool"))
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "Mail-send",
        "teal.outcome": "ok",
    }.items() <= tool.attributes.items()
    assert tool.attributes["gen_ai.tool.call.id"]
    run = only(collector.named("invoke_agent"))
    assert run.attributes["gen_ai.usage.input_tokens"] == 31
    assert run.attributes["teal.run.status"] == "completed"


async def test_every_request_has_exactly_one_server_span(tmp_path: Path) -> None:
    async with Collector() as collector:
        await paused_and_approved(tmp_path, collector)
    assert sorted(span.name for span in collector.servers) == [
        f"POST {P}",
        f"POST {P}/resume/{{request_id}}",
    ]


async def test_run_continued_after_a_restart_stays_in_its_trace(tmp_path: Path) -> None:
    async with Collector() as collector, place(tmp_path, SCRIPT) as at:
        at.settings = sending_to(collector)
        async with serving(at) as first:
            asked = await first.post(P, message(), traceparent=TRACEPARENT)
        async with serving(at) as second:
            path = f"{P}/resume/{asked.json()['request_id']}"
            done = await second.post(path, {"action": "approve"})
            assert done.json()["status"] == "Completed", done.text
    run = only(collector.named("invoke_agent"))
    parts = [*collector.named("chat"), *collector.named("execute"), *collector.named("approval")]
    assert len(parts) == 4
    assert {span.trace_id for span in parts} == {TRACE} == {run.trace_id}
    assert {span.parent_id for span in parts} == {run.span_id}
    instances = {resource["service.instance.id"] for resource in collector.resources}
    assert len(instances) == 2


async def test_failed_run_is_told_by_its_code_alone(tmp_path: Path) -> None:
    async with Collector() as collector:
        settings = sending_to(collector)
        failure = RuntimeError("canary-failure")
        async with server(tmp_path, [failure] * 9, settings=settings) as running:
            await running.post(P, message())
    run = only(collector.named("invoke_agent"))
    assert run.is_error
    assert run.attributes["error.type"] == "llm_unavailable"
    assert all(span.is_error for span in collector.named("chat"))
    assert b"canary" not in collector.raw


async def test_no_secret_and_nothing_that_was_said_leaves_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CANARY_KEY", "sk-canary-key-123456")
    more = "api_key_env: CANARY_KEY"
    caplog.set_level(logging.DEBUG)
    async with Collector() as collector:
        settings = sending_to(collector, metrics_enabled=True)
        async with server(tmp_path, SCRIPT, settings=settings, more=more) as running:
            headers = {"traceparent": TRACEPARENT, "X_Custom": "canary-header"}
            asked = await running.post(P, message("canary-question"), "canary-user", **headers)
            path = f"{P}/resume/{asked.json()['request_id']}"
            await running.post(path, {"action": "approve"}, "canary-user")
            sent = [each["Authorization"] for each in running.place.model.headers]
            assert sent == ["Bearer sk-canary-key-123456"] * 2
            page = (await running.get("/metrics")).text
    assert len(collector.spans) >= 7
    assert collector.metrics
    assert b"canary" not in collector.raw
    assert "canary" not in page


async def test_metrics_of_a_turn_are_sent_and_shown_alike(tmp_path: Path) -> None:
    async with Collector() as collector:
        settings = sending_to(collector, metrics_enabled=True)
        async with server(tmp_path, SCRIPT, settings=settings) as running:
            asked = await running.post(P, message())
            path = f"{P}/resume/{asked.json()['request_id']}"
            await running.post(path, {"action": "approve"})
            page = (await running.get("/metrics")).text
    decided = 'teal_approval_decided_by="human",teal_outcome="approved"'
    for line in (
        f"teal_approvals_decided_total{{{decided}}} 1.0",
        'teal_tool_results_total{teal_outcome="ok"} 1.0',
        "teal_recoveries_total 0.0",
    ):
        assert line in page.splitlines()
    assert 'teal_store_commits_total{store="main"}' in page
    sent = collector.metrics
    tokens = sent["gen_ai.client.token.usage"].histogram.data_points
    assert sum(point.sum for point in tokens) == 11 + 3 + 20 + 5
    assert sum(point.count for point in sent["teal.run.duration"].histogram.data_points) == 1
    assert sent["teal.store.commits"].sum.data_points[0].as_int > 0
