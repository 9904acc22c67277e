"""The public project's plugins in the tests of those who wrote them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.demos.served import ROOT
from tests.patience import seconds

PLUGINS = """
from semantic_kernel.functions.kernel_function_decorator import kernel_function
from ska_utils import AppConfig, strtobool

from sk_agents.configs import TA_API_KEY
from sk_agents.ska_types import BasePlugin


class Weather(BasePlugin):
    @kernel_function(description="Temperature")
    def temperature(self, city: str) -> str:
        assert strtobool("true") and TA_API_KEY.env_name == "TA_API_KEY"
        return f"{city}: {AppConfig().get('TA_DEGREES')}"
"""
TESTS = """
import custom_plugins


def test_temperature(monkeypatch):
    monkeypatch.setenv("TA_DEGREES", "21")
    assert custom_plugins.Weather().temperature("Oslo") == "Oslo: 21"
"""


def test_plugin_is_imported_by_its_own_tests_without_semantic_kernel(tmp_path: Path) -> None:
    (tmp_path / "custom_plugins.py").write_text(PLUGINS)
    (tmp_path / "test_weather.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("import custom_plugins\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pytest_finds_it_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"teal": "sk_agents.stand_ins"}


def test_server_starts_in_a_process_that_has_imported_nothing_of_the_public_project() -> None:
    """Who puts the stand-in in place asks first whether the library is there, and so itself."""
    code = """
from sk_agents.stand_ins import answer_imports
from sk_agents.tools.semantic_kernel_stub import install_kernel_stub

answer_imports()
install_kernel_stub()
import semantic_kernel.functions
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds(20))
