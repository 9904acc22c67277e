"""Built-in tools in tests: a toolbox from a block as an agent file would have it."""

from pathlib import Path
from typing import Any

from sk_agents.tools.builtin.function_tool import FunctionTool
from sk_agents.tools.builtin.loader import TOOL_NAMES, BuiltinTools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads

EVERYTHING: dict[str, Any] = {
    "tools": list(TOOL_NAMES),
    "workspace": "work",
    "workspace_for": "everyone",
    "http": {"allow": ["example.org"]},
}


def tools(folder: Path, **block: Any) -> list[FunctionTool]:
    """The tools of an agent file in `folder`, which has a folder `work` beside it."""
    builtin = BuiltinTools(WorkerThreads())
    return builtin.load({**EVERYTHING, **block}, path=folder / "config.yaml", field="spec.builtin")


def box(folder: Path, *names: str, **block: Any) -> AgentToolbox:
    return AgentToolbox(tools(folder, tools=list(names), **block))


def files(folder: Path, **block: Any) -> AgentToolbox:
    names = [name for name in TOOL_NAMES if name.endswith(("_file", "_files"))]
    return box(folder, *names, **block)
