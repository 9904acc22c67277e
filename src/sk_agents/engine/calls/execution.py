"""One execution of a tool: foreign code on one side, an event on the other.

A result may come late: its owner was taken for lost while the tool ran, and the new owner asks a
person about the call. Then the result is attached to that question; it never ends the call by
itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic_core import to_json

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls.call import Call
from sk_agents.engine.calls.completions import Completions
from sk_agents.engine.calls.questions import Questions
from sk_agents.engine.events import (
    LateResult,
    ToolFinished,
    ToolOutcomeUnknown,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.log.commits import Pending
from sk_agents.engine.models import (
    Attachment,
    CallState,
    Effect,
    ToolCall,
    Usage,
)
from sk_agents.engine.run.deadline import ended_within
from sk_agents.engine.run.redacting import redacted_attachment
from sk_agents.engine.run.run_context import RunContext
from sk_agents.engine.run.vault import keeping, new_secrets, opened
from sk_agents.engine.services import STORE_TROUBLE, Services, patiently
from sk_agents.engine.turns import (
    Settle,
    ToolChunk,
    ToolContext,
    ToolResult,
    ToolSpec,
    printable,
)
from sk_agents.exceptions import (
    BudgetExceeded,
    Conflict,
    NotFound,
    StateCorrupt,
    ToolError,
    ToolInterrupted,
)

logger = logging.getLogger(__name__)

FAILED = "The tool failed (code tool_failed)."
NO_RESULT = "The tool ended without a result (code tool_no_result)."
# How long a cancelled tool may take to end before it is left behind.
PARTING_SECONDS = 1.0
MAX_EXTRA = 64 * 1024
# Of one result.
MAX_ATTACHMENTS = 32
MAX_NAME = 256
# What a result is attached as that was too long for the model.
WHOLE_OUTPUT = "output.txt"
# How often a harmless tool is started that breaks off each time.
MAX_ATTEMPTS = 2
# How often, and for how many seconds each time, the question about a lost call is waited for.
LOOKS = 60
LOOK_SECONDS = 0.5


async def execute(
    context: RunContext, call: Call, wanted: ToolCall, spec: ToolSpec
) -> ToolFinished | ToolOutcomeUnknown | None:
    """Run the tool to its end or its limit. Whatever it does, the run goes on.

    `None`: it broke off, and may be started once more since that does no harm.
    It has a task of its own, so that one which will not be cancelled can be left behind.
    """
    questions = Questions(context, wanted, spec)
    completions = Completions(context, questions)
    work = _collect(context, call, wanted, questions, completions)
    task = asyncio.get_running_loop().create_task(work)
    try:
        while not task.done() and (left := questions.time_left()) > 0:
            await ended_within(task, left)
        is_done = task.done()
    finally:
        await _give_up(task)
        await questions.committed()
    broke_off = is_done and not task.cancelled() and isinstance(task.exception(), ToolInterrupted)
    if is_done:
        failpoint("tool_effect_done")
    if spec.effect is Effect.AT_MOST_ONCE and (broke_off or not is_done):
        reason = "interrupted" if broke_off else "timeout"
        return ToolOutcomeUnknown(run_id=context.run_id, call_id=wanted.id, reason=reason)
    attempt = call.started.attempt if call.started is not None else 1
    if broke_off and attempt < MAX_ATTEMPTS:
        return None
    if is_done:
        outcome, result = _outcome(task, context.run_id, wanted)
    else:
        text = f"The tool did not finish within {spec.timeout:g} seconds."
        outcome, result = "error", ToolResult(text)
    services, secrets = context.services, context.known.state.secrets
    redaction = keeping(context.agent.redaction, secrets, services.ids)
    text, extra_data = printable(result.content), _plain(result.extra_data)
    if redaction is not None:
        # Before it is cut: the rest of a secret would not be known as one.
        text, extra_data = redaction.text(text), redaction.value(extra_data)
    whole, limits = text, context.agent.limits
    text, full_size = _capped(text, limits.tool_result_bytes)
    attachments, left_out = _kept(result.attachments, limits)
    if redaction is not None:
        attachments = tuple([await redacted_attachment(redaction, one) for one in attachments])
    if full_size is not None:
        attachments, _ = _kept((*attachments, _as_file(whole, full_size)), limits)
    if wanted.arguments != call.proposal.arguments:
        changed = wanted.arguments if redaction is None else redaction.value(wanted.arguments)
        shown = canonical_json(changed).decode()
        text = f"[The reviewer changed the arguments to {shown} before this ran.]\n{text}"
    if left_out:
        text += f"\n[{left_out} of its attachments were too large and are not kept]"
    return ToolFinished(
        run_id=context.run_id,
        call_id=wanted.id,
        outcome=outcome,
        result=text,
        full_size=full_size,
        usage=_sum(_priced(context, result.usage), completions.usage),
        extra_data=extra_data,
        attachments=attachments or None,
        secrets=new_secrets(redaction),
    )


def _priced(context: RunContext, usage: Usage | None) -> Usage | None:
    price = context.agent.price
    return usage if usage is None or price is None else price.applied(usage)


async def _give_up(task: asyncio.Task[ToolResult | None]) -> None:
    """Cancel it if it still runs, and leave it behind if it does not end soon."""
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({task}, timeout=PARTING_SECONDS)


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
                # Where in the plugin: its author has nothing else to go by.
                exc_info=error,
            )
            return "error", ToolResult(FAILED)


async def _reserved(context: RunContext, estimate: Usage) -> Settle:
    """Raises ToolError."""
    budget, spender = context.services.budget, context.spender
    most = _priced(context, estimate) or estimate
    try:
        reservation = await patiently(lambda: budget.reserve(spender, most))
    except BudgetExceeded as error:
        raise ToolError(str(error)) from None

    async def settle(usage: Usage) -> None:
        await budget.settle(reservation, _priced(context, usage) or usage)

    return settle


async def _collect(
    context: RunContext,
    call: Call,
    wanted: ToolCall,
    questions: Questions,
    completions: Completions,
) -> ToolResult | None:
    decision = call.approval.decision if call.approval is not None else None
    tool_context = ToolContext(
        thread_id=context.thread_id,
        run_id=context.run_id,
        call_id=wanted.id,
        user_id=context.known.head.user_id,
        idempotency_key=call.started.idempotency_key if call.started is not None else wanted.id,
        authorization=context.header.value,
        answer=decision.answer if decision is not None else None,
        ask=questions.ask if context.agent.is_attended else None,
        complete=completions.complete,
        reserve=partial(_reserved, context),
    )
    result: ToolResult | None = None
    secrets = context.known.state.secrets
    redaction = keeping(context.agent.redaction, secrets, context.services.ids)
    output = redaction.stream() if redaction is not None else None
    true_call = opened(context.agent.redaction, context.agent.toolbox, wanted, secrets)
    failpoint("tool_dispatched")
    async with aclosing(context.agent.toolbox.run(true_call, tool_context)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ToolChunk):
                text = output.feed(piece.content) if output is not None else piece.content
                context.live.add_output(wanted.id, text)
                context.live.call_listeners()
            else:
                result = piece
    if output is not None:
        context.live.add_output(wanted.id, output.end())
    return result


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one + other if one is not None and other is not None else one or other


def _capped(text: str, limit: int) -> tuple[str, int | None]:
    encoded = text.encode()
    if len(encoded) <= limit:
        return text, None
    kept = encoded[:limit].decode(errors="ignore")
    note = f"\n[cut: the first {limit} of {len(encoded)} bytes are shown]"
    return kept + note, len(encoded)


def _as_file(text: str, size: int) -> Attachment:
    """The whole output, for people: the model is sent a part of it."""
    uri = f"data:text/plain;base64,{b2a_base64(text.encode(), newline=False).decode()}"
    return Attachment(media_type="text/plain", uri=uri, size=size, name=WHOLE_OUTPUT)


def _kept(
    attachments: Sequence[Attachment], limits: RunLimits
) -> tuple[tuple[Attachment, ...], int]:
    """Those that fit, in their order, and how many do not."""
    kept: list[Attachment] = []
    left = limits.tool_attachment_bytes
    for attachment in attachments:
        if len(attachment.uri) <= left and len(kept) < MAX_ATTACHMENTS:
            left -= len(attachment.uri)
            name = printable(attachment.name)[:MAX_NAME] if attachment.name else None
            kept.append(replace(attachment, name=name))
    return tuple(kept), len(attachments) - len(kept)


def _plain(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """As it can be stored: a tool may put anything there."""
    if not data:
        return None
    text = to_json(dict(data), serialize_unknown=True, inf_nan_mode="strings", bytes_mode="base64")
    plain: dict[str, Any] = json.loads(text)
    return plain if len(text) <= MAX_EXTRA else {"omitted": f"{len(text)} bytes"}


async def attach_late_result(services: Services, thread_id: str, finished: ToolFinished) -> None:
    """Attach the result to the open question about its call, once there is one."""
    extra = {"thread_id": thread_id, "call_id": finished.call_id}
    async with services.signals.subscribe(thread_id) as changes:
        for _ in range(LOOKS):
            try:
                if await _attached(services, thread_id, finished):
                    return
            except (NotFound, StateCorrupt):
                break
            except (Conflict, *STORE_TROUBLE):
                logger.info("late result not attached yet", extra=extra)
            await changes.wait(LOOK_SECONDS)
    logger.warning("late result dropped", extra=extra)


async def _attached(services: Services, thread_id: str, finished: ToolFinished) -> bool:
    """Whether there is nothing left to do."""
    known = await services.threads.load(thread_id)
    call = known.state.run(finished.run_id).calls[finished.call_id]
    if call.finished is not None or call.late_result is not None:
        return True
    if call.state is not CallState.UNKNOWN or not call.waits or call.approval is None:
        return False
    late = LateResult(
        run_id=finished.run_id,
        call_id=finished.call_id,
        result=finished.result,
        attachments=finished.attachments,
        secrets=finished.secrets,
    )
    guard = Pending(call.approval.request.approval_id, next_seq=known.state.next_seq)
    await services.commit(known, guard, late)
    return True
