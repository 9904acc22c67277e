"""`teal prune`, as an operator uses it."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sk_agents.cli import app
from sk_agents.engine.models import SERVER_LOG, RunStatus
from sk_agents.engine.ports import PortableStore
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing import SettableClock
from sk_agents.testing.commits import append, run_ended, start_run


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with conversations that ended 100, 50 and 10 days ago, two a day."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite://{tmp_path / 'teal.sqlite'}"
    monkeypatch.setenv("TA_STORE", url)

    async def fill() -> None:
        clock = SettableClock(datetime.now(UTC) - timedelta(days=100))
        async with open_store(url, clock=clock) as store:
            for days in (100, 50, 10):
                for status in (RunStatus.COMPLETED, RunStatus.FAILED):
                    name = f"{status}-{days}"
                    head = (await store.commit(start_run(name, name))).thread
                    await store.commit(append(head, run_ended(name, status)))
                clock.advance(50 * 86400 if days == 100 else 40 * 86400)

    asyncio.run(fill())
    return url


def teal(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ("prune", *words))
    return done.exit_code, done.output


def left(url: str) -> list[str]:
    async def read() -> list[str]:
        async with open_store(url) as store:
            assert isinstance(store, PortableStore)
            threads = await store.all_threads()
            return [one for one in threads if not one.startswith(SERVER_LOG)]

    return asyncio.run(read())


def test_old_conversations_are_counted_then_removed(url: str) -> None:
    code, said = teal("--older-than", "30d", "--dry-run")
    assert (code, said) == (0, "4 (2 completed, 2 failed) of 6 conversations are old enough\n")
    assert len(left(url)) == 6
    code, said = teal("--older-than", "30d", "--status", "failed")
    assert (code, said) == (0, "2 (2 failed) of 6 conversations were removed\n")
    assert left(url) == ["completed-10", "completed-100", "completed-50", "failed-10"]
    assert teal("--older-than", "30d", "--yes")[0] == 0
    assert left(url) == ["completed-10", "failed-10"]
    assert teal("--older-than", "30d") == (0, "0 of 2 conversations were removed\n")


def test_ages_of_the_setting_are_used_without_an_option(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TA_RETENTION", "completed=60d, failed=1w")
    assert teal("--yes") == (0, "4 (1 completed, 3 failed) of 6 conversations were removed\n")
    assert left(url) == ["completed-10", "completed-50"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give --older-than"),
        (("--older-than", "soon"), "must be like"),
        (("--older-than", "0d"), "longer than 0"),
        (("--status", "failed"), "needs --older-than"),
        (("--older-than", "1d", "--status", "running"), "running"),
    ],
)
def test_what_is_not_understood_removes_nothing(
    url: str, words: tuple[str, ...], reason: str
) -> None:
    code, said = teal(*words)
    assert code == 2
    assert reason in said
    assert len(left(url)) == 6


@pytest.mark.parametrize("value", ["running=1d", "completed=0d", "completed", "completed=90"])
def test_setting_that_is_not_understood_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TA_RETENTION", value)
    code, said = teal()
    assert code == 78
    assert "TA_RETENTION" in said
    assert len(left(url)) == 6


def test_store_that_keeps_nothing_is_refused() -> None:
    code, said = teal("--older-than", "1d", "--store", "memory:")
    assert code == 78
    assert "memory:" in said
