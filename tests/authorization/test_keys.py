"""Access keys: made and revoked on the command line, counted by a running server at once."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sk_agents.authorization.access_keys import KeysFile, default_keys_file
from sk_agents.authorization.key_authorizer import KeyAuthorizer
from sk_agents.cli import app
from sk_agents.config.settings import Settings
from sk_agents.exceptions import AuthorizerUnavailable, ConfigurationError, Unauthenticated


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TA_KEYS_FILE", str(tmp_path / "kept" / "keys.json"))
    return tmp_path / "kept" / "keys.json"


def teal(*words: str) -> Result:
    return CliRunner().invoke(app, ["keys", *words])


def made(*words: str) -> str:
    result = teal("add", *words)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


async def user_of(path: Path, key: str) -> str:
    authorizer = KeyAuthorizer(Settings(keys_file=path))
    return (await authorizer.authorize_request(f"Bearer {key}")).user_id


async def test_key_is_its_users_until_it_is_revoked_without_a_restart(path: Path) -> None:
    server = KeyAuthorizer(Settings(keys_file=path))
    alice, bob = made("alice"), made("bob")
    assert (await server.authorize_request(f"Bearer {alice}")).user_id == "alice"
    assert (await server.authorize_request(f"bearer {bob}")).user_id == "bob"
    assert teal("revoke", "alice").exit_code == 0
    with pytest.raises(Unauthenticated):
        await server.authorize_request(f"Bearer {alice}")
    assert (await server.authorize_request(f"Bearer {bob}")).user_id == "bob"


def test_file_has_no_key_in_it_and_is_the_users_alone(path: Path) -> None:
    key = made("alice")
    # Its secret part may hold the character that parts it.
    secret = key.split("_", 2)[2]
    assert len(secret) > 20
    assert secret not in path.read_text()
    assert secret not in teal("list").output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda key: "",
        lambda key: key[:-1],
        lambda key: key + "x",
        lambda key: key.upper(),
        lambda key: key.replace("teal_", "meal_"),
        lambda key: "teal_000000000000_" + "A" * 43,
        # That there is a key of this id is no secret: `teal keys list` says it.
        lambda key: key[:-43] + "A" * 43,
        lambda key: key[:-1] + ("B" if key[-1] == "A" else "A"),
        lambda key: "é" * 20,
    ],
)
async def test_wrong_key_is_refused(path: Path, change: Any) -> None:
    key = made("alice")
    with pytest.raises(Unauthenticated):
        await user_of(path, change(key))


async def test_key_ends_when_it_was_said_to(path: Path) -> None:
    keys = KeysFile(path)
    _, over = keys.add("alice", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    _, lasts = keys.add("alice", expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert await user_of(path, lasts) == "alice"
    with pytest.raises(Unauthenticated):
        await user_of(path, over)
    assert [line.count("expired") for line in teal("list").stdout.splitlines()] == [1, 0]


def test_key_is_over_at_the_instant_that_was_said(path: Path) -> None:
    keys, end = KeysFile(path), datetime.now(UTC) + timedelta(hours=1)
    _, text = keys.add("alice", expires_at=end)
    assert keys.find(text, end - timedelta(microseconds=1)) is not None
    assert keys.find(text, end) is None


def test_folder_in_the_place_of_the_file_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=f"{path}: Is a directory"):
        KeysFile(path).keys()


def test_list_tells_when_keys_were_made_and_end(path: Path) -> None:
    made("alice", "--expires", "90d")
    made("nightly report")
    (alice, report) = json.loads(teal("list", "--json").stdout)
    assert (alice["name"], report["name"]) == ("alice", "nightly report")
    days = datetime.fromisoformat(alice["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < days < timedelta(days=91)
    assert report["expires_at"] is None
    assert "secret_hash" not in alice


async def test_key_has_the_groups_that_it_was_made_with(path: Path) -> None:
    key = made("alice", "--group", "finance", "--group", "board", "--role", "approver")
    authorizer = KeyAuthorizer(Settings(keys_file=path))
    caller = await authorizer.authorize_request(f"Bearer {key}")
    assert caller.groups == {"finance", "board"} and caller.roles == {"approver"}
    assert "approver  groups: finance, board" in teal("list").stdout
    (listed,) = json.loads(teal("list", "--json").stdout)
    assert listed["groups"] == ["finance", "board"]
    assert list(authorizer.credentials().values()) == [
        "alice, without an end, roles: approver, groups: finance, board"
    ]


async def test_file_of_an_earlier_version_has_keys_without_groups(path: Path) -> None:
    key = made("alice", "--role", "approver")
    edit(path, lambda keys: [one.pop("groups", None) for one in keys])
    authorizer = KeyAuthorizer(Settings(keys_file=path))
    assert (await authorizer.authorize_request(f"Bearer {key}")).groups == frozenset()
    assert list(authorizer.credentials().values()) == ["alice, without an end, roles: approver"]
    made("bob", "--group", "board")
    assert (await authorizer.authorize_request(f"Bearer {key}")).roles == {"approver"}


def test_file_without_groups_stays_readable_for_servers_that_know_none(path: Path) -> None:
    made("alice", "--role", "approver")
    made("bob")
    assert [set(key) & {"groups"} for key in json.loads(path.read_text())["keys"]] == [set(), set()]


def test_revoked_key_stays_revoked_after_a_power_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("alice")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    assert teal("revoke", "alice").exit_code == 0
    assert synced == [path.stat().st_ino, path.parent.stat().st_ino]


def test_keys_made_at_the_same_time_are_all_kept(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: KeysFile(path).add(f"user {n}"), range(40)))
    assert sorted(key.name for key in KeysFile(path).keys()) == sorted(
        f"user {n}" for n in range(40)
    )


@pytest.fixture
def damaged(path: Path) -> tuple[Path, str]:
    key = made("alice")
    path.write_text('{"keys": [{}]}')
    return path, key


async def test_damaged_file_lets_no_key_in_and_is_not_ready(damaged: tuple[Path, str]) -> None:
    path, key = damaged
    with pytest.raises(AuthorizerUnavailable, match=r"keys\.json"):
        await user_of(path, key)
    with pytest.raises(AuthorizerUnavailable):
        await KeyAuthorizer(Settings(keys_file=path)).ping()


def edit(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """As an editor does: the file itself is written."""
    document = json.loads(path.read_text())
    change(document["keys"])
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("change", [{"secret_hash": "é" * 64}, {"key_id": "alice"}])
async def test_entry_that_was_spoiled_by_hand_lets_no_key_in(
    path: Path, change: dict[str, str]
) -> None:
    key = made("alice")
    edit(path, lambda keys: keys[0].update(change))
    with pytest.raises(AuthorizerUnavailable, match=rf"keys\.0\.{next(iter(change))}"):
        await user_of(path, key)


async def test_entry_copied_for_another_user_makes_no_user_of_another(path: Path) -> None:
    key = made("alice")
    edit(path, lambda keys: keys.append(keys[0] | {"name": "bob"}))
    with pytest.raises(AuthorizerUnavailable, match="two keys have one id"):
        await user_of(path, key)
    assert teal("add", "carol").exit_code == 78, "and no entry of it is lost"


def test_key_that_cannot_be_kept_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "keys.json"
    monkeypatch.setenv("TA_KEYS_FILE", str(path))
    result = teal("add", "alice")
    assert (result.exit_code, result.stdout) == (78, "")
    assert str(path) in result.stderr.replace("\n", "")


def test_file_that_is_no_document_at_all_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("[")
    with pytest.raises(ConfigurationError, match="not a file of keys at 'the whole'"):
        KeysFile(path).keys()


def test_damaged_file_is_named_and_left_alone(damaged: tuple[Path, str]) -> None:
    path, _ = damaged
    assert teal("list").exit_code == 78
    assert teal("add", "bob").exit_code == 78
    assert path.read_text() == '{"keys": [{}]}'


def test_server_without_a_file_of_keys_says_so_at_the_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    KeyAuthorizer(Settings(keys_file=path))
    (told,) = caplog.records
    assert "no access keys yet" in told.message and told.__dict__["file"] == str(path)
    caplog.clear()
    made("alice")
    KeyAuthorizer(Settings(keys_file=path))
    assert not caplog.records


@pytest.mark.parametrize("shared", ["file", "folder"])
async def test_file_that_others_can_change_lets_no_key_in(path: Path, shared: str) -> None:
    key = made("alice")
    server = KeyAuthorizer(Settings(keys_file=path))
    if shared == "file":
        assert (await server.authorize_request(f"Bearer {key}")).user_id == "alice"
    changed = path if shared == "file" else path.parent
    changed.chmod(0o777)
    with pytest.raises(AuthorizerUnavailable, match="every user of this machine can change"):
        await server.authorize_request(f"Bearer {key}")
    assert teal("add", "bob").exit_code == 78
    changed.chmod(0o700)
    assert (await server.authorize_request(f"Bearer {key}")).user_id == "alice"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("add", ""), 2),
        (("add", "x" * 300), 2),
        (("add", "alice "), 2),
        (("add", "alice", "--group", ""), 2),
        (("add", "alice", "--group", "board "), 2),
        (("add", "alice", "--group", "bo\nard"), 2),
        (("add", "alice", "--role", "approver "), 2),
        (("add", "alice", "--expires", "soon"), 2),
        (("add", "alice", "--expires", "0d"), 2),
        (("revoke", "nobody"), 1),
    ],
)
def test_bad_usage_is_told(path: Path, words: tuple[str, ...], code: int) -> None:
    assert teal(*words).exit_code == code


def test_keys_are_in_the_user_s_data_folder_unless_another_file_is_named(tmp_path: Path) -> None:
    expected = tmp_path / "teal-agents" / "keys.json"
    assert default_keys_file({"XDG_DATA_HOME": str(tmp_path)}) == expected
