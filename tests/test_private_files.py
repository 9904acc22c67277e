"""Files that the server keeps for itself, other than a store's: for its user alone."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.private_files import (
    changeable_by_others,
    close_to_others,
    data_folder,
    make_private_file,
    make_private_folder,
    replace_private,
    sync_folder,
)
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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, bytes]]]:
    """What was made durable, in order: the name, and of a file its content by then."""
    found: list[tuple[str, bytes]] = []
    really = os.fsync

    def fsync(fd: int) -> None:
        place = Path(f"/proc/self/fd/{fd}").resolve()
        found.append((place.name, place.read_bytes() if place.is_file() else b""))
        really(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    open_files = len(os.listdir("/proc/self/fd"))
    yield found
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_made_folder_stays_after_a_power_loss(
    tmp_path: Path, synced: list[tuple[str, bytes]]
) -> None:
    make_private_folder(tmp_path / "made" / "deep")
    assert [name for name, _ in synced] == [tmp_path.name, "made"]


def test_replaced_file_is_durable_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, synced: list[tuple[str, bytes]]
) -> None:
    file = tmp_path / "pins.json"
    for content in (b"old", b"new"):
        replace_private(file, content)
        assert file.read_bytes() == content
        assert synced[-2:] == [(".pins.json.new", content), (tmp_path.name, b"")]
    assert [path.name for path in tmp_path.iterdir()] == ["pins.json"]
    assert modes(tmp_path) == {"0o600"}


def test_folder_that_may_not_be_read_keeps_no_file_from_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object, flags: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refused)
    sync_folder(tmp_path)


def test_file_that_is_there_stays_as_it_is(tmp_path: Path, synced: list[tuple[str, bytes]]) -> None:
    file = tmp_path / "log"
    make_private_file(file)
    assert (file.read_bytes(), modes(tmp_path)) == (b"", {"0o600"})
    file.write_bytes(b"mine")
    file.chmod(0o640)
    make_private_file(file)
    assert (file.read_bytes(), modes(tmp_path)) == (b"mine", {"0o640"})


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/srv/ada"}, "/data"),
        ({"XDG_DATA_HOME": "data", "HOME": "/srv/ada"}, "/srv/ada/.local/share"),
        ({"HOME": "/srv/ada"}, "/srv/ada/.local/share"),
        ({"HOME": ""}, "/srv/eve/.local/share"),
        ({}, "/srv/eve/.local/share"),
    ],
)
def test_data_folder_is_the_one_of_the_xdg_rules(
    environ: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/srv/eve")
    assert data_folder(environ) == Path(folder)


def test_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigurationError, match="no home folder"):
        data_folder({})


@pytest.mark.parametrize(
    ("mode", "closed"), [(0o604, 0o600), (0o601, 0o600), (0o640, 0o640), (0o600, 0o600)]
)
def test_only_a_file_that_all_users_may_use_is_closed(
    tmp_path: Path, mode: int, closed: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kept"
    file.touch()
    file.chmod(mode)
    with caplog.at_level(logging.INFO):
        close_to_others(file)
    assert stat.S_IMODE(file.stat().st_mode) == closed
    assert bool(caplog.records) is (mode != closed)


def test_file_of_another_user_that_all_may_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(path: Path, mode: int) -> None:
        raise PermissionError

    file = tmp_path / "open"
    file.touch(mode=0o644)
    file.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", refused)
    close_to_others(file)
    assert [record.message for record in caplog.records] == ["a file is readable by other users"]


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "found"),
    [
        (0o755, 0o644, None),
        (0o755, 0o646, "file"),
        (0o755, 0o1646, "file"),
        (0o777, 0o644, "folder"),
        (0o1777, 0o644, None),
        (0o775, 0o664, None),
    ],
)
def test_what_every_user_can_change_of_a_file_and_its_folders_is_named(
    tmp_path: Path, folder_mode: int, file_mode: int, found: str | None
) -> None:
    places = {"folder": tmp_path / "folder", "file": tmp_path / "folder" / "file"}
    places["folder"].mkdir()
    places["file"].touch()
    places["file"].chmod(file_mode)
    places["folder"].chmod(folder_mode)
    assert changeable_by_others(places["file"]) == (places[found] if found else None)
