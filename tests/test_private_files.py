"""Files that the server keeps for itself, other than a store's: for its user alone."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from sk_agents.private_files import close_to_others, make_private_folder
from sk_agents.tools.mcp.pins import Pins
from todo_server.task_stores import task_store


def modes(folder: Path) -> set[str]:
    return {oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}


def test_agreed_definitions_of_mcp_tools_are_the_users_alone(tmp_path: Path) -> None:
    Pins(tmp_path / "made" / "deep" / "pins.json").judge("s@1", {"a": "1"}, takes_new=False)
    assert modes(tmp_path) == {"0o700", "0o600"}


async def test_todo_list_is_the_users_alone(tmp_path: Path) -> None:
    async with task_store(f"sqlite://{tmp_path / 'made' / 'todo.sqlite'}") as store:
        await store.add("ada", "milk", "", None)
        assert modes(tmp_path) == {"0o700", "0o600"}


def test_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(NotADirectoryError):
            make_private_folder(path)


def test_closing_a_file_to_others_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "open"
    file.write_text("what was said")
    file.chmod(0o644)
    with caplog.at_level(logging.INFO):
        close_to_others(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [record.message for record in caplog.records] == ["a file was readable by other users"]
    close_to_others(tmp_path / "none")
