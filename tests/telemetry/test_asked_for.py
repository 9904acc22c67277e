"""What the settings ask for is there, and nothing else; what cannot be is said at start-up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from sk_agents.config.settings import Settings
from sk_agents.telemetry.telemetry import build_telemetry
from tests.patience import seconds
from tests.test_serve import AGENT, STORE, environment, serving

# As if the extra were not installed.
WITHOUT_SDK = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def without_sdk(folder: Path) -> dict[str, str]:
    """An environment whose Python lacks the packages of the extra."""
    (folder / "sitecustomize.py").write_text(WITHOUT_SDK)
    source = str(Path(__file__).parents[2] / "src")
    return environment(folder, PYTHONPATH=f"{folder}:{source}")


def test_nothing_is_built_when_nothing_is_asked_for() -> None:
    assert build_telemetry(Settings(), {}) is None


def test_metrics_that_are_switched_off_are_not_asked_for() -> None:
    assert build_telemetry(Settings(metrics_enabled=False), {}) is None


def test_building_needs_no_collector_and_starts_nothing() -> None:
    settings = Settings(telemetry_enabled=True, otel_endpoint="http://127.0.0.1:9")
    assert build_telemetry(settings, {}) is not None


def test_missing_package_is_named_with_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "from sk_agents.config.settings import Settings\n"
        "from sk_agents.telemetry.telemetry import build_telemetry\n"
        "build_telemetry(Settings(telemetry_enabled=True), {})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=without_sdk(tmp_path),
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 1
    assert (
        "ConfigurationError: TA_TELEMETRY_ENABLED: opentelemetry.sdk is not installed: "
        "pip install 'teal-agents[otel]'" in done.stderr
    )


def test_metrics_and_json_logs_need_no_extra(tmp_path: Path) -> None:
    code = (
        "from sk_agents.config.settings import Settings\n"
        "from sk_agents.telemetry.telemetry import build_telemetry\n"
        "built = build_telemetry(Settings(metrics_enabled=True, log_format='json'), {})\n"
        "assert built.page().startswith(b'# HELP')\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=without_sdk(tmp_path), check=True, timeout=seconds(60)
    )


def test_server_without_the_extra_exits_78(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(AGENT.format(name="One"))
    done = subprocess.run(
        [sys.executable, "-m", "sk_agents", "serve", str(tmp_path / "one.yaml"), *STORE],
        cwd=tmp_path,
        env={**without_sdk(tmp_path), "TA_TELEMETRY_ENABLED": "true"},
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 78
    assert "pip install 'teal-agents[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_page_of_metrics_is_served_only_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(AGENT.format(name="One"))
    with serving(tmp_path, "one.yaml", *STORE) as (_, _, address):
        assert httpx.get(f"{address}/metrics").status_code == 404
    with serving(tmp_path, "one.yaml", *STORE, TA_METRICS_ENABLED="true") as (_, _, address):
        page = httpx.get(f"{address}/metrics")
        assert page.status_code == 200
        assert "teal_recoveries_total 0.0" in page.text
