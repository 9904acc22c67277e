"""A catalog class of the operator's own in the place of the file."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from sk_agents.config.settings import Settings
from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.tools.catalog import ToolRules, configured_catalog


def rules(**governance: Any) -> dict[str, Any]:
    """A catalog file about one tool, Files-write."""
    tool = {"tool_id": "Files-write", "name": "write", "governance": governance}
    plugin = {
        "plugin_id": "Files",
        "name": "Files",
        "plugin_type": {"type_name": "code"},
        "tools": [tool],
    }
    return {"plugins": [plugin]}


def configured(folder: Path, source: str, name: str = "Mine", **more: Any) -> ToolRules | None:
    """The catalog of a class in a file of the operator's own."""
    path = folder / "my_catalog.py"
    path.write_text(textwrap.dedent(source))
    settings = Settings(plugin_catalog_module=str(path), plugin_catalog_class=name, **more)
    return configured_catalog(settings)


MINE = """
from types import SimpleNamespace

from sk_agents.plugin_catalog.models import Governance, PluginTool
from sk_agents.plugin_catalog.plugin_catalog import PluginCatalog


def tool(tool_id, needed):
    return PluginTool(tool_id=tool_id, name="x", governance=Governance(requires_hitl=needed))


class Mine(PluginCatalog):
    def get_plugin(self, plugin_id):
        return None

    def get_tool(self, tool_id):
        match tool_id:
            case "A-yes":
                return tool(tool_id, True)
            case "A-no":
                return tool(tool_id, False)
            case "A-open":
                return tool(tool_id, None)
            case "A-text":
                return "no"
            case "A-number":
                return SimpleNamespace(governance=SimpleNamespace(requires_hitl=0))
            case "A-bare":
                return SimpleNamespace(governance=None)
            case "A-raises":
                raise RuntimeError("the database is away")
            case _:
                return None


class Async(Mine):
    async def get_tool(self, tool_id):
        return tool(tool_id, False)


class Asking(Mine):
    def __init__(self, app_config):
        self.file = app_config.get("TA_PLUGIN_CATALOG_FILE")

    def get_tool(self, tool_id):
        return tool(tool_id, not self.file.endswith("rules.json"))


class Positional(Asking):
    def __init__(self, configuration):
        super().__init__(configuration)


class Keyword(Asking):
    def __init__(self, *, app_config):
        super().__init__(app_config)


class Failing(Mine):
    def __init__(self):
        raise RuntimeError("no database")


class Abstract(PluginCatalog):
    pass


class Other:
    pass
"""


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("A-yes", True),
        ("A-no", False),
        ("A-open", None),
        ("B-unknown", None),
        ("A-text", True),
        ("A-number", True),
        ("A-bare", True),
    ],
)
def test_class_is_believed_only_if_it_says_a_clear_yes_or_no(
    tmp_path: Path, tool: str, says: bool | None
) -> None:
    catalog = configured(tmp_path, MINE)
    assert catalog is not None
    assert catalog.requires_hitl(tool) is says
    catalog.refuse_strays(["A-yes", "A-never-heard-of"])


def test_class_that_raises_or_answers_later_means_ask(tmp_path: Path) -> None:
    spec = ToolSpec("A-raises", "", {"type": "object"}, Effect.READ_ONLY)
    call = ToolCall(id="c", plugin_name="A", function_name="raises", arguments={})
    catalog = configured(tmp_path, MINE)
    assert catalog is not None
    assert ApprovalPolicy(catalog=catalog.requires_hitl).verdict(call, spec) == "ask"
    later = configured(tmp_path, MINE, "Async")
    assert later is not None
    assert later.requires_hitl("A-raises") is True


@pytest.mark.parametrize("name", ["Asking", "Positional", "Keyword"])
def test_class_that_asks_for_the_configuration_gets_it(tmp_path: Path, name: str) -> None:
    catalog = configured(tmp_path, MINE, name, plugin_catalog_file=tmp_path / "rules.json")
    assert catalog is not None
    assert catalog.requires_hitl("A-any") is False


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Failing", "building 'Failing' fails with RuntimeError: no database"),
        ("Abstract", "is abstract"),
        ("Other", "is not a PluginCatalog"),
        ("Gone", "has no class 'Gone'"),
    ],
)
def test_class_that_cannot_be_used_stops_the_start(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, MINE, name)
    assert str(caught.value).startswith("TA_PLUGIN_CATALOG_MODULE, TA_PLUGIN_CATALOG_CLASS: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        "sk_agents.plugin_catalog.local_plugin_catalog",
        "src/sk_agents/plugin_catalog/local_plugin_catalog.py",
    ],
)
def test_our_own_class_means_the_file(tmp_path: Path, module: str) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(rules(requires_hitl=True)))
    named: dict[str, Any] = {
        "plugin_catalog_module": module,
        "plugin_catalog_class": "FileBasedPluginCatalog",
    }
    catalog = configured_catalog(Settings(plugin_catalog_file=path, **named))
    assert catalog is not None
    assert catalog.requires_hitl("Files-write") is True
    with pytest.raises(ConfigurationError, match="needs TA_PLUGIN_CATALOG_FILE"):
        configured_catalog(Settings(**named))


def test_class_may_derive_from_the_one_that_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_text(json.dumps(rules(requires_hitl=False)))
    source = """
    from sk_agents.plugin_catalog.local_plugin_catalog import FileBasedPluginCatalog

    class Mine(FileBasedPluginCatalog):
        def get_tool(self, tool_id):
            return super().get_tool(tool_id.replace("Paper", "File"))
    """
    catalog = configured(tmp_path, source, plugin_catalog_file=tmp_path / "catalog.json")
    assert catalog is not None
    assert catalog.requires_hitl("Papers-write") is False
    assert catalog.requires_hitl("Papers-read") is None


def test_without_class_and_file_there_is_no_catalog(tmp_path: Path) -> None:
    assert configured_catalog(Settings()) is None
    with pytest.raises(ConfigurationError, match="No such file"):
        configured_catalog(Settings(plugin_catalog_file=tmp_path / "gone.json"))
