"""Tools: what a model may call, how its arguments are checked and how a call runs.

Authors of plugins take their names from here.
"""

from sk_agents.engine.turns import PreviewTable, ToolContext
from sk_agents.exceptions import ToolError, ToolInterrupted
from sk_agents.tools.attachments import ToolFile
from sk_agents.tools.declarations import kernel_function, tool

__all__ = [
    "PreviewTable",
    "ToolContext",
    "ToolError",
    "ToolFile",
    "ToolInterrupted",
    "kernel_function",
    "tool",
]
