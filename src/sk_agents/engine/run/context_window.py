"""Keeping a prompt inside the model's window. Pure.

Old runs are left out whole, so a call is never parted from its result, and a summary takes their
place; the log keeps everything. Tool output and files that are too large even so are cut in the
prompt only, with a note of where the rest is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sk_agents.engine.events import Compacted
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Message, UserInput
from sk_agents.engine.run.conversation import Transcript, rough_tokens, run_messages

# How much of the window is left for new turns after compacting.
FILL_AFTER = 0.5
SAID_CHARACTERS = 240
SUMMARY_CHARACTERS = 8_000
KEPT_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """How large a prompt may be: `budget`, the window less what the answer may need."""

    window: int = 128_000
    reserve: int = 4_000
    budget: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", max(self.window - self.reserve, 1))


def tokens(messages: Iterable[Message]) -> int:
    return sum(map(rough_tokens, messages))


def compaction(
    state: ThreadState, transcript: Transcript, context: ContextWindow, size: int
) -> Compacted | None:
    """The event that makes a prompt of this size fit again, if one is needed and can help. The
    transcript is that of the state as it is now."""
    if size <= context.budget:
        return None
    active = state.run(state.active_run) if state.active_run is not None else None
    target = int(context.budget * FILL_AFTER) - (size - transcript.tokens)
    runs, left, through = transcript.runs, transcript.tokens, 0
    last = len(runs) if active is not None else len(runs) - 1
    while through < last and left > target:
        left -= tokens(run_messages(runs[through]))
        through += 1
    if not through:
        return None
    return Compacted(
        run_id=(active or runs[-1]).run_id,
        through_run=runs[through - 1].run_id,
        # As many characters as tokens: about a quarter of the budget.
        summary=summary(_earlier(state), runs[:through], min(SUMMARY_CHARACTERS, context.budget)),
    )


def cut_to_fit(messages: Sequence[Message], context: ContextWindow) -> Sequence[Message]:
    """The messages with their tool output and files cut, the largest ones only as far as needed.

    First the originals of files are left out: their text is there, too. Then the limit is halved
    until they fit, so that each message is looked at a few times at most.
    """
    if tokens(messages) <= context.budget:
        return messages
    messages = [_without_originals(message) for message in messages]
    if tokens(messages) <= context.budget:
        return messages
    limit = max((len(text) for message in messages for text in _cuttable(message)), default=0)
    while True:
        limit = max(limit // 2, KEPT_CHARACTERS)
        kept = [_cut(message, limit) for message in messages]
        if limit == KEPT_CHARACTERS or tokens(kept) <= context.budget:
            return kept


def summary(earlier: str | None, runs: Sequence[Run], limit: int = SUMMARY_CHARACTERS) -> str:
    """What was said, a line a turn, the newest kept if there is not room for all."""
    lines = [earlier] if earlier else []
    for run in runs:
        texts = [run.message.text, *_file_names(run.message)] if run.message is not None else []
        said = "\n".join((*texts, *(one.said.content for one in run.delivered)))
        answer = run.answer.content if run.answer is not None else f"({run.phase})"
        lines.append(f"- User: {_short(said)}\n  Assistant: {_short(answer)}")
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    return "(earlier turns are left out)\n" + text[-limit:]


def _file_names(message: UserInput) -> Iterator[str]:
    """So that a model can say what it has not before it any more."""
    for part in message.parts:
        if part.kind == "file":
            yield f"(with the file {part.name or 'file'}, which is not shown any more)"


def _earlier(state: ThreadState) -> str | None:
    visible = {run.run_id for run in state.branch()}
    for compaction in reversed(state.compactions):
        if compaction.through_run in visible:
            return compaction.summary
    return None


def _cuttable(message: Message) -> Iterator[str]:
    if message.role == "tool":
        yield message.content
    for part in message.parts:
        if part.kind == "file":
            yield part.content


def _without_originals(message: Message) -> Message:
    if all(part.original is None for part in message.parts):
        return message
    parts = tuple(replace(part, original=None, pages=None) for part in message.parts)
    return replace(message, parts=parts)


def _cut(message: Message, limit: int) -> Message:
    if max(map(len, _cuttable(message)), default=0) <= limit:
        return message
    if message.role == "tool":
        rest = f"the whole output of {message.tool_call_id} is in the log"
        return replace(message, content=_cut_text(message.content, limit, rest))
    rest = "the whole file does not fit"
    parts = tuple(
        replace(part, content=_cut_text(part.content, limit, rest)) if part.kind == "file" else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _cut_text(text: str, limit: int, rest: str) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"\n[... {len(text) - 2 * half} characters are left out here; {rest} ...]\n"
    return text[:half] + note + text[-half:]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID_CHARACTERS else text[:SAID_CHARACTERS] + " ..."
