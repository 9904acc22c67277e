"""Events are facts: frozen, dated, numbered, and readable by newer and older versions."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from pydantic import TypeAdapter, ValidationError

from sk_agents.engine.events import (
    EVENT_TYPES,
    ApprovalRequested,
    Event,
    ImportedItem,
    KnownEvent,
    LogEvent,
    RunStarted,
    Unrecognised,
    event_from,
    numbered,
)
from sk_agents.engine.log.commits import Absent, Commit, admit
from sk_agents.engine.models import NewThread, Part, UserInput
from tests.engine.builders import imported, log, moment, one_of_each, started
from tests.engine.histories import histories, legal_logs
from tests.requirements import requirement

NAIVE = datetime(2030, 1, 1)
IN_DELHI = datetime(2030, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))


def test_every_type_of_the_union_has_its_own_name() -> None:
    assert len(EVENT_TYPES) == len(get_args(KnownEvent))
    assert {event.type for event in one_of_each()} == EVENT_TYPES


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_event_survives_a_trip_through_json(event: Event) -> None:
    assert event_from(event.model_dump(mode="json")) == event


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_event_cannot_be_changed(event: Event) -> None:
    with pytest.raises(ValidationError):
        event.__setattr__("seq", 7)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_unknown_field_of_a_newer_writer_is_ignored(event: Event) -> None:
    assert event_from({**event.model_dump(), "invented_later": 1}) == event


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_events_of_a_kind_share_what_each_of_them_would_repeat_in_memory(event: Event) -> None:
    one, other = event_from(event.model_dump()), numbered(event, 7, moment(7))
    assert one.model_fields_set is other.model_fields_set


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_copy_of_an_event_is_what_pydantic_would_make(event: Event) -> None:
    copy = numbered(event, 7, moment(7))
    changes = {"seq": 7, "at": copy.at}
    made = type(event).model_construct(set(type(event).model_fields), **vars(event) | changes)
    assert copy == made
    assert copy.model_fields_set == made.model_fields_set
    assert (copy.model_extra, copy.model_dump()) == (made.model_extra, made.model_dump())
    assert copy.model_copy(update={"seq": 8}).seq == 8


def test_unknown_type_is_kept_as_unrecognised_with_its_place() -> None:
    event = event_from({"type": "run_teleported", "seq": 4, "at": moment(4), "to": "mars"})
    assert isinstance(event, Unrecognised)
    assert (event.type, event.seq, event.at) == ("run_teleported", 4, moment(4))


@pytest.mark.parametrize(
    "document",
    [
        {"type": "answered"},
        {"type": "run_ended", "status": "running"},
        {"type": "approval_decided", "approval_id": "a", "call_id": "c", "outcome": "maybe"},
        {"type": "thinking", "round": "first", "content": ""},
        {"seq": 1},
    ],
)
def test_known_type_with_a_field_that_does_not_fit_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        event_from(document)


def test_text_of_an_input_leaves_out_images_and_files() -> None:
    parts = (
        Part(content="look"),
        Part(kind="image", content="data:image/png;base64,"),
        Part(content="here"),
    )
    assert UserInput(parts=parts).text == "look\nhere"


@requirement("S002-models-timestamps")
@given(histories(max_moves=6))
def test_every_committed_event_carries_an_aware_utc_time(steps: list[Any]) -> None:
    commit = Commit("t", "c", Absent(NewThread(user_id="ada")), steps[0].events)
    admission = admit(commit, None, leased=False, approval=None, now=moment(5))
    assert {event.at for event in admission.events} == {moment(5)}
    assert {event.at.tzinfo for event in admission.events} == {UTC}
    assert admission.thread.created_at == admission.thread.updated_at == moment(5)


@requirement("S002-models-timestamps")
@pytest.mark.parametrize(
    ("model", "field"),
    [(RunStarted, "at"), (ImportedItem, "at"), (ApprovalRequested, "expires_at")],
)
def test_time_without_a_zone_is_refused_and_any_other_zone_becomes_utc(
    model: type[LogEvent] | type[ImportedItem], field: str
) -> None:
    annotation: Any = model.model_fields[field]
    adapter: TypeAdapter[Any] = TypeAdapter(annotation.rebuild_annotation())
    with pytest.raises(ValidationError):
        adapter.validate_python(NAIVE)
    assert adapter.validate_python(IN_DELHI) == moment(0)
    assert adapter.validate_python(IN_DELHI).utcoffset() == timedelta(0)


def test_imported_item_keeps_its_own_time() -> None:
    assert [item.at for item in imported("a", "b").items] == [moment(0), moment(1)]


@given(legal_logs(max_moves=8))
def test_log_is_numbered_from_one_without_gaps(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_uncommitted_event_has_no_number() -> None:
    assert started().seq == 0
    assert log(started())[0].seq == 1
