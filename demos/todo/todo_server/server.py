"""The tools of the todo list, as MCP knows tools.

Whose list a call is about comes with the call, never from the model's arguments: in `_meta`, in a
header, or from the environment of a process that serves one user. A server that is reached over
HTTP believes every client, so it asks for a token, or listens to this machine only.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from datetime import date
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from sk_agents import __version__
from sk_agents.exceptions import InvalidInput, NotFound, StoreError
from todo_server.tasks import State, Task, TaskStore

T = TypeVar("T")

USER_KEY = "sk-agents/user_id"
USER_HEADER = "x-user-id"
USER_VARIABLE = "TODO_USER_ID"
MOST_TASKS = 200

Title = Annotated[str, Field(min_length=1, max_length=200, description="What is to be done.")]
Notes = Annotated[str, Field(max_length=4_000, description="Anything worth remembering about it.")]
Due = Annotated[date | None, Field(description="The day it must be done, as YYYY-MM-DD.")]
TaskId = Annotated[int, Field(ge=1, description="The task's number, as list_tasks shows it.")]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(destructive_hint=False, open_world_hint=False)
SETS = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
REMOVES = ToolAnnotations(destructive_hint=True, open_world_hint=False)


class TaskList(BaseModel):
    tasks: list[Task]


def todo_server(store: TaskStore) -> MCPServer[Any]:
    """The server, not yet running."""
    server: MCPServer[Any] = MCPServer(
        "todo",
        version=__version__,
        instructions="The user's todo list. Tasks are known by their numbers.",
        log_level="WARNING",
    )

    @server.tool(annotations=ADDS)
    async def add_task(ctx: Context, title: Title, notes: Notes = "", due: Due = None) -> Task:
        """Put a new task on the user's todo list."""
        return await _done(store.add(user_of(ctx), title, notes, due))

    @server.tool(annotations=READS)
    async def list_tasks(
        ctx: Context,
        status: Annotated[State, Field(description="Which ones: open, done or all.")] = "open",
    ) -> TaskList:
        """The tasks on the user's todo list, the most urgent first."""
        found = await _done(store.list(user_of(ctx), status, MOST_TASKS))
        return TaskList(tasks=found)

    @server.tool(annotations=SETS)
    async def complete_task(ctx: Context, task_id: TaskId) -> Task:
        """Mark a task as done."""
        return await _done(store.complete(user_of(ctx), task_id))

    @server.tool(annotations=SETS)
    async def update_task(
        ctx: Context,
        task_id: TaskId,
        title: Title | None = None,
        notes: Notes | None = None,
        due: Due = None,
    ) -> Task:
        """Change a task's title, notes or due date; what is left out stays as it is."""
        if title is None and notes is None and due is None:
            raise ToolError("Say what to change: title, notes or due.")
        changed = store.update(user_of(ctx), task_id, title=title, notes=notes, due=due)
        return await _done(changed)

    @server.tool(annotations=REMOVES)
    async def delete_task(ctx: Context, task_id: TaskId) -> Task:
        """Remove a task for good. To mark one as done, use complete_task."""
        return await _done(store.delete(user_of(ctx), task_id))

    return server


def user_of(ctx: Context) -> str:
    """Whose list this call is about.

    Raises:
        ToolError: the call names no user, or two different ones.
    """
    said = {
        name
        for name in (_from_meta(ctx), _from_header(ctx))
        if isinstance(name, str) and 0 < len(name) <= 256
    }
    if len(said) > 1:
        raise ToolError("The call names two users.")
    user = next(iter(said), os.environ.get(USER_VARIABLE))
    if not user:
        raise ToolError("The call does not say whose todo list it is about.")
    return user


def _from_meta(ctx: Context) -> object:
    meta: Any = ctx.request_context.meta
    return meta.get(USER_KEY) if meta else None


def _from_header(ctx: Context) -> str | None:
    value = ctx.headers.get(USER_HEADER) if ctx.headers else None
    return unquote(value) if value else None


async def _done(operation: Awaitable[T]) -> T:
    try:
        return await operation
    except (InvalidInput, NotFound, StoreError) as error:
        raise ToolError(str(error)) from None
