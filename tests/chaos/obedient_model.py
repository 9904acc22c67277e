"""A model behind a real socket that does what the last message of its user says.

It keeps no place in a script, so any process may ask it anything, any number of times:
`pay`, `put`, `sign` and `die` are calls of that tool (`pay:hold` with the argument hold,
`sign:rich` with arguments of every shape), `go` is one of an MCP server, each made once a run;
`hold` speaks one word and goes on only once the gate is open; `spend` is answered with many tokens;
every other word is just answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from aiohttp import web

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import TextDelta
from sk_agents.testing.scripted_model import Turn, calls, says
from sk_agents.testing.scripted_server import PATH, Chunks, send

TOOLS = {
    "pay": "Ledger-pay",
    "put": "Ledger-put",
    "sign": "Ledger-sign",
    "die": "Ledger-die",
    "go": "mcp_swapping-go",
}
SPENT = Usage(prompt_tokens=1_000, completion_tokens=1_000)
RICH: dict[str, Any] = {
    "hold": False,
    "to": "Zo\u00eb M\u00fcller \U0001f701",
    "amount": 1250,
    "rate": 0.1,
    "account": 9007199254740993,
    "urgent": True,
    "note": None,
    "remark": "",
    "lines": [{"item": "paper", "count": 3, "tags": ["a", "b"]}, {"item": "ink", "count": 1}],
    "terms": {"net": {"days": 30, "from": "2026-01-31"}},
    "copies": [],
    "extras": {},
}


class ObedientModel:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.prompts: list[list[dict[str, Any]]] = []
        self.broken_off = 0
        self.base_url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post(PATH, self._complete)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.gate.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        messages: list[dict[str, Any]] = body["messages"]
        self.prompts.append(messages)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        turn = self._turn(messages)
        self.asked.put_nowait(said_last(messages))
        try:
            await send(request, response, turn, Chunks("obedient", True))
        except (ConnectionError, asyncio.CancelledError):
            self.broken_off += 1  # the asker was killed, or gave up
            raise
        return response

    def _turn(self, messages: list[dict[str, Any]]) -> Turn:
        words = said_last(messages).split()
        wanted = [word.partition(":") for word in words if word.partition(":")[0] in TOOLS]
        if wanted and messages[-1]["role"] != "tool":
            return calls(*((TOOLS[tool], _arguments(tool, how)) for tool, _, how in wanted))
        if "hold" in words:
            return [TextDelta("well"), self.gate, *says(", done")]
        return says("all done", pieces=4, usage=SPENT if "spend" in words else None)


def _arguments(tool: str, how: str) -> dict[str, Any]:
    if tool == "go":
        return {}
    return RICH if how == "rich" else {"hold": how == "hold"}


def said_last(messages: list[dict[str, Any]]) -> str:
    return next(str(said["content"]) for said in reversed(messages) if said["role"] == "user")
