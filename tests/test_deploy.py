"""The files that a deployment begins with say what this version of the server understands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sk_agents
from sk_agents.cli import app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.foreign_variables import ADVICE
from sk_agents.config.settings import Settings, variable

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
MANIFESTS = DEPLOY / "kubernetes" / "teal.yaml"
SETTING = re.compile(r"\bTA_[A-Z_]+\b")
FILES = [
    *(ROOT / name for name in ("Dockerfile", "compose.yaml")),
    *sorted((ROOT / "demos").glob("*/compose.yaml")),
    *sorted(path for path in DEPLOY.rglob("*") if path.is_file()),
]


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all(MANIFESTS.read_text())
    }


def container() -> dict[str, Any]:
    [one] = documents()["Deployment", "teal"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(one, dict)
    return one


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_setting_that_a_file_names_exists(path: Path) -> None:
    known = {variable(name) for name in Settings.model_fields} | ADVICE.keys()
    assert set(SETTING.findall(path.read_text())) <= known


def test_agent_in_the_manifests_can_be_served(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(documents()["ConfigMap", "teal-agents"]["data"]["config.yaml"])
    [agent] = load_agent_files([file])
    assert agent.name == "assistant"


def test_manifests_name_the_image_of_this_version() -> None:
    assert container()["image"] == f"teal-agents:{sk_agents.__version__}"


def test_servers_have_longer_to_end_than_they_take() -> None:
    """Runs are handed over within 18 seconds, streams cut after 10; supervisors wait 25."""
    pod = documents()["Deployment", "teal"]["spec"]["template"]["spec"]
    pause = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert pod["terminationGracePeriodSeconds"] - pause >= 30
    assert int(compose["services"]["teal"]["stop_grace_period"].removesuffix("s")) >= 30
    for unit in (DEPLOY / "systemd").iterdir():
        [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
        assert int(seconds) >= 30


def test_nothing_runs_with_rights_that_it_does_not_need() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["teal"]
    limits = container()["securityContext"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
    [user] = re.findall(r"^USER (\d+):\d+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert documents()["Deployment", "teal"]["spec"]["template"]["spec"]["securityContext"][
        "runAsUser"
    ] == int(user)


@pytest.mark.parametrize("unit", ["teal.service", "teal@.service"])
def test_options_of_a_unit_are_those_of_the_command(unit: str) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    help_text = CliRunner().invoke(app, ["serve", "--help"]).output
    [command] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert all(option in help_text for option in re.findall(r"--[a-z-]+", command))
