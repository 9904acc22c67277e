"""Who sits where."""

from typing import Annotated

from semantic_kernel.functions.kernel_function_decorator import kernel_function

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolError, tool

DESKS = {"Ada": "second floor, by the window", "Grace": "first floor, next to the machine room"}


class DesksPlugin(BasePlugin):
    # It only looks, so nobody has to be asked before it runs.
    @tool(effect="read_only")
    @kernel_function(description="Where somebody's desk is.")
    def find_desk(self, person: Annotated[str, "A first name"]) -> str:
        if person not in DESKS:
            raise ToolError(f"Nobody here is called {person}. There are: {', '.join(DESKS)}.")
        return DESKS[person]
