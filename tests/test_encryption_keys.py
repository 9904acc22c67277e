"""Encryption keys: where they come from, what is a key, and what stops the start."""

import os
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.encryption import new_key, read_keys
from sk_agents.persistence.key_sources import configured_codec
from sk_agents.wiring import build_stores, store_codec


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_key_is_base64_or_hexadecimal_and_spells_the_same_key() -> None:
    raw = os.urandom(32)
    spelled = [raw.hex(), raw.hex().upper()]
    ids = {read_keys(text, "here").ids[0] for text in spelled}
    assert len(ids) == 1


def test_keys_are_read_in_their_order_and_comments_are_skipped() -> None:
    first, second, third = new_key(), new_key(), new_key()
    text = f"# of 2026\n{first}\n\n  {second}, {third}=\n"
    ids = [read_keys(key, "here").ids[0] for key in (first, second, third)]
    assert read_keys(text, "here").ids == ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "canary",
        "canary-canary-canary-canary-canary-canary-ca",
        "A" * 43,
        "00" * 32,
        "0123456789abcdef" * 4 + "00",
        f"{'ab' * 16}",
    ],
)
def test_what_is_no_random_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError, match="here") as refusal:
        read_keys(text, "here")
    assert "canary" not in str(refusal.value)


def test_key_given_twice_is_refused() -> None:
    key = new_key()
    with pytest.raises(ConfigurationError, match="twice"):
        read_keys(f"{key},{key}", "here")


def test_each_source_gives_the_same_keys(tmp_path: Path) -> None:
    keys = f"{new_key()},{new_key()}"
    file = tmp_path / "keys"
    file.write_text(keys.replace(",", "\n"))
    file.chmod(0o600)
    command = f"{sys.executable} -c \"print('{keys}')\""
    sources = [
        Settings(encryption_keys=SecretStr(keys)),
        Settings(encryption_keys_file=file),
        Settings(encryption_keys_command=command),
    ]
    ids = [configured_codec(settings).keys.ids for settings in sources]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Settings(encryption_keys_file=Path("missing")), "No such file"),
        (Settings(encryption_keys_file=Path("/")), "directory"),
        (Settings(encryption_keys_command="/no/such/program"), "cannot be run"),
        (Settings(encryption_keys_command="false"), "status 1"),
        (Settings(encryption_keys_command="echo 'unfinished"), "cannot be read"),
        (Settings(encryption_keys_command="echo canary"), "32 random bytes"),
        (Settings(encryption_keys=SecretStr("canary")), "32 random bytes"),
        (Settings(), "teal encryption-key"),
    ],
)
def test_source_that_gives_no_keys_stops_the_start(settings: Settings, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as refusal:
        configured_codec(settings)
    assert "canary" not in str(refusal.value)


def test_key_file_that_everybody_may_read_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text(new_key())
    file.chmod(0o644)
    configured_codec(Settings(encryption_keys_file=file))
    assert ["TA_ENCRYPTION_KEYS_FILE" in record.getMessage() for record in caplog.records] == [True]


def test_key_file_that_others_can_change_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(new_key())
    file.chmod(0o622)
    with pytest.raises(
        ConfigurationError, match="every user of this machine can change .*: chmod o-w it"
    ):
        configured_codec(Settings(encryption_keys_file=file))


def test_two_sources_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", new_key())
    monkeypatch.setenv("TA_ENCRYPTION_KEYS_FILE", "keys")
    with pytest.raises(ConfigurationError, match="choose one"):
        load_settings()


def test_own_persistence_class_cannot_be_had_with_encryption() -> None:
    settings = Settings(
        store="memory:",
        encryption_keys=SecretStr(new_key()),
        persistence_module="tests.toy_tasks",
        persistence_class="ToyTasks",
    )
    with pytest.raises(ConfigurationError, match="plain text"):
        build_stores(settings)


def test_without_keys_nothing_is_encrypted() -> None:
    assert store_codec(Settings()) is None
