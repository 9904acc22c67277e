"""Agents' toolboxes over real MCP servers, each a process of its own."""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.mcp.pins import Pins
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.toolbox import AgentToolbox
from tests.forked_python import PYTHON
from tests.patience import seconds

HERE = Path(__file__).parent
BOUND = seconds(60)


def friendly(folder: Path, **fields: Any) -> dict[str, Any]:
    """An entry of `mcp_servers` for the friendly server over stdio."""
    args = [str(HERE / "friendly.py"), str(folder)]
    return {"name": "friendly", "command": PYTHON, "args": args, **fields}


def hostile(folder: Path, mode: str, **fields: Any) -> dict[str, Any]:
    args = [str(HERE / "hostile.py"), mode, str(folder)]
    return {"name": "hostile", "command": PYTHON, "args": args, **fields}


@contextmanager
def held_port() -> Iterator[int]:
    """A port nobody else gets, and where nobody answers before a server is started there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def at_port(port: int, **fields: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/mcp"
    return {"name": "friendly", "transport": "http", "url": url} | fields


@asynccontextmanager
async def friendly_http(
    folder: Path, port: int = 0, way: str = "http", program: str = "friendly", **fields: Any
) -> AsyncIterator[dict[str, Any]]:
    """An entry for the friendly server over HTTP, which runs meanwhile."""
    process = await asyncio.create_subprocess_exec(
        PYTHON, str(HERE / f"{program}.py"), str(folder), f"--{way}",
        stdout=PIPE, env={"PORT": str(port)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            found = int(await process.stdout.readline())
        place = {"transport": "sse", "url": f"http://127.0.0.1:{found}/sse"} if way == "sse" else {}
        yield at_port(found, **place, **fields)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass(slots=True)
class Running:
    servers: McpServers
    box: AgentToolbox
    folder: Path

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.box.specs()]

    @property
    def status(self) -> dict[str, Any]:
        (only,) = self.servers.statuses()
        return only

    @property
    def notes(self) -> list[str]:
        """What the server says has happened."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def running(
    folder: Path,
    *entries: dict[str, Any],
    start_seconds: float = BOUND,
    workspaces: Workspaces | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """One agent with these servers, once it is known whether they could be reached."""
    pins = Pins(folder / "pins.json")
    servers = McpServers(pins, start_seconds=start_seconds, **options)
    source = servers.source(
        entries,
        agent_file=folder / "config.yaml",
        field="mcp_servers",
        workspaces=workspaces,
    )
    box = AgentToolbox(source)
    async with servers:
        yield Running(servers, box, folder)


async def until(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    async with asyncio.timeout(BOUND):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)
