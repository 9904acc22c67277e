"""A model behind a real socket that does what the last message says, at the pace it says.

A message is a token of its own and some words: `pay`, `sign` and `put` are calls of that tool with
the token as an argument, once a run (`pay:4` lasts four seconds); `tell:4` is an answer that takes
four seconds; every other word is just answered. `prompts` are the tokens of each prompt's messages,
`malformed` what is wrong with prompts that no provider would take.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Step, Turn, calls, says
from tests.chaos.obedient_model import ObedientModel, said_last
from tests.chats.serving import write_agent

TOKEN = re.compile(r"\bm\d+\b")
PIECES_A_SECOND = 4
PLUGIN = """
import asyncio
import os

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolContext, kernel_function, tool
from tests.chaos.ledger import ask_ledger


class Ledger(BasePlugin):
    @tool(requires_approval=False)
    @kernel_function(description="Pay.")
    async def pay(self, token: str, seconds: float, context: ToolContext) -> str:
        return await enter(token, seconds, context)

    @kernel_function(description="Sign.")
    async def sign(self, token: str, seconds: float, context: ToolContext) -> str:
        return await enter(token, seconds, context)

    @tool(effect="idempotent", requires_approval=False)
    @kernel_function(description="Put.")
    async def put(self, token: str, seconds: float, context: ToolContext) -> str:
        return await enter(token, seconds, context, is_idempotent=True)


async def enter(token, seconds, context, is_idempotent=False):
    line = {
        "token": token,
        "call_id": context.call_id,
        "run_id": context.run_id,
        "key": context.idempotency_key,
        "pid": os.getpid(),
        "is_idempotent": is_idempotent,
        "hold": False,
    }
    await ask_ledger(PORT, line)
    await asyncio.sleep(seconds)
    return "written"
"""


class PacedModel(ObedientModel):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[list[str]] = []
        self.malformed: list[str] = []

    def _turn(self, messages: list[dict[str, Any]]) -> Turn:
        # What was asked is kept in short: the prompts of an hour would not fit.
        self.prompts.clear()
        self.tokens.append(tokens_in(messages))
        if problem := _unanswered(messages):
            self.malformed.append(f"{self.tokens[-1][-1]}: {problem}")
        words = [word.partition(":") for word in said_last(messages).split()]
        token = words[0][0]
        wanted = [
            (f"Ledger-{word}", {"token": token, "seconds": float(length or 0)})
            for word, _, length in words
            if word in ("pay", "sign", "put")
        ]
        if wanted and messages[-1]["role"] != "tool":
            return calls(*wanted)
        seconds = next((float(length) for word, _, length in words if word == "tell"), 0.0)
        return _told(token, seconds) if seconds else says(f"answer to {token}", pieces=3)


def _told(token: str, seconds: float) -> Turn:
    """An answer in pieces, each at its time; the times count from now."""
    loop = asyncio.get_running_loop()
    steps: list[Step] = []
    for number in range(int(seconds * PIECES_A_SECOND)):
        due = asyncio.Event()
        loop.call_later(number / PIECES_A_SECOND, due.set)
        steps += [due, TextDelta(f"word {number} ")]
    return [*steps, TextDelta(f"answer to {token}"), TurnFinished()]


def tokens_in(messages: list[dict[str, Any]]) -> list[str]:
    said = [str(message["content"]) for message in messages if message["role"] == "user"]
    return [token for text in said for token in TOKEN.findall(text)]


def _unanswered(messages: list[dict[str, Any]]) -> str | None:
    """What is wrong: every call has one result, right after it, and every result has its call."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"a result of {message['tool_call_id']}, which was not called"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"no result of {open_calls}"
        else:
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    return f"no result of {open_calls}" if open_calls else None


def write_paced_agent(folder: Path, model: PacedModel, ledger_port: int) -> Path:
    agent = write_agent(folder, model.base_url, plugins=["Ledger"])
    plugins = folder / "custom_plugins.py"
    plugins.write_text(f"PORT = {ledger_port}\n{PLUGIN}")
    return agent
