"""The plugin catalog: what it says, and that a broken one stops the start."""

import json
from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.catalog import FileCatalog, load_catalog


def entry(tool_id: str = "Files-write", **governance: Any) -> dict[str, Any]:
    return {
        "tool_id": tool_id,
        "name": "write",
        "description": "Write a file",
        "governance": {"cost": "low", "data_sensitivity": "public", **governance},
        "auth": None,
    }


def document(*tools: dict[str, Any]) -> dict[str, Any]:
    return {
        "plugins": [
            {
                "plugin_id": "Files",
                "name": "Files",
                "description": "Files",
                "version": "1.0",
                "owner": "us",
                "plugin_type": {"type_name": "code"},
                "tools": list(tools),
            }
        ]
    }


def load(folder: Path, content: Any) -> FileCatalog:
    path = folder / "catalog.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_catalog(path)


def test_catalog_tells_what_was_decided_about_a_tool(tmp_path: Path) -> None:
    tools = [entry(requires_hitl=True), entry("Files-read", requires_hitl=False), entry("Files-x")]
    catalog = load(tmp_path, document(*tools))
    assert catalog.requires_hitl("Files-write") is True
    assert catalog.requires_hitl("Files-read") is False
    found = catalog.plugins[0].tools[0]
    assert (found.governance.cost, found.governance.data_sensitivity) == ("low", "public")


def test_tool_that_is_absent_or_undecided_is_not_taken_for_free(tmp_path: Path) -> None:
    catalog = load(tmp_path, document(entry()))
    assert catalog.requires_hitl("Files-write") is None
    assert catalog.requires_hitl("Mail-send") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "line 1: not JSON"),
        ("{", "line 1: not JSON"),
        ("[]", "document: Input should be an object"),
        ('{"plugins": [], "plugins": []}', "key 'plugins' appears twice"),
        ('{"plugins": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "not usable JSON"),
        ({}, "plugins: Field required"),
        ({"plugin": []}, "plugin: Extra inputs are not permitted"),
        (document(entry(requries_hitl=True)), "plugins[0].tools[0].governance.requries_hitl"),
        (document(entry(requires_hitl="false")), "governance.requires_hitl: Input should be a"),
        (document(entry(requires_hitl=0)), "governance.requires_hitl: Input should be a valid"),
        (document(entry(cost="free")), "governance.cost: Input should be 'low'"),
        (document({"tool_id": "a-b", "name": "b"}), "tools[0].governance: Field required"),
        (document(entry(), entry()), "plugins[0].tools[1].tool_id: 'Files-write' appears twice"),
    ],
)
def test_broken_catalog_stops_the_start_with_file_field_and_reason(
    tmp_path: Path, content: Any, reason: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, content)
    assert str(caught.value).startswith("TA_PLUGIN_CATALOG_FILE: ")
    assert "catalog.json" in str(caught.value)
    assert reason in str(caught.value)


def test_catalog_that_others_can_change_stops_the_start(tmp_path: Path) -> None:
    load(tmp_path, document(entry(requires_hitl=False)))
    path = tmp_path / "catalog.json"
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="every user of this machine can change"):
        load_catalog(path)
    path.chmod(0o664)
    load_catalog(path)


def test_missing_catalog_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.json: No such file"):
        load_catalog(tmp_path / "gone.json")


def test_entry_for_a_function_its_plugin_does_not_have_stops_the_start(tmp_path: Path) -> None:
    catalog = load(tmp_path, document(entry("Files-wriet", requires_hitl=True)))
    catalog.refuse_strays(["Mail-send"])
    with pytest.raises(ConfigurationError, match="'Files-wriet' names no function"):
        catalog.refuse_strays(["Files-write", "Mail-send"])
