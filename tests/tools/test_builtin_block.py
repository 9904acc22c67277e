"""The `builtin` block of an agent file: strict, and read before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.builtin.loader import TOOL_NAMES, BuiltinTools
from sk_agents.worker_threads import WorkerThreads
from tests.tools.builtin_box import tools

READING = {
    "Files-read_file",
    "Files-list_files",
    "Files-search_files",
    "Math-calculate",
    "Clock-current_time",
}


def loaded(folder: Path, block: Any, **shared: Any) -> list[str]:
    builtin = BuiltinTools(WorkerThreads(), **shared)
    path = folder / "config.yaml"
    return [tool.spec.name for tool in builtin.load(block, path=path, field="spec.agent.builtin")]


def test_agent_without_the_block_has_none_of_them(tmp_path: Path) -> None:
    assert loaded(tmp_path, None) == []
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_named_is_there(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"tools": ["calculate"]}) == ["Math-calculate"]
    block = {"tools": ["write_file", "read_file"], "workspace": "work"}
    assert loaded(tmp_path, block) == ["Files-read_file", "Files-write_file"]
    assert (tmp_path / "work").stat().st_mode & 0o777 == 0o700


def test_every_name_has_its_tool_with_a_description(tmp_path: Path) -> None:
    found = tools(tmp_path)
    assert sorted(tool.spec.name.partition("-")[2] for tool in found) == sorted(TOOL_NAMES)
    for tool in found:
        assert tool.spec.description.endswith(".")


def test_all_but_those_that_only_look_declare_that_they_ask(tmp_path: Path) -> None:
    for tool in tools(tmp_path):
        asks = tool.spec.name not in READING
        assert tool.requires_approval is (True if asks else None), tool.spec.name
        if not asks:
            assert tool.spec.effect is Effect.READ_ONLY


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"tools": ["read_files"]}, "builtin.tools[0]"),
        ({"tools": ["calculate"], "extra": 1}, "builtin.extra"),
        ({"tools": "calculate"}, "builtin.tools"),
        ({}, "builtin.tools"),
        ([], "builtin"),
        ({"tools": ["calculate", "calculate"]}, "builtin.tools"),
        ({"tools": ["read_file"]}, "builtin.workspace"),
        ({"tools": ["run_python"]}, "builtin.workspace"),
        ({"tools": ["read_file"], "workspace": "w", "workspace_for": "all"}, "workspace_for"),
        ({"tools": ["http_get"]}, "builtin.http"),
        ({"tools": ["http_get"], "http": {"allow": []}}, "builtin.http.allow"),
        ({"tools": ["http_get"], "http": {"allow": ["a b"]}}, "builtin.http.allow[0]"),
        ({"tools": ["http_get"], "http": {"allow": ["ftp://x"]}}, "builtin.http.allow[0]"),
        ({"tools": ["http_get"], "http": {"allow": ["x"], "alow": 1}}, "builtin.http.alow"),
        ({"tools": ["calculate"], "code": {"memory_mb": 0}}, "builtin.code.memory_mb"),
        ({"tools": ["calculate"], "code": {"seconds": ".inf"}}, "builtin.code.seconds"),
        ({"tools": ["calculate"], "files": {"file_mb": 1}}, "builtin.files.file_mb"),
    ],
)
def test_mistake_stops_the_start_with_file_and_field(
    tmp_path: Path, block: Any, field: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, block)
    assert str(tmp_path / "config.yaml") in str(caught.value)
    assert field in str(caught.value)


@pytest.mark.parametrize("workspace", [".", "..", "/"])
def test_workspace_that_holds_the_agent_file_stops_the_start(
    tmp_path: Path, workspace: str
) -> None:
    with pytest.raises(ConfigurationError, match="tools must not reach"):
        loaded(tmp_path, {"tools": ["read_file"], "workspace": workspace})


def test_workspace_that_holds_the_store_stops_the_start(tmp_path: Path) -> None:
    block = {"tools": ["read_file"], "workspace": "work"}
    store = tmp_path / "work" / "data" / "teal.sqlite"
    with pytest.raises(ConfigurationError, match="holds teal.sqlite"):
        loaded(tmp_path, block, keep_out=[store])
    assert loaded(tmp_path, block, keep_out=[tmp_path / "teal.sqlite"]) == ["Files-read_file"]


def test_workspace_that_is_a_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("")
    with pytest.raises(ConfigurationError, match="builtin.workspace"):
        loaded(tmp_path, {"tools": ["read_file"], "workspace": "work"})


GOOD: dict[str, Any] = {
    "path": "a",
    "content": "x",
    "old_text": "x",
    "new_text": "y",
    "code": "1",
    "script": "true",
    "expression": "1",
    "url": "https://example.org/",
    "question": "Well?",
    "text": "x",
}


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_arguments_that_break_the_schema_are_refused_in_words(tmp_path: Path, name: str) -> None:
    (tool,) = [found for found in tools(tmp_path) if found.spec.name.endswith(f"-{name}")]
    required = tool.spec.parameters["required"]
    good = {argument: GOOD[argument] for argument in required}
    checked = tool.check(good)
    assert tool.check(checked) == checked
    wrong = [{**good, "bogus": 1}, {**good, **dict.fromkeys(required[:1], 7)}]
    missing = [{key: good[key] for key in required[1:]}] if required else []
    for arguments in [*wrong[: 1 + bool(required)], *missing]:
        with pytest.raises(ToolError, match="nothing was run"):
            tool.check(arguments)


def test_what_an_approval_is_for_changes_with_the_workspace(tmp_path: Path) -> None:
    digests = {
        tool.spec.definition_digest
        for workspace in ("work", "other")
        for shared_by in ("everyone", "user")
        for tool in tools(tmp_path, workspace=workspace, workspace_for=shared_by)
        if tool.spec.name == "Files-write_file"
    }
    assert len(digests) == 4
