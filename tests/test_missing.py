"""What a test does on a machine that lacks something, and how far its bounds are stretched."""

import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests import debian, memory, missing, patience

TESTS = Path(__file__).parent
SKIP = re.compile(r"pytest\.(skip|importorskip|mark\.skip\w*)\(")
# Skipped for another reason than what the machine lacks.
# The official MCP servers and litellm's proxy are installed by `make chaos` alone.
OTHERWISE = {
    "chaos/test_killed_writers.py",
    "llm/test_litellm_proxy.py",
    "tools/test_official_servers.py",
}


def test_missing_part_skips_the_test_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        missing.lacks("browser", "no Chromium")


def test_missing_part_fails_the_test_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(missing.VARIABLE, "root,ipv6")
    with pytest.raises(pytest.fail.Exception, match=f"{missing.VARIABLE}=browser"):
        missing.lacks("browser", "no Chromium")


def test_part_that_a_ci_does_without_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(missing.VARIABLE, "root,browser")
    with pytest.raises(pytest.skip.Exception):
        missing.lacks("browser", "no Chromium")


def test_misspelled_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(missing.VARIABLE, "broser")
    with pytest.raises(ValueError, match="broser"):
        missing.declined()


def test_every_skip_says_which_part_is_missing() -> None:
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name not in ("missing.py", Path(__file__).name) and SKIP.search(path.read_text())
    }
    assert found == OTHERWISE


def test_nothing_is_installed_where_that_is_declined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an `apt-get` that would leave a trace."""
    trace = tmp_path / "called"
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\ntouch {trace}\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(debian.VARIABLE, "0")
    debian.program.cache_clear()
    try:
        assert debian.program(debian.CHROMIUM) is None
    finally:
        debian.program.cache_clear()
    assert not trace.exists()
    said = debian.announcement()
    assert said is not None and said.startswith("not on this machine: chromium")


def test_what_will_be_installed_is_announced_with_the_way_to_decline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(debian, "may_install", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = debian.announcement() or ""
    assert said.startswith(
        "apt-get will install chromium-headless-shell, fonts-dejavu-core, bubblewrap"
    )
    assert said.endswith("; TEAL_TEST_INSTALL=0 declines")


@pytest.mark.parametrize(("given", "bound"), [("", 2), ("1", 2), ("5", 10), ("1.5", 3)])
def test_bounds_are_stretched_by_one_factor(
    monkeypatch: pytest.MonkeyPatch, given: str, bound: float
) -> None:
    monkeypatch.setenv(patience.VARIABLE, given)
    assert patience.seconds(2) == bound


def test_factor_that_would_shorten_a_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.VARIABLE, "0.1")
    with pytest.raises(ValueError, match="shorten"):
        patience.seconds(1)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is taken for memory; the caller has named none."""
    monkeypatch.setattr(memory, "MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setenv(memory.VARIABLE, "")
    return tmp_path


def test_temporary_files_lie_in_memory_where_there_is_enough(
    monkeypatch: pytest.MonkeyPatch, unset: Path
) -> None:
    monkeypatch.setattr(memory, "LEAST_BYTES", 1)
    memory.use_memory()
    assert tempfile.gettempdir() == str(unset)


def test_temporary_files_stay_on_the_disk_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, unset: Path
) -> None:
    monkeypatch.setattr(memory, "LEAST_BYTES", shutil.disk_usage(unset).total + 1)
    memory.use_memory()
    assert tempfile.gettempdir() != str(unset)


def test_folder_that_the_caller_names_is_kept(
    monkeypatch: pytest.MonkeyPatch, unset: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(memory, "LEAST_BYTES", 1)
    named = str(tmp_path_factory.mktemp("named"))
    monkeypatch.setenv(memory.VARIABLE, named)
    monkeypatch.setattr(tempfile, "tempdir", None)
    memory.use_memory()
    assert tempfile.gettempdir() == named
