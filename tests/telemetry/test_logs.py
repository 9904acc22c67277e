"""Log lines: JSON that machines read, with the ids of request and run, and no secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from sk_agents.cli.logs import configure_logs
from sk_agents.config.settings import Settings
from sk_agents.redaction import HIDDEN, Redactor, secret_values
from tests.patience import seconds
from tests.requirements import requirement
from tests.telemetry.collector import Collector
from tests.telemetry.stories import RUN, Story, sending, telemetry_for
from tests.telemetry.test_requests import CALLER, TRACE

Captured = pytest.CaptureFixture[str]
logger = logging.getLogger("sk_agents.test")


def written(capsys: Captured) -> str:
    """All that was logged, once it is there."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return capsys.readouterr().err


def entries(capsys: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(capsys).splitlines()]


@requirement("S000-request-traceability", "S004-13-logging")
def test_json_line_of_a_run_carries_its_ids(capsys: Captured) -> None:
    configure_logs("info", "json")
    telemetry = telemetry_for(log_format="json")
    story = Story(telemetry)
    story.begin()
    with telemetry.observer.driving(story.thread, story.state):
        logger.info("run boundary", extra={"status": "started", "attempt": 2})
    [entry] = entries(capsys)
    assert entry["message"] == "run boundary"
    assert entry["level"] == "info"
    assert entry["logger"] == "sk_agents.test"
    assert (entry["thread_id"], entry["run_id"]) == ("thread-1", RUN)
    assert (entry["status"], entry["attempt"]) == ("started", 2)
    assert entry["time"].endswith("Z")


@requirement("S000-request-traceability", "S004-13-logging")
def test_json_line_of_a_request_carries_correlation_and_trace_id(
    capsys: Captured,
) -> None:
    configure_logs("info", "json")
    requests = telemetry_for(log_format="json").requests
    trace = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    with requests.served("GET", trace, "correlation-1"):
        logger.info("here")
    logger.info("there")
    here, there = entries(capsys)
    assert (here["correlation_id"], here["trace_id"]) == ("correlation-1", TRACE)
    assert "correlation_id" not in there and "trace_id" not in there


def test_text_stays_for_people(capsys: Captured) -> None:
    configure_logs("info")
    logger.info("the store is open", extra={"store": "memory:"})
    line = written(capsys)
    assert line.endswith("INFO sk_agents.test: the store is open store='memory:'\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_are_not_written(capsys: Captured, log_format: Any) -> None:
    configure_logs("info", log_format, secrets=["sk-canary-value"])
    logger.info("asked with sk-canary-value", extra={"authorization": "Bearer canary-token"})
    logger.info("sent %s", {"Authorization": "Bearer canary-token"})
    logger.info("facts", extra={"api_key": "canary", "http.headers": ["canary"], "code": "ok"})
    reason = "canary in an error's text"
    try:
        raise ValueError(reason)
    except ValueError:
        logger.exception("failed")
    text = written(capsys)
    assert "canary" not in text
    assert text.count(HIDDEN) >= 4
    assert "ValueError" in text and "test_logs.py" in text


def test_text_of_an_error_is_there_when_looking_for_faults(
    capsys: Captured,
) -> None:
    configure_logs("debug", "json")
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("failed")
    [entry] = entries(capsys)
    assert entry["exception_text"] == "why"


def test_what_cannot_be_json_is_written_as_text(capsys: Captured) -> None:
    configure_logs("info", "json")
    logger.info("odd", extra={"path": {1}, "none": None, "size": float("1.5")})
    [entry] = entries(capsys)
    assert (entry["path"], entry["none"], entry["size"]) == ("{1}", None, 1.5)


def test_secrets_are_found_in_settings_and_environment() -> None:
    settings = Settings(api_key=SecretStr("from-settings"), redis_pwd=SecretStr("redis-secret"))
    environ = {
        "GROQ_API_KEY": "from-groq",
        "OTEL_EXPORTER_OTLP_HEADERS": "x=collector",
        "MY_TOKEN": "a-token",
        "HOME": "a-home",
        "KEYBOARD": "a-layout",
    }
    found = secret_values(settings, environ)
    assert {"from-settings", "redis-secret", "from-groq", "x=collector", "a-token"} == found


def test_password_of_a_proxy_is_a_secret_and_the_shells_folder_is_none() -> None:
    environ = {
        "PWD": "/srv/agents",
        "DB_PWD": "hunter22",
        "HTTPS_PROXY": "http://user:p%40ssword@proxy.example:3128",
        "all_proxy": "user:secretive@proxy",
        "HTTP_PROXY": "http://proxy.example:3128",
    }
    assert secret_values(Settings(), environ) == {
        "hunter22",
        "p%40ssword",
        "p@ssword",
        "secretive",
    }


def test_longer_secret_is_hidden_whole() -> None:
    assert Redactor.of(["abcdef", "abcdefghi"]).text("<abcdefghi>") == f"<{HIDDEN}>"


def test_short_values_do_not_hide_words() -> None:
    assert Redactor.of(["a", "info", ""]).text("info: a bee") == "info: a bee"


@requirement("S000-request-traceability")
async def test_logs_are_sent_with_their_ids_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary-value")
    logging.getLogger().setLevel(logging.INFO)
    async with Collector() as collector:
        async with sending(collector) as telemetry:
            story = Story(telemetry)
            story.begin()
            with telemetry.observer.driving(story.thread, story.state):
                logger.info("run boundary", extra={"reason": "sk-canary-value"})
                try:
                    raise ValueError("canary")
                except ValueError:
                    logger.exception("failed")
            story.end()
        logger.info("too late")
    [run] = collector.named("invoke_agent")
    boundary, failed = collector.logs
    assert boundary.body == "run boundary"
    assert boundary.attributes["run_id"] == RUN
    assert boundary.attributes["reason"] == HIDDEN
    assert boundary.trace_id == run.trace_id
    assert failed.attributes["exception.type"] == "ValueError"
    assert b"canary" not in collector.raw


async def test_logs_that_are_switched_off_are_not_sent() -> None:
    logging.getLogger().setLevel(logging.INFO)
    async with Collector() as collector:
        async with sending(collector, logging_enabled=False):
            logger.info("kept here")
    assert collector.logs == []


def test_text_logs_import_no_sdk() -> None:
    code = (
        "import sys, sk_agents.cli.logs\n"
        "assert not any(name.startswith('opentelemetry.sdk') for name in sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=dict(os.environ), timeout=seconds(60)
    )
