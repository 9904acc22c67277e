"""Our MCP client for the protocol's own conformance tests: a program that is given a server's URL.

It uses every tool that the server has. Where the server wants users to sign in, it signs one in,
and does so again if the server wants more than was granted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.turns import Question
from sk_agents.exceptions import ToolError
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.tools.mcp.accounts import McpAccounts
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.mcp.sign_ins import SignInRecords
from sk_agents.tools.mcp.signing_in import McpSignIns
from sk_agents.tools.toolbox import AgentToolbox
from tests.tools.calls import CONTEXT, result

HERE = "http://127.0.0.1:8000"
ARGUMENTS: dict[str, dict[str, Any]] = {"mcp_server-add_numbers": {"a": 5, "b": 3}}
MOST_SIGN_INS = 3


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    entry: dict[str, Any] = {
        "name": "server",
        "transport": "http",
        "url": url,
        "trust_level": "trusted",
        "request_timeout": 20,
    }
    if scenario.startswith("auth/"):
        entry["oauth"] = True
        known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
        if "client_id" in known:
            entry["oauth_client_id"] = known["client_id"]
            entry["oauth_client_secret"] = known.get("client_secret")
    async with MemoryStore() as store:
        servers = McpServers(records=SignInRecords(store, RandomIds()))
        source = servers.source([entry], agent_file=Path("/a.yaml"), field="mcp_servers")
        box = AgentToolbox(source)
        async with servers:
            (connection,) = source.connections
            if isinstance(connection, McpAccounts):
                await sign_in(McpSignIns(servers, {"agent": source}))
                await connection.connect(CONTEXT.user_id)
            await use_everything(box, servers, source)


async def use_everything(box: AgentToolbox, servers: McpServers, source: Any) -> None:
    async def ask(question: Question) -> Any:
        return {}

    context = replace(CONTEXT, ask=ask)
    for spec in box.specs():
        for _ in range(MOST_SIGN_INS):
            try:
                told = await result(box, spec.name, ARGUMENTS.get(spec.name, {}), context)
                sys.stdout.write(f"{spec.name}: {told.content}\n")
                break
            except ToolError as error:
                sys.stdout.write(f"{spec.name}: {error}\n")
                if "not signed in" not in str(error):
                    break
                await sign_in(McpSignIns(servers, {"agent": source}))


async def sign_in(desk: McpSignIns) -> None:
    """As the user's browser would."""
    state = await desk.begin("agent", CONTEXT.user_id, "server", HERE)
    address, secret = await desk.confirm(state)
    async with httpx.AsyncClient(timeout=20) as browser:
        back = (await browser.get(address)).headers["location"]
    sent = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    await desk.complete(sent["state"], code=sent["code"], issuer=sent.get("iss"), browser=secret)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
