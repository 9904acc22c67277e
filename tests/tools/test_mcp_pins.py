"""Which definitions are agreed to: kept in a file that several processes share."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sk_agents.exceptions import ConfigurationError, NotFound
from sk_agents.tools.mcp.pins import Pins

S = "todo@abc"


@pytest.fixture(params=["file", "memory"])
def pins(request: pytest.FixtureRequest, tmp_path: Path) -> Pins:
    return Pins(tmp_path / "deep" / "pins.json" if request.param == "file" else None)


def test_first_sight_of_a_server_is_agreed_to(pins: Pins) -> None:
    assert pins.judge(S, {"a": "1", "b": "2"}, takes_new=False) == {}
    assert pins.judge(S, {"a": "1"}, takes_new=False) == {}
    assert pins.withheld() == []


def test_changed_and_added_definitions_are_withheld_until_agreed_to(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=False)
    now = {"a": "2", "b": "1"}
    assert pins.judge(S, now, takes_new=False) == {"a": "changed", "b": "added"}
    assert [(one.tool, one.why, one.seen) for one in pins.withheld()] == [
        ("a", "changed", "2"),
        ("b", "added", "1"),
    ]
    assert [one.tool for one in pins.repin("todo", "a")] == ["a"]
    assert pins.judge(S, now, takes_new=False) == {"b": "added"}
    pins.repin("todo")
    assert pins.judge(S, now, takes_new=False) == {}


def test_what_is_agreed_to_is_what_was_seen(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=False)
    pins.judge(S, {"a": "2"}, takes_new=False)
    pins.repin("todo", "a")
    assert pins.judge(S, {"a": "3"}, takes_new=False) == {"a": "changed"}


def test_definition_that_is_what_it_was_again_is_offered_again(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=False)
    pins.judge(S, {"a": "2"}, takes_new=False)
    assert pins.judge(S, {"a": "1"}, takes_new=False) == {}
    assert pins.withheld() == []


def test_new_tools_of_a_trusted_server_are_taken_changed_ones_are_not(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=True)
    assert pins.judge(S, {"a": "2", "b": "1"}, takes_new=True) == {"a": "changed"}


def test_agreeing_to_nothing_is_an_error(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=False)
    with pytest.raises(NotFound):
        pins.repin("todo", "a")
    with pytest.raises(NotFound):
        pins.repin("other")


def test_servers_of_one_name_are_apart(pins: Pins) -> None:
    pins.judge(S, {"a": "1"}, takes_new=False)
    assert pins.judge("todo@other", {"a": "2"}, takes_new=False) == {}


def test_file_outlives_the_object(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    Pins(path).judge(S, {"a": "1"}, takes_new=False)
    assert Pins(path).judge(S, {"a": "2"}, takes_new=False) == {"a": "changed"}
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".tmp"] == []


@pytest.mark.parametrize("text", ["", "{", '{"v": 2, "servers": {}}', '{"v": 1, "x": 1}'])
def test_damaged_file_agrees_to_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pins.json"
    path.write_text(text)
    pins = Pins(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        pins.check()
    with pytest.raises(ConfigurationError):
        pins.judge(S, {"a": "1"}, takes_new=False)
    assert path.read_text() == text


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    with ThreadPoolExecutor(8) as threads:
        list(
            threads.map(
                lambda n: Pins(path).judge(f"s{n}@x", {"a": str(n)}, takes_new=False), range(40)
            )
        )
    kept = Pins(path)
    assert all(kept.judge(f"s{n}@x", {"a": "?"}, takes_new=False) for n in range(40))
