"""The part of a prompt that only grows: what was said in the visible runs that have ended.

Kept from turn to turn and extended by one run at a time, so that the cost of a turn does not grow
with the number of earlier ones. Rebuilt when the branch changes or old runs are compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Message, Part
from sk_agents.engine.run.conversation import Conversation, SentPast
from sk_agents.engine.run.history import run_messages

SUMMARY = "Summary of the conversation so far:\n"


def rough_tokens(message: Message) -> int:
    """About four bytes to a token; good to a factor of two in any script. Counted once."""
    if message.tokens:
        return message.tokens
    size = len(message.content)
    if not message.content.isascii():
        size = len(message.content.encode(errors="replace"))
    for part in message.parts:
        size += len(part.content)
    for call in message.tool_calls:
        size += len(repr(call.arguments)) + len(call.name)
    return message.keep_tokens(8 + size // 4)


@dataclass(slots=True)
class Transcript:
    """`tip` is the last run it covers, `compactions` how many the thread had by then."""

    tip: str | None = None
    compactions: int = 0
    imported: int = 0
    runs: list[Run] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tokens: int = 0
    sent: SentPast = field(default_factory=SentPast, compare=False, repr=False)

    def follow(self, state: ThreadState) -> None:
        """Cover everything before the active run, or everything if there is none."""
        tip = state.head_run
        if tip is not None and tip == state.active_run:
            tip = state.run(tip).parent_run
        if (len(state.compactions), len(state.imported)) == (self.compactions, self.imported):
            if tip == self.tip:
                return
            if tip is not None and state.run(tip).parent_run == self.tip:
                self.tip = tip
                self._add(state.run(tip))
                return
        self._rebuild(state, tip)

    def _rebuild(self, state: ThreadState, tip: str | None) -> None:
        self.tip, self.tokens = tip, 0
        self.compactions, self.imported = len(state.compactions), len(state.imported)
        self.runs, self.messages, self.sent = [], [], SentPast()
        path = state.path(tip)
        covered = {run.run_id: position for position, run in enumerate(path)}
        for item in state.imported:
            image = (Part(kind="image", content=item.content),)
            is_image = item.content_type == "image"
            self._say(
                Message(
                    role=item.role,
                    content="" if is_image else item.content,
                    parts=image if is_image else (),
                )
            )
        for compaction in reversed(state.compactions):
            if compaction.through_run in covered:
                self._say(Message(role="system", content=SUMMARY + compaction.summary))
                path = path[covered[compaction.through_run] + 1 :]
                break
        for run in path:
            self._add(run)

    def _add(self, run: Run) -> None:
        self.runs.append(run)
        for message in run_messages(run):
            self._say(message)

    def _say(self, message: Message) -> None:
        self.messages.append(message)
        self.tokens += rough_tokens(message)


def conversation(
    state: ThreadState, transcript: Transcript, instructions: Sequence[Message] = ()
) -> Conversation:
    """The visible conversation, oldest first, starting after what was compacted."""
    transcript.follow(state)
    active = state.run(state.active_run) if state.active_run is not None else None
    now = list(run_messages(active)) if active is not None else []
    return Conversation(instructions, transcript.messages, transcript.sent, now)


def thread_messages(state: ThreadState) -> list[Message]:
    """The same of a state that nobody keeps a transcript of."""
    return list(conversation(state, Transcript()))
