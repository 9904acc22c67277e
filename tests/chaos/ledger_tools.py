"""The tools of an instance under experiment: each writes one line into the ledger.

What they are said to be can be changed by options, as an upgrade between two instances would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Audience, Effect, Review, ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.tools.base_tool import tool_spec
from tests.chaos.ledger import ask_ledger

EFFECTS = {
    "Ledger-pay": Effect.AT_MOST_ONCE,
    "Ledger-sign": Effect.AT_MOST_ONCE,
    "Ledger-seal": Effect.AT_MOST_ONCE,
    "Ledger-put": Effect.IDEMPOTENT,
    "Ledger-die": Effect.READ_ONLY,
}


class LedgerTools:
    """`description`, `field` (one more of the schema), `effect` (of what is signed) and `server`
    are what a definition's digest is made of."""

    def __init__(self, port: int, options: Mapping[str, str]) -> None:
        self._port = port
        self._options = options
        self._specs = [self._spec(name, effect) for name, effect in EFFECTS.items()]

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def check(self, call: ToolCall) -> Mapping[str, object]:
        return call.arguments

    async def preview(self, call: ToolCall, context: ToolContext) -> str | None:
        return None

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        return {}

    def check_answer(self, schema: Mapping[str, object], answer: object) -> None:
        """No question here has a schema."""

    async def run(
        self, call: ToolCall, context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult, None]:
        if call.name == "Ledger-die":
            os.kill(os.getpid(), signal.SIGKILL)
        request = {
            "call_id": context.call_id,
            "run_id": context.run_id,
            "key": context.idempotency_key,
            "pid": os.getpid(),
            "hold": call.arguments.get("hold", False),
            "arguments": call.arguments,
        }
        await ask_ledger(self._port, request)
        yield ToolResult("written")

    def _spec(self, name: str, effect: Effect) -> ToolSpec:
        fields = ["hold", *filter(None, [self._options.get("field")])]
        if name == "Ledger-sign":
            effect = Effect(self._options.get("effect", effect))
        spec = tool_spec(
            name=name,
            description=self._options.get("description", "writes a line"),
            parameters={"type": "object", "properties": dict.fromkeys(fields, {})},
            origin="the ledger",
            effect=effect,
            timeout=30.0,
        )
        goal = [spec.definition_digest, self._options.get("server", "the ledger's own")]
        return replace(spec, definition_digest=digest(goal))


class SignaturesAsk:
    """With `review_seconds` two people of `finance`, not the requester, decide in that time."""

    def __init__(self, review_seconds: str | None = None) -> None:
        self._review: Review | None = None
        if review_seconds is not None:
            audience = Audience(groups=("finance",))
            lifetime = float(review_seconds)
            self._review = Review(
                audience=audience, quorum=2, not_requester=True, lifetime=lifetime
            )

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Any:
        is_free = spec.name in EFFECTS and spec.name not in ("Ledger-sign", "Ledger-seal")
        return "allow" if is_free else "ask"

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return self._review
