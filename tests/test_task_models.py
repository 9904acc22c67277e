"""The models of a task."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from sk_agents.ska_types import AgentTask, AgentTaskItem, MultiModalItem
from tests.requirements import requirement
from tests.task_builders import NOW, item, task


@requirement("S001-agenttaskitem")
def test_item_has_the_fields_of_the_seed_and_two_roles() -> None:
    assert list(AgentTaskItem.model_fields) == ["task_id", "role", "item", "request_id", "updated"]
    assert item("x", role="assistant").role == "assistant"
    with pytest.raises(ValidationError):
        item("x", role="system")
    with pytest.raises(ValidationError):
        MultiModalItem(content_type="video", content="x")  # type: ignore[arg-type]  # wrong on purpose


@requirement("S001-agenttask")
def test_task_has_the_fields_of_the_seed_and_starts_as_running() -> None:
    made = task()
    assert list(made.model_dump())[:7] == [
        "task_id",
        "session_id",
        "user_id",
        "items",
        "created_at",
        "last_updated_at",
        "status",
    ]
    assert (made.status, made.metadata, made.expires_at) == ("Running", {}, None)


@requirement("S001-agenttask-status")
def test_task_takes_five_statuses_and_no_other() -> None:
    for status in ("Running", "Paused", "Completed", "Failed", "Canceled"):
        assert task(status=status).status == status
    with pytest.raises(ValidationError):
        task(status="Finished")


@requirement("S001-agenttask-last-updated")
def test_last_update_is_read_by_both_names_and_written_by_the_seeds() -> None:
    fields = task().model_dump(mode="json")
    fields["last_updated"] = fields.pop("last_updated_at")
    made = AgentTask.model_validate(fields)
    assert made == task()
    assert "last_updated_at" in made.model_dump(by_alias=True)
    assert "last_updated" not in made.model_dump(by_alias=True)


def test_times_are_aware_and_in_utc() -> None:
    naive, eastern = datetime(2030, 1, 1), NOW.astimezone(timezone(timedelta(hours=5)))
    made = task(created_at=naive, last_updated_at=eastern)
    assert (made.created_at, made.last_updated_at) == (NOW, NOW)
    assert made.last_updated_at.tzinfo is UTC
