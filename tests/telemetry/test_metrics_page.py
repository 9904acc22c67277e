"""The page at `/metrics`: Prometheus can read it, and it does not grow with users and ids."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import httpx
from prometheus_client.parser import text_string_to_metric_families

from sk_agents.engine.models import ToolCall
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.telemetry.telemetry import Telemetry
from tests.telemetry.collector import Collector
from tests.telemetry.stories import AGENT, Story, sending, telemetry_for
from tests.telemetry.test_requests import application, client

Series = set[tuple[str, frozenset[tuple[str, str]]]]


def parsed(telemetry: Telemetry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    assert telemetry.page is not None
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(telemetry.page().decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    return parsed(telemetry)[(name, frozenset(labels.items()))]


def labels_of(telemetry: Telemetry) -> set[str]:
    return {text for _, labels in parsed(telemetry) for _, text in labels}


def test_run_is_counted_by_status_model_tool_and_decision() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    Story(telemetry).tell_whole()
    status = {"gen_ai_agent_name": AGENT, "teal_run_status": "completed"}
    assert value(telemetry, "teal_run_duration_seconds_count", **status) == 1
    assert value(telemetry, "teal_run_duration_seconds_sum", **status) == 64
    assert value(telemetry, "teal_runs_started_total", gen_ai_agent_name=AGENT) == 1
    model = {"gen_ai_provider_name": "groq", "gen_ai_request_model": "llama"}
    tokens = {"gen_ai_token_type": "input", **model}
    assert value(telemetry, "teal_model_tokens_sum", **tokens) == 14
    calls = {"gen_ai_operation_name": "chat", "error_type": "", **model}
    assert value(telemetry, "teal_model_call_duration_seconds_count", **calls) == 2
    assert value(telemetry, "teal_tool_results_total", teal_outcome="ok") == 1
    assert value(telemetry, "teal_approvals_requested_total", teal_approval_kind="tool") == 1
    decided = {"teal_outcome": "approved", "teal_approval_decided_by": "human"}
    assert value(telemetry, "teal_approvals_decided_total", **decided) == 1
    assert value(telemetry, "teal_approval_wait_seconds_sum", teal_outcome="approved") == 60


def test_runs_driven_now_and_what_waits_behind_them_are_shown() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    story = Story(telemetry)
    story.begin()
    with telemetry.observer.driving(story.thread, story.state):
        story.state.queue.extend(("later", "last"))
        assert value(telemetry, "teal_runs_driven") == 1
        assert value(telemetry, "teal_runs_queued") == 2
    assert value(telemetry, "teal_runs_driven") == 0


async def test_requests_are_counted_by_route_and_status() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    async with telemetry, client(telemetry) as http:
        for path in ("/plain/a", "/plain/b", "/included/things/none", "/nowhere"):
            await http.get(path)
    name = "teal_http_request_duration_seconds_count"
    get = {"http_request_method": "GET"}
    plain = {"http_route": "/plain/{name}", "http_response_status_code": "200", **get}
    missing = {"http_route": "/included/things/{thing_id}", "http_response_status_code": "404"}
    lost = {"http_route": "none", "http_response_status_code": "404"}
    assert value(telemetry, name, **plain) == 2
    assert value(telemetry, name, **missing, **get) == 1
    assert value(telemetry, name, **lost, **get) == 1


async def test_series_do_not_grow_with_paths_methods_runs_and_users() -> None:
    telemetry = telemetry_for(metrics_enabled=True)

    async def live() -> None:
        run_id = str(uuid4())
        story = Story(telemetry, run_id)
        story.thread = story.thread._replace(thread_id=run_id, user_id=run_id, session_id=run_id)
        story.tell_whole()
        for path in (f"/plain/{run_id}", f"/{run_id}"):
            await http.get(path)
        await http.request(f"X{run_id[:8]}", "/plain/a")

    transport = httpx.ASGITransport(application(telemetry))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        await live()
        before = parsed(telemetry).keys()
        for _ in range(20):
            await live()
    assert parsed(telemetry).keys() == before


def test_tools_beyond_a_bound_share_one_name() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    story = Story(telemetry)
    story.begin()
    for number in range(400):
        call = ToolCall(id="1", plugin_name="P", function_name=f"f{number}", arguments={})
        with telemetry.observer.tool_call(story.thread, story.run, AGENT, call) as ended:
            ended("ok")
    tools = {text for text in labels_of(telemetry) if text == "other" or text.startswith("P-")}
    assert len(tools) == 257
    assert "other" in tools


async def test_store_numbers_are_on_the_page(tmp_path: Path) -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    async with SqliteStore(tmp_path / "db") as store, MemoryStore() as tasks:
        telemetry.watch_store("main", store)
        telemetry.watch_store("tasks", tasks)
        assert value(telemetry, "teal_store_commits_total", store="main") == 0
        assert value(telemetry, "teal_store_commit_groups_total", store="main") == 0
        assert value(telemetry, "teal_store_threads", store="tasks") == 0
    assert value(telemetry, "teal_store_commits_total", store="main") == 0


def test_recovery_is_counted() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    telemetry.observer.recovered()
    assert value(telemetry, "teal_recoveries_total") == 1


async def test_metrics_that_are_switched_off_are_neither_sent_nor_shown() -> None:
    async with Collector() as collector:
        async with sending(collector, metrics_enabled=False) as telemetry:
            Story(telemetry).tell_whole()
            assert telemetry.page is None
    assert len(collector.spans) == 5
    assert collector.metrics == {}


async def test_metrics_are_sent_with_the_traces_unless_switched_off() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry:
            Story(telemetry).tell_whole()
            assert telemetry.page is None
    assert {"gen_ai.client.operation.duration", "teal.runs.driven"} <= collector.metrics.keys()
    [point] = collector.metrics["teal.run.duration"].histogram.data_points
    assert (point.count, point.sum) == (1, 64.0)
