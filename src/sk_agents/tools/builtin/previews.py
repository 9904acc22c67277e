"""What a call would change, for whoever is asked to allow it."""

from __future__ import annotations

from collections.abc import Iterable

from sk_agents.engine.models import ToolCall
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.function_tool import FunctionTool
from sk_agents.tools.member import Tool


def preview(tools: Iterable[Tool], call: ToolCall, context: ToolContext) -> str | None:
    """A unified diff against the file as it is now; `None` for a tool whose arguments say it all.

    The file may be another one by the time the call runs. Blocks on files. Where the call would
    fail, this says why.
    """
    for tool in tools:
        if tool.spec.name == call.name and isinstance(tool, FunctionTool):
            try:
                return tool.preview(tool.check(call.arguments), context)
            except ToolError as error:
                return f"This call would fail: {error}"
    return None
