"""`teal migrate-check`: what it says of a folder of the public project."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.house import run
from tests.demos.served import DEMOS

PLUGINS = """
import no_such_library
from semantic_kernel.functions.kernel_function_decorator import kernel_function
from semantic_kernel.agents import NoSuchAgent

from sk_agents.ska_types import BasePlugin, NoSuchType
"""


def check(folder: Path) -> tuple[int, list[tuple[str, str, str]]]:
    done = run(folder, "migrate-check", str(folder), "--json")
    found = json.loads(done.stdout)["checks"]
    return done.returncode, [(one["check"], one["state"], one["detail"]) for one in found]


def test_folder_that_works_is_said_to_work(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    for name in ("config.yaml", "custom_plugins.py", "catalog.json", "script/talk.yaml"):
        (agents / name).parent.mkdir(exist_ok=True)
        (agents / name).write_bytes((DEMOS / "11_hitl" / name).read_bytes())
        (agents / name).chmod(0o600)
    (tmp_path / ".env").write_text(
        "TA_API_KEY=x\nTA_PLUGIN_CATALOG_PATH=agents/catalog.json\nTA_A2A_ENABLED=true\n"
        "TA_AUTHORIZER_MODULE=src/sk_agents/authorization/dummy_authorizer.py\n"
        "TA_AUTHORIZER_CLASS=DummyAuthorizer\n"
    )
    code, found = check(tmp_path)
    assert code == 0, found
    assert ("variables", "warn", "TA_A2A_ENABLED") in found
    assert ("catalogs", "ok", "TA_PLUGIN_CATALOG_PATH: agents/catalog.json") in found
    assert ("agents", "ok", "RecordsAgent 0.1 (tealagents/v1alpha1)") in found
    assert {check for check, state, _ in found if state == "ok"} >= {"modules", "configuration"}


def test_everything_that_stops_a_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "custom_plugins.py").write_text(PLUGINS)
    (tmp_path / ".env").write_text(
        "TA_GITHUB=true\nTA_SERVICE_CONFIG=none.yaml\nTA_PLUGIN_MODULE=missing.py\n"
        "TA_PLUGIN_CATALOG_FILE=missing.json\n"
    )
    code, found = check(tmp_path)
    failed = [detail for _, state, detail in found if state == "fail"]
    assert code == 1
    for part in (
        "TA_GITHUB",
        "there is no file missing.py",
        "there is no file missing.json",
        "none.yaml",
        "there is no module semantic_kernel.agents",
        "sk_agents.ska_types has no NoSuchType",
    ):
        assert any(part in detail for detail in failed), (part, failed)
    assert any("no_such_library" in detail for _, state, detail in found if state == "warn")
