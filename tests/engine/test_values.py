"""Values of `engine.values.dataclass` behave as frozen ones do, and are made without the guard."""

import dataclasses
import pickle

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.engine.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    owner: str
    epoch: int = 1


def test_a_value_compares_hashes_and_is_replaced_as_a_frozen_one() -> None:
    place = Place("a")
    assert place == Place("a", 1) != Place("b")
    assert {place: "here"}[Place("a")] == "here"
    assert dataclasses.replace(place, epoch=2) == Place("a", 2)
    assert not hasattr(place, "__dict__")


def test_a_value_is_made_without_a_call_for_each_field() -> None:
    assert "__setattr__" not in Place.__init__.__code__.co_names


def test_members_of_an_enum_are_its_attributes_and_nothing_else_about_it_changes() -> None:
    assert all(vars(RunStatus)[name] is member for name, member in RunStatus.__members__.items())
    assert RunStatus("failed") is RunStatus["FAILED"] is RunStatus.FAILED
    assert pickle.loads(pickle.dumps(RunStatus.FAILED)) is RunStatus.FAILED
    with pytest.raises(AttributeError):
        RunStatus.FAILED = RunStatus.COMPLETED  # type: ignore[misc]
