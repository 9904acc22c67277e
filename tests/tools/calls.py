"""Running tools in tests: a plugin file on disk, a toolbox over it, calls by name."""

import textwrap
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sk_agents.config.settings import Settings
from sk_agents.engine.models import ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.ska_types import BasePlugin
from sk_agents.tools.plugins import load_plugin_tools, plugin_tools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads

CONTEXT = ToolContext(
    thread_id="t1",
    run_id="r1",
    call_id="c1",
    user_id="u1",
    idempotency_key="k1",
    authorization="Bearer abc",
)


def written(folder: Path, source: str, name: str = "custom_plugins.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def loaded(folder: Path, *names: str, source: str | None = None) -> AgentToolbox:
    """The tools of the classes in the plugin file beside an agent file in `folder`."""
    if source is not None:
        written(folder, source)
    tools = load_plugin_tools(
        names, settings=Settings(), agent_file=folder / "config.yaml", threads=WorkerThreads()
    )
    return AgentToolbox(tools)


def toolbox(*plugins: type[BasePlugin], threads: WorkerThreads | None = None) -> AgentToolbox:
    shared = threads or WorkerThreads()
    return AgentToolbox(
        *(plugin_tools(plugin, threads=shared, origin="here") for plugin in plugins)
    )


def call(name: str, arguments: dict[str, Any] | None = None) -> ToolCall:
    plugin, function = name.split("-", 1) if "-" in name else ("", name)
    return ToolCall(id="c1", plugin_name=plugin, function_name=function, arguments=arguments or {})


async def pieces(
    box: AgentToolbox, wanted: ToolCall, context: ToolContext = CONTEXT
) -> Sequence[ToolChunk | ToolResult]:
    async with aclosing(box.run(wanted, context)) as stream:
        return [piece async for piece in stream]


async def result(
    box: AgentToolbox,
    name: str,
    arguments: dict[str, Any] | None = None,
    context: ToolContext = CONTEXT,
) -> ToolResult:
    """What a call ends in, run with its arguments as the check left them."""
    wanted = call(name, arguments)
    checked = wanted.model_copy(update={"arguments": box.check(wanted)})
    last = (await pieces(box, checked, context))[-1]
    assert isinstance(last, ToolResult)
    return last
