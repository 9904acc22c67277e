"""One execution of a tool: foreign code on one side, an event on the other."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sk_agents.engine.calls import Call
from sk_agents.engine.canonical import canonical_json
from sk_agents.engine.events import ToolFinished, ToolOutcomeUnknown
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ToolError

if TYPE_CHECKING:
    from sk_agents.engine.driver import Driver

logger = logging.getLogger(__name__)

FAILED = "The tool failed (code tool_failed)."
NO_RESULT = "The tool ended without a result (code tool_no_result)."


async def execute(
    driver: Driver, call: Call, wanted: ToolCall, spec: ToolSpec
) -> ToolFinished | ToolOutcomeUnknown:
    """Run the tool to its end or its limit. Whatever it does, the run goes on."""
    run_id = driver.run.run_id
    bound = asyncio.timeout(spec.timeout)
    outcome, result = "error", ToolResult(NO_RESULT)
    try:
        async with bound:
            found = await _collect(driver, wanted, run_id)
            if found is not None:
                outcome, result = "ok", found
        failpoint("tool_effect_done")
    except ToolError as error:
        result = ToolResult(str(error))
    except Exception as error:  # the tool is the operator's own code
        if bound.expired():
            if spec.effect is Effect.AT_MOST_ONCE:
                return ToolOutcomeUnknown(run_id=run_id, call_id=wanted.id, reason="timeout")
            result = ToolResult(f"The tool did not finish within {spec.timeout:g} seconds.")
        else:
            _log(error, run_id, wanted)
            result = ToolResult(FAILED)
    return _finished(driver, call, wanted, outcome, result)


async def _collect(driver: Driver, wanted: ToolCall, run_id: str) -> ToolResult | None:
    context = ToolContext(
        thread_id=driver.thread_id,
        run_id=run_id,
        call_id=wanted.id,
        user_id=driver.known.head.user_id,
        idempotency_key=_key(driver, wanted),
        authorization=driver.authorization,
    )
    result: ToolResult | None = None
    failpoint("tool_dispatched")
    async with aclosing(driver.agent.toolbox.run(wanted, context)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ToolChunk):
                driver.live.output(wanted.id, piece.content)
                driver.services.signals.notify(driver.thread_id, local=True)
            else:
                result = piece
    return result


def _key(driver: Driver, wanted: ToolCall) -> str:
    started = driver.run.calls[wanted.id].started
    return started.idempotency_key if started is not None else wanted.id


def _finished(
    driver: Driver, call: Call, wanted: ToolCall, outcome: str, result: ToolResult
) -> ToolFinished:
    text, full_size = _capped(printable(result.content), driver.agent.limits.tool_result_bytes)
    if wanted.arguments != call.proposal.arguments:
        shown = canonical_json(wanted.arguments).decode()
        text = f"[The reviewer changed the arguments to {shown} before this ran.]\n{text}"
    return ToolFinished(
        run_id=driver.run.run_id,
        call_id=wanted.id,
        outcome="ok" if outcome == "ok" else "error",
        result=text,
        full_size=full_size,
        usage=result.usage,
        extra_data=_plain(result.extra_data),
    )


def printable(text: str) -> str:
    """Half of a surrogate pair cannot be stored or sent; it becomes the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def _capped(text: str, limit: int) -> tuple[str, int | None]:
    encoded = text.encode()
    if len(encoded) <= limit:
        return text, None
    kept = encoded[:limit].decode(errors="ignore")
    note = f"\n[cut: the first {limit} of {len(encoded)} bytes are shown]"
    return kept + note, len(encoded)


def _plain(data: Any) -> dict[str, Any] | None:
    return dict(data) if data else None


def _log(error: Exception, run_id: str, wanted: ToolCall) -> None:
    logger.warning(
        "tool failed",
        extra={"run_id": run_id, "tool": wanted.name, "error": type(error).__name__},
    )
