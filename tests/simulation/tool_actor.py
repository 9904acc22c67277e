"""The tools, and the ledger that counts what they did: the only judge of effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ToolError

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "seconds": {"type": "number"}},
}
SPECS = (
    ToolSpec("Mail-send", "Send a mail.", SCHEMA, Effect.AT_MOST_ONCE, "d"),
    ToolSpec("Mail-post", "Post a letter.", SCHEMA, Effect.AT_MOST_ONCE, "d"),
    ToolSpec("Notes-put", "Keep a note.", SCHEMA, Effect.IDEMPOTENT, "d"),
    ToolSpec("Files-look", "Look.", SCHEMA, Effect.READ_ONLY, "d"),
    ToolSpec("Desk-sign", "Sign.", SCHEMA, Effect.READ_ONLY, "d", requires_authorization=True),
)


@dataclass(frozen=True, slots=True)
class Effected:
    at: float
    tool: str
    thread_id: str
    run_id: str
    call_id: str
    text: str
    key: str


@dataclass(slots=True)
class ToolActor:
    """An effect happens in the middle of a call's time: before it nothing, after it all."""

    ledger: list[Effected] = field(default_factory=list)

    def specs(self) -> Sequence[ToolSpec]:
        return SPECS

    def check(self, call: ToolCall) -> Mapping[str, object]:
        if call.name not in {spec.name for spec in SPECS}:
            raise ToolError("There is no such tool.")
        return call.arguments

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        return {}

    def check_answer(self, schema: Mapping[str, object], answer: object) -> None:
        return None

    async def preview(self, call: ToolCall, context: ToolContext) -> str | None:
        return None

    async def run(
        self, call: ToolCall, context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult, None]:
        arguments: Mapping[str, Any] = call.arguments
        seconds = float(arguments.get("seconds", 0))
        await asyncio.sleep(seconds / 2)
        self.ledger.append(
            Effected(
                asyncio.get_running_loop().time(),
                call.name,
                context.thread_id,
                context.run_id,
                context.call_id,
                str(arguments.get("text")),
                context.idempotency_key,
            )
        )
        yield ToolChunk("half ")
        await asyncio.sleep(seconds / 2)
        yield ToolResult(f"done {arguments.get('text')}")


class SimulatedPolicy:
    """Mails are asked about; everything else may run."""

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Literal["allow", "ask", "deny"]:
        return "ask" if call.name == "Mail-send" else "allow"

    def review(self, call: ToolCall, spec: ToolSpec) -> None:
        return None
