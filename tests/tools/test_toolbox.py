"""The toolbox: names, digests, unknown tools, and arguments that stay as they were."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool
from sk_agents.tools.base_tool import Tool, tool_spec
from sk_agents.tools.plugins import plugin_tools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.tools.calls import call, pieces, toolbox


class Files(BasePlugin):
    @kernel_function(description="Write a file.")
    def write(self, path: str, lines: list[str]) -> str:
        lines.append("added by the tool")
        return path

    @tool(effect="read_only")
    @kernel_function(description="Read a file.")
    def read(self, path: str) -> str:
        return path


class Mail(BasePlugin):
    @kernel_function
    def send(self) -> str:
        return "sent"


def test_tools_keep_the_order_of_sources_and_definitions() -> None:
    names = [spec.name for spec in toolbox(Mail, Files).specs()]
    assert names == ["Mail-send", "Files-write", "Files-read"]


def test_two_tools_of_one_name_stop_the_start() -> None:
    tools = [plugin_tools(Mail, threads=WorkerThreads(), origin=name) for name in ("one", "two")]
    with pytest.raises(ConfigurationError, match=r"two: Mail.send: .* also defined by one"):
        AgentToolbox(*tools)


def test_definition_digest_changes_with_everything_the_reviewer_was_told() -> None:
    def digest_of(method: Any, name: str = "Files") -> str:
        plugin = type(name, (BasePlugin,), {"go": method})
        return toolbox(plugin).specs()[0].definition_digest

    def plain(self: Any, path: str) -> None: ...
    def other(self: Any, path: int) -> None: ...
    def twin(self: Any, path: str) -> None: ...

    base = digest_of(kernel_function(description="d", name="go")(plain))
    assert base == digest_of(kernel_function(description="d", name="go")(twin))
    changed = [
        digest_of(kernel_function(description="e", name="go")(plain)),
        digest_of(kernel_function(description="d", name="gone")(plain)),
        digest_of(kernel_function(description="d", name="go")(plain), "Flies"),
        digest_of(kernel_function(description="d", name="go")(other)),
        digest_of(tool(effect="read_only")(kernel_function(description="d", name="go")(twin))),
    ]
    assert len({base, *changed}) == 6


class Greedy(Tool):
    """A tool of another kind than plugins: it takes JSON and keeps what it is given."""

    spec = tool_spec(name="Greedy-take", description="", parameters={}, origin="here")
    origin = "here"

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)

    async def run(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        arguments["lines"].clear()
        yield ToolResult("taken")


@pytest.mark.parametrize(
    ("box", "name"), [(toolbox(Files), "Files-write"), (AgentToolbox([Greedy()]), "Greedy-take")]
)
async def test_tool_that_changes_its_arguments_changes_only_its_copy(
    box: AgentToolbox, name: str
) -> None:
    wanted = call(name, {"path": "a", "lines": ["b"]})
    assert isinstance((await pieces(box, wanted))[-1], ToolResult)
    assert wanted.arguments == {"path": "a", "lines": ["b"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Files-wrote", "Did you mean Files-write, Files-read?"),
        ("Fil\u0435s-write", "There is no tool 'Fil\\u0435s-write'. Did you mean Files-write"),
        ("write file.txt", "Did you mean Files-write"),
        ("\x1b[31m", "There is no tool '\\x1b[31m"),
        ("zzz", "Did you mean Files-write, Files-read, Mail-send?"),
        ("x" * 10_000, "There is no tool"),
    ],
)
async def test_unknown_tool_is_refused_with_names_to_use(name: str, text: str) -> None:
    box = toolbox(Files, Mail)
    with pytest.raises(ToolError) as caught:
        box.check(call(name))
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500
    with pytest.raises(ToolError):
        await pieces(box, call(name))


def test_empty_toolbox_says_that_it_is_empty() -> None:
    with pytest.raises(ToolError, match="There are no tools"):
        AgentToolbox().check(call("Files-write"))


async def test_arguments_that_were_never_checked_do_not_run() -> None:
    with pytest.raises(ToolError, match="lines: is missing"):
        await pieces(toolbox(Files), call("Files-write", {"path": "a"}))
