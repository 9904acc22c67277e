"""A small MCP server: one tool that only reads, one that takes its time, one that asks back."""

import asyncio
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server: MCPServer[Any] = MCPServer("weather", log_level="WARNING")

REPORTS = {"oslo": "rain, 6 degrees", "lisbon": "sun, 19 degrees"}


class Place(BaseModel):
    city: str = Field(description="A city, such as Oslo or Lisbon.")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def report(city: str) -> str:
    """The weather in a city."""
    return REPORTS.get(city.lower(), "nobody has looked")


@server.tool()
async def measure(ctx: Context, stations: int = 3) -> str:
    """Ask every station for a new measurement."""
    for number in range(1, stations + 1):
        await asyncio.sleep(0.2)
        await ctx.report_progress(number, stations, f"station {number} answered")
    return f"{stations} stations measured"


async def wanted_place() -> Elicit[Place]:
    return Elicit("Which city do you mean?", Place)


@server.tool()
async def subscribe(place: Annotated[Place, Resolve(wanted_place)]) -> str:
    """Send a report every morning; asks for which city."""
    return f"reports about {place.city} from tomorrow on"


if __name__ == "__main__":
    server.run("stdio")
