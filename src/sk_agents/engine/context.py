"""Keeping a prompt inside the model's window. Pure.

Old runs are left out whole, so a call is never parted from its result, and a summary takes their
place; the log keeps everything. Tool output that is too large even so is cut in the prompt only,
with a note of where the rest is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sk_agents.engine.events import Compacted
from sk_agents.engine.history import run_messages
from sk_agents.engine.models import Message
from sk_agents.engine.state import Run, ThreadState

CountTokens = Callable[[Message], int]

# How much of the window is left for new turns after compacting.
FILL_AFTER = 0.5
SAID_CHARACTERS = 240
SUMMARY_CHARACTERS = 8_000
KEPT_CHARACTERS = 2_000


def rough_tokens(message: Message) -> int:
    """About four bytes to a token; good to a factor of two in any script."""
    size = len(message.content.encode(errors="replace"))
    size += sum(len(part.content) for part in message.parts)
    size += sum(len(repr(call.arguments)) + len(call.name) for call in message.tool_calls)
    return 8 + size // 4


@dataclass(frozen=True, slots=True)
class Context:
    """How large a prompt may be: the window less what the answer may need."""

    window: int = 128_000
    reserve: int = 4_000
    count: CountTokens = rough_tokens

    @property
    def budget(self) -> int:
        return max(self.window - self.reserve, 1)

    def tokens(self, messages: Iterable[Message]) -> int:
        return sum(map(self.count, messages))


def visible_runs(state: ThreadState) -> list[Run]:
    """The runs of the branch that are not covered by a summary."""
    runs = state.branch()
    covered = {run.run_id: position for position, run in enumerate(runs)}
    for compaction in reversed(state.compactions):
        position = covered.get(compaction.through_run)
        if position is not None:
            return runs[position + 1 :]
    return runs


def compaction(state: ThreadState, context: Context, overhead: int) -> Compacted | None:
    """The event that makes the prompt fit again, if one is needed and can help.

    `overhead` counts what is in every prompt: instructions, tools, an earlier summary.
    """
    runs = visible_runs(state)
    sizes = [_size(run, context) for run in runs]
    if sum(sizes) + overhead <= context.budget or len(runs) < 2:
        return None
    target = int(context.budget * FILL_AFTER) - overhead
    left, through = sum(sizes), 0
    while through < len(runs) - 1 and left > target:
        left -= sizes[through]
        through += 1
    last = runs[through - 1]
    return Compacted(
        run_id=runs[-1].run_id,
        through_run=last.run_id,
        # As many characters as tokens: about a quarter of the budget.
        summary=summary(_earlier(state), runs[:through], min(SUMMARY_CHARACTERS, context.budget)),
    )


def cut_to_fit(messages: Sequence[Message], context: Context) -> Sequence[Message]:
    """The messages with their tool output cut, the largest ones only as far as needed."""
    if context.tokens(messages) <= context.budget:
        return messages
    by_size = sorted(
        (len(message.content) for message in messages if message.role == "tool"), reverse=True
    )
    for limit in (*(size // 2 for size in by_size), KEPT_CHARACTERS):
        kept = [_cut(message, max(limit, KEPT_CHARACTERS)) for message in messages]
        if context.tokens(kept) <= context.budget:
            return kept
    return [_cut(message, KEPT_CHARACTERS) for message in messages]


def summary(earlier: str | None, runs: Sequence[Run], limit: int = SUMMARY_CHARACTERS) -> str:
    """What was said, a line a turn, the newest kept if there is not room for all."""
    lines = [earlier] if earlier else []
    for run in runs:
        said = run.message.text if run.message is not None else ""
        answer = run.answer.content if run.answer is not None else f"({run.phase})"
        lines.append(f"- User: {_short(said)}\n  Assistant: {_short(answer)}")
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    return "(earlier turns are left out)\n" + text[-limit:]


def _earlier(state: ThreadState) -> str | None:
    visible = {run.run_id for run in state.branch()}
    for compaction in reversed(state.compactions):
        if compaction.through_run in visible:
            return compaction.summary
    return None


def _size(run: Run, context: Context) -> int:
    if run.tokens is None or run.messages is None:
        tokens = context.tokens(run_messages(run))
        if run.messages is not None:
            run.tokens = tokens
        return tokens
    return run.tokens


def _cut(message: Message, limit: int) -> Message:
    if message.role != "tool" or len(message.content) <= limit:
        return message
    half = limit // 2
    note = (
        f"\n[... {len(message.content) - 2 * half} characters are left out here; "
        f"the whole output of {message.tool_call_id} is in the log ...]\n"
    )
    content = message.content[:half] + note + message.content[-half:]
    return message.model_copy(update={"content": content})


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID_CHARACTERS else text[:SAID_CHARACTERS] + " ..."
