"""`teal audit`, as an operator uses it."""

import asyncio
import csv
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sk_agents.cli import app
from sk_agents.cli.line_export import written_to
from sk_agents.exceptions import ConfigurationError
from sk_agents.testing.commits import append, thought
from sk_agents.wire.views import Checkpoint
from tests.audit.stores import Attacker, open_log, opened, talk


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite://{tmp_path / 'teal.sqlite'}"
    monkeypatch.setenv("TA_STORE", url)

    async def fill() -> None:
        async with opened(url) as store, open_log(store) as log:
            await talk(store, threads=2, commits=3)
            head = await store.thread("t1")
            await log.deleting(head, who="=ann", reason="asked for")

    asyncio.run(fill())
    return url


@pytest.fixture
def key(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "audit.key"
    assert teal("audit", "key", str(path))[0] == 0
    monkeypatch.setenv("TA_AUDIT_KEY_FILE", str(path))
    return path


def teal(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output


@contextmanager
def no_room(size: int = 20) -> Iterator[None]:
    """As if the disk were full once a file has so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_keys_for_which_there_is_no_room_leave_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    with no_room():
        assert teal("audit", "key", str(path)) == (78, f"teal: {path}: File too large\n")
    assert list(tmp_path.iterdir()) == []
    assert teal("audit", "key", str(path))[0] == 0


@pytest.mark.parametrize("ends", ["full", "early"])
def test_export_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "audit.csv"
    with pytest.raises(ConfigurationError if ends == "full" else ValueError):
        with no_room(), written_to(path) as file:
            file.write("x" * (100 if ends == "full" else 1))
            if ends == "early":
                raise ValueError
    assert not path.exists()
    with written_to(path) as file:
        file.write("x")
    with pytest.raises(ConfigurationError, match="File exists"), written_to(path):
        pass
    assert path.read_text() == "x"


def test_half_a_checkpoint_is_no_line(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = key.with_name("kept.jsonl")
    monkeypatch.setenv("TA_AUDIT_CHECKPOINTS_FILE", str(kept))
    # Larger than the store, which shall have room.
    kept.write_bytes(b"\n" * 4_000_000)
    with no_room(4_000_020):
        code, said = teal("audit", "checkpoint")
    assert (code, said) == (78, f"teal: TA_AUDIT_CHECKPOINTS_FILE: {kept}: File too large\n")
    assert teal("audit", "checkpoint")[0] == 0
    code, said = teal("audit", "verify", "--checkpoints", str(kept))
    assert (code, said.splitlines()[-1]) == (0, "nothing was found")


def test_checkpoint_that_is_kept_finds_what_was_changed_later(key: Path, store: str) -> None:
    kept = key.with_name("kept.jsonl")
    code, line = teal("audit", "checkpoint")
    assert code == 0
    kept.write_text(line)
    code, said = teal("audit", "verify", "--checkpoints", str(kept))
    assert (code, said.splitlines()[-1]) == (0, "nothing was found")
    assert "2 checkpoints, 1 of them kept elsewhere" in said

    async def attack() -> None:
        async with opened(store) as opened_store:
            await Attacker(opened_store, 3).strike(Checkpoint.model_validate_json(line))

    asyncio.run(attack())
    code, said = teal("audit", "verify", "--checkpoints", str(kept))
    assert (code, said.splitlines()[-1]) == (1, "the store is not what it was")
    code, said = teal("audit", "verify", "--json", "--checkpoints", str(kept))
    assert json.loads(said)["findings"]


def test_verification_says_what_it_cannot_know(store: str) -> None:
    code, said = teal("audit", "verify")
    assert code == 0
    # Of which store, since a server may be on another one.
    assert said.splitlines()[0] == store
    assert "2 threads have changed since the last checkpoint, or had none" in said
    assert "no checkpoint was given that was kept elsewhere" in said


def test_key_is_for_its_user_alone_and_never_overwritten(key: Path) -> None:
    assert key.stat().st_mode & 0o077 == 0
    code, said = teal("audit", "key", str(key))
    assert (code, "File exists" in said) == (78, True)


def test_wrong_settings_are_named(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert teal("audit", "checkpoint") == (
        78,
        "teal: TA_AUDIT_KEY_FILE is not set; `teal audit key` makes a key\n",
    )
    monkeypatch.setenv("TA_AUDIT_CHECKPOINTS_FILE", str(tmp_path / "kept"))
    code, said = teal("audit", "checkpoint")
    assert (code, "TA_AUDIT_CHECKPOINTS_FILE is set" in said) == (78, True)
    (tmp_path / "no.key").write_text("nothing")
    monkeypatch.setenv("TA_AUDIT_KEY_FILE", str(tmp_path / "no.key"))
    code, said = teal("audit", "checkpoint")
    assert (code, "no Ed25519 private key" in said) == (78, True)
    code, said = teal("audit", "verify", "--checkpoints", str(tmp_path / "no.key"))
    assert (code, "line 1 is no checkpoint" in said) == (78, True)
    monkeypatch.setenv("TA_STORE", "memory:")
    monkeypatch.delenv("TA_AUDIT_KEY_FILE")
    monkeypatch.delenv("TA_AUDIT_CHECKPOINTS_FILE")
    code, said = teal("audit", "export")
    assert (code, "keeps nothing" in said) == (78, True)
    assert teal("audit", "export", "--since", "yesterday")[0] == 2


def test_export_is_json_lines_or_csv_and_is_noted(store: str, tmp_path: Path) -> None:
    code, said = teal("audit", "export", "--since", "7d")
    lines = [json.loads(line) for line in said.splitlines()]
    assert (code, [line["what"] for line in lines]) == (0, ["deleting", "audit_exporting"])
    table = tmp_path / "audit.csv"
    words = ("--user", "=ann", "--format", "csv", "--output", str(table))
    assert teal("audit", "export", *words) == (0, "")
    [row] = list(csv.DictReader(StringIO(table.read_text())))
    # No cell is a formula.
    assert (row["what"], row["who"]) == ("deleting", "'=ann")
    code, said = teal("audit", "export", *words)
    assert (code, "File exists" in said) == (78, True)
    assert teal("audit", "export", "--since", "2999-01-01")[1] == ""
    exports = [
        line for line in teal("audit", "export")[1].splitlines() if "audit_exporting" in line
    ]
    assert json.loads(exports[1])["details"] == {"user": "=ann"}


def test_checkpoint_takes_in_only_what_has_changed_unless_all_is_asked_for(
    key: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sk_agents.audit.checkpointing.SKEW", timedelta(days=-1))
    assert teal("audit", "checkpoint")[0] == 0

    async def change() -> None:
        async with opened(store) as opened_store:
            await opened_store.commit(append(await opened_store.thread("t0"), thought("later")))

    asyncio.run(change())
    for words, covered in (((), []), (("--all",), [2])):
        assert teal("audit", "checkpoint", *words)[0] == 0
        lines = [json.loads(line) for line in teal("audit", "export")[1].splitlines()]
        counts = [line["details"]["count"] for line in lines if line["what"] == "covered"]
        assert counts == [2, *covered]
