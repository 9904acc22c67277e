"""One execution of a tool: foreign code on one side, an event on the other."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_json

from sk_agents.engine.calls.call import Call
from sk_agents.engine.calls.questions import Questions
from sk_agents.engine.events import ToolFinished, ToolOutcomeUnknown
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ToolError, ToolInterrupted

if TYPE_CHECKING:
    from sk_agents.engine.run.driver import Driver

logger = logging.getLogger(__name__)

FAILED = "The tool failed (code tool_failed)."
NO_RESULT = "The tool ended without a result (code tool_no_result)."
# How long a cancelled tool may take to end before it is left behind.
PARTING_SECONDS = 1.0
MAX_EXTRA = 64 * 1024
# How often a harmless tool is started that breaks off each time.
MAX_ATTEMPTS = 2


async def execute(
    driver: Driver, call: Call, wanted: ToolCall, spec: ToolSpec
) -> ToolFinished | ToolOutcomeUnknown | None:
    """Run the tool to its end or its limit. Whatever it does, the run goes on.

    `None`: it broke off, and may be started once more since that does no harm.
    It has a task of its own, so that one which will not be cancelled can be left behind.
    """
    run_id = driver.run.run_id
    questions = Questions(driver, wanted, spec)
    task = asyncio.get_running_loop().create_task(_collect(driver, wanted, run_id, questions))
    try:
        while not task.done() and (left := questions.time_left()) > 0:
            await asyncio.wait({task}, timeout=left)
        is_done = task.done()
    finally:
        await _give_up(task)
        await questions.settle()
    broke_off = is_done and _broke_off(task)
    if is_done:
        failpoint("tool_effect_done")
    if spec.effect is Effect.AT_MOST_ONCE and (broke_off or not is_done):
        reason = "interrupted" if broke_off else "timeout"
        return ToolOutcomeUnknown(run_id=run_id, call_id=wanted.id, reason=reason)
    if broke_off and _attempt(driver, wanted) < MAX_ATTEMPTS:
        return None
    if is_done:
        outcome, result = _outcome(task, run_id, wanted)
    else:
        text = f"The tool did not finish within {spec.timeout:g} seconds."
        outcome, result = "error", ToolResult(text)
    text, full_size = _capped(printable(result.content), driver.agent.limits.tool_result_bytes)
    if wanted.arguments != call.proposal.arguments:
        shown = canonical_json(wanted.arguments).decode()
        text = f"[The reviewer changed the arguments to {shown} before this ran.]\n{text}"
    return ToolFinished(
        run_id=run_id,
        call_id=wanted.id,
        outcome=outcome,
        result=text,
        full_size=full_size,
        usage=result.usage,
        extra_data=_plain(result.extra_data),
    )


async def _give_up(task: asyncio.Task[ToolResult | None]) -> None:
    """Cancel it if it still runs; it may take a moment over that, or for ever."""
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({task}, timeout=PARTING_SECONDS)


def _broke_off(task: asyncio.Task[ToolResult | None]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), ToolInterrupted)


def _outcome(
    task: asyncio.Task[ToolResult | None], run_id: str, wanted: ToolCall
) -> tuple[Literal["ok", "error"], ToolResult]:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    match error:
        case None:
            result = task.result()
            return ("ok", result) if result is not None else ("error", ToolResult(NO_RESULT))
        case ToolError():
            return "error", ToolResult(str(error))
        case _:
            logger.warning(
                "tool failed",
                extra={"run_id": run_id, "tool": wanted.name, "error": type(error).__name__},
            )
            return "error", ToolResult(FAILED)


async def _collect(
    driver: Driver, wanted: ToolCall, run_id: str, questions: Questions
) -> ToolResult | None:
    context = ToolContext(
        thread_id=driver.thread_id,
        run_id=run_id,
        call_id=wanted.id,
        user_id=driver.known.head.user_id,
        idempotency_key=_key(driver, wanted),
        authorization=driver.authorization,
        answer=_answer(driver, wanted),
        ask=questions.ask,
    )
    result: ToolResult | None = None
    failpoint("tool_dispatched")
    async with aclosing(driver.agent.toolbox.run(wanted, context)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ToolChunk):
                driver.live.add_output(wanted.id, piece.content)
                driver.live.call_listeners()
            else:
                result = piece
    return result


def _answer(driver: Driver, wanted: ToolCall) -> Any:
    approval = driver.run.calls[wanted.id].approval
    decision = approval.decision if approval is not None else None
    return decision.answer if decision is not None else None


def _key(driver: Driver, wanted: ToolCall) -> str:
    started = driver.run.calls[wanted.id].started
    return started.idempotency_key if started is not None else wanted.id


def _attempt(driver: Driver, wanted: ToolCall) -> int:
    started = driver.run.calls[wanted.id].started
    return started.attempt if started is not None else 1


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


def _plain(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """As it can be stored: a tool may put anything there."""
    if not data:
        return None
    text = to_json(dict(data), serialize_unknown=True, inf_nan_mode="strings", bytes_mode="base64")
    plain: dict[str, Any] = json.loads(text)
    return plain if len(text) <= MAX_EXTRA else {"omitted": f"{len(text)} bytes"}
