"""What every server logs of runs and of what tools do in them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sk_agents.cli.logs import EVERY_LINE, MAX_REPEATS, QueuedHandler, TextFormatter, configure_logs
from sk_agents.exceptions import ModelUnavailable
from sk_agents.redaction import Redactor
from sk_agents.telemetry import run_logs
from sk_agents.telemetry.logs import logged_with
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import first, serving

LOOK = calls(("Mail-look", {"what": "canary"}))
SEND = calls(("Mail-send", {"to": "canary"}))


def facts(record: logging.LogRecord, *names: str) -> dict[str, object]:
    return {name: getattr(record, name, None) for name in names}


async def test_every_execution_of_a_tool_is_one_line_without_its_contents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=run_logs.__name__)
    async with serving(tmp_path, [LOOK, says("ok"), SEND, says("ok"), SEND, says("ok")]) as served:
        await served.say()
        asked = first(await served.say_until("approval_required"), "approval_required")
        await served.decide(asked)
        await served.follow(asked["interaction_id"])
        refused = first(await served.say_until("approval_required"), "approval_required")
        await served.decide(refused, approved=False)
        await served.follow(refused["interaction_id"])
    lines = [one for one in caplog.records if one.name == run_logs.__name__]
    names = ("user_id", "chat_id", "agent", "tool", "outcome")
    assert [facts(line, *names) for line in lines] == [
        {
            "user_id": "dummyuser",
            "chat_id": "c",
            "agent": "helper",
            "tool": tool,
            "outcome": "ok",
        }
        for tool in ("Mail-look", "Mail-send")
    ]
    assert lines[1].__dict__["digest"] == asked["digest"]
    assert lines[1].__dict__["run_id"] == asked["interaction_id"]
    assert lines[1].__dict__["seconds"] >= 0
    assert "canary" not in "".join(str(vars(line)) for line in lines)


async def test_error_of_a_run_has_the_correlation_id_of_the_request_that_asked_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, [ModelUnavailable()] * 20) as served:
        body = {"user_message": "hello"}
        async with served.client.stream("POST", "/chats/c/interactions", json=body) as answer:
            asked = answer.headers["x-correlation-id"]
            text = (await answer.aread()).decode()
    assert f'"correlation_id":"{asked}"' in text.replace('": "', '":"')
    failed = next(one for one in caplog.records if one.getMessage() == "run failed")
    assert failed.__dict__["correlation_id"] == asked


async def test_line_of_a_failed_run_says_whose_it_was_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, [ModelUnavailable()] * 20) as served:
        body = {"user_message": "canary"}
        await served.client.post("/chats/c/interactions", json=body)
    (line,) = (one for one in caplog.records if one.getMessage() == "run failed")
    assert facts(line, "user_id", "agent", "code", "reason") == {
        "user_id": "dummyuser",
        "agent": "helper",
        "code": "llm_unavailable",
        "reason": "the provider answered 500 (scripted)",
    }
    assert "canary" not in str(vars(line))


def test_text_line_has_the_ids_of_its_run_and_request_once() -> None:
    formatter = TextFormatter(Redactor.of(()), with_texts=False)
    record = logging.makeLogRecord({"msg": "said", "run_id": "r1"})
    with logged_with(chat_id="c1", run_id="r1", correlation_id="k1"):
        line = formatter.format(record)
    assert line.endswith("said run_id='r1' chat_id='c1' correlation_id='k1'")


def test_lines_that_someone_must_account_for_are_never_left_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = logging.getLogger().handlers[:]
    handler: QueuedHandler = configure_logs("info", "json")
    try:
        (name,) = EVERY_LINE
        for number in range(2 * MAX_REPEATS):
            logging.getLogger(name).info("tool executed", extra={"number": number})
            logging.getLogger("another").info("repeated", extra={"number": number})
        handler.flush()
    finally:
        handler.close()
        logging.getLogger().handlers[:] = before
    written = [json.loads(line)["logger"] for line in capfd.readouterr().err.splitlines()]
    assert written.count(name) == 2 * MAX_REPEATS
    assert written.count("another") == MAX_REPEATS
