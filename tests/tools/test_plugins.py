"""Plugin classes as tools: loading them, and what stops the start."""

from pathlib import Path

import pytest

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolResult
from sk_agents.exceptions import ConfigurationError, LoadError
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool
from tests.tools.calls import loaded, result, toolbox, written

AS_PUBLISHED = """
    from typing import Annotated

    from semantic_kernel.functions.kernel_function_decorator import kernel_function
    from semantic_kernel.kernel_pydantic import KernelBaseModel

    from sk_agents.ska_types import BasePlugin


    class Weather(KernelBaseModel):
        city: str
        degrees: float


    class WeatherPlugin(BasePlugin):
        @kernel_function(description="The weather of a city.")
        def weather(self, city: Annotated[str, "The city's name"]) -> Weather:
            self.extra_data_collector.add_extra_data("source", "almanac")
            return Weather(city=city, degrees=21.5)

        @kernel_function(name="who", description="Who is asking.")
        async def caller(self) -> str:
            return self.authorization

        def helper(self) -> str:
            return "not offered"
"""


async def test_published_plugin_file_works_without_semantic_kernel(tmp_path: Path) -> None:
    box = loaded(tmp_path, "WeatherPlugin", source=AS_PUBLISHED)
    assert [spec.name for spec in box.specs()] == ["WeatherPlugin-weather", "WeatherPlugin-who"]
    assert box.specs()[0].description == "The weather of a city."
    assert box.specs()[0].parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city's name"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert await result(box, "WeatherPlugin-weather", {"city": "Oslo"}) == ToolResult(
        '{"city":"Oslo","degrees":21.5}', {"items": [{"key": "source", "value": "almanac"}]}
    )
    assert await result(box, "WeatherPlugin-who") == ToolResult("Bearer abc")


@pytest.mark.parametrize(
    "line",
    [
        "from semantic_kernel.functions.kernel_function_decorator import kernel_function",
        "from semantic_kernel.functions import kernel_function",
        "from sk_agents.tools import kernel_function",
        "import semantic_kernel.functions as f; kernel_function = f.kernel_function",
    ],
)
def test_decorator_may_come_from_any_of_its_places(tmp_path: Path, line: str) -> None:
    source = f"""
    {line}
    from sk_agents.ska_types import BasePlugin
    class P(BasePlugin):
        @kernel_function
        def go(self) -> str:
            "Goes."
            return "gone"
    """
    assert loaded(tmp_path, "P", source=source).specs()[0].description == "Goes."


def test_plugin_module_setting_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, AS_PUBLISHED, "others.py")
    monkeypatch.setenv("TA_PLUGIN_MODULE", str(path))
    assert len(loaded(tmp_path / "elsewhere", "WeatherPlugin").specs()) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("class Other: pass", "has no class 'P'"),
        ("class P: pass", "is not a BasePlugin"),
        ("raise RuntimeError('boom')", "boom"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("from semantic_kernel import Kernel", "cannot import name 'Kernel'"),
        ("import semantic_kernel.contents", "No module named 'semantic_kernel.contents'"),
        ("class P(BasePlugin): pass", "has no method with @kernel_function"),
    ],
)
def test_unusable_module_stops_the_start_and_says_why(
    tmp_path: Path, body: str, reason: str
) -> None:
    path = written(tmp_path, f"from sk_agents.ska_types import BasePlugin\n{body}")
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, "P")
    assert reason in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("@tool()\n def go(self): pass", "has @tool, but not @kernel_function"),
        ("@tool(effect='pure')\n def go(self): pass", "effect must be one of"),
        ("@tool(timeout=0)\n def go(self): pass", "timeout must be"),
        ("@tool(requires_approval='no')\n def go(self): pass", "requires_approval must be"),
        ("@kernel_function\n def go(self): yield 1", "must be async"),
        ("@kernel_function\n def go(self, *a): pass", "'a' cannot be given by name"),
        ("@kernel_function\n def go(self, a, /): pass", "'a' cannot be given by name"),
        ("@kernel_function\n def go(self, a: 'Gone'): pass", "NameError"),
        ("@kernel_function\n def go(self, a: type(tool)): pass", "no JSON schema"),
        ("@kernel_function\n def go(self, a: set[int]): pass", "use a list"),
        ("@kernel_function\n def go(self, a: int = 'x'): pass", "does not fit its type"),
        ("@kernel_function(name='a b')\n def go(self): pass", "cannot be a tool's name"),
        ("def __init__(self): pass\n @kernel_function\n def go(self): pass", "cannot be built"),
    ],
)
def test_unusable_method_stops_the_start_and_says_why(
    tmp_path: Path, method: str, reason: str
) -> None:
    head = "from sk_agents.ska_types import BasePlugin\n"
    head += "from sk_agents.tools import kernel_function, tool\n"
    path = written(tmp_path, f"{head}class P(BasePlugin):\n {method}")
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, "P")
    assert reason in str(caught.value)
    assert path.name in str(caught.value)


def test_missing_plugin_module_is_named_with_the_agent_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml: plugins needs TA_PLUGIN_MODULE"):
        loaded(tmp_path, "P")
    assert loaded(tmp_path).specs() == ()


def test_plugin_module_that_does_not_exist_is_named_by_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TA_PLUGIN_MODULE", str(tmp_path / "gone.py"))
    with pytest.raises(LoadError, match=r"TA_PLUGIN_MODULE: there is no file"):
        loaded(tmp_path, "P")


class Declares(BasePlugin):
    @kernel_function
    def plain(self) -> None: ...

    @tool(effect="read_only", requires_approval=True, timeout=5)
    @kernel_function
    def outside(self) -> None: ...

    @kernel_function(description="d")
    @tool(effect=Effect.IDEMPOTENT, requires_approval=False)
    def inside(self) -> None: ...


def test_declarations_compose_with_the_decorator_in_either_order() -> None:
    box = toolbox(Declares)
    assert [(spec.effect, spec.timeout) for spec in box.specs()] == [
        (Effect.AT_MOST_ONCE, 60.0),
        (Effect.READ_ONLY, 5.0),
        (Effect.IDEMPOTENT, 60.0),
    ]
    names = [spec.name for spec in box.specs()]
    assert [box.requires_approval(name) for name in names] == [None, True, False]
