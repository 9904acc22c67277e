"""The messages that a model is sent: what was said in earlier runs, and what the active run says.

A conversation of hundreds of turns is sent again with each turn. So the past is one object that
only grows, by one run at a time, and a model client may keep what it has made of it: the cost of a
turn does not grow with the number of earlier ones.

A prompt never holds a tool call without its result: an ended run is sealed, and an active one is
only asked for its messages once every call of the round has a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import overload

from sk_agents.engine.calls.call import Call
from sk_agents.engine.log.state import Run, Steering, ThreadState
from sk_agents.engine.models import TERMINAL, Message, Part, RunStatus, UserInput

CUT_SHORT = "[cut short: the user cancelled this answer]"
# Models count a picture by its pixels: about 1,100 tokens, however many bytes it has.
IMAGE_SIZE = 4 * 1_100
SUMMARY = "Summary of the conversation so far:\n"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Past:
    """Messages that only grow in number. A model client keeps what it made of them, by weak
    reference to this object; another past is another object."""

    messages: list[Message] = field(default_factory=list)


class Conversation(Sequence[Message]):
    """`instructions`, the first `past_length` messages of `past`, and what is being said `now`."""

    __slots__ = ("instructions", "now", "past", "past_length")

    def __init__(self, instructions: Sequence[Message], past: Past, now: Sequence[Message]) -> None:
        self.instructions = instructions
        self.past = past
        self.past_length = len(past.messages)
        self.now = now

    def __len__(self) -> int:
        return len(self.instructions) + self.past_length + len(self.now)

    def __iter__(self) -> Iterator[Message]:
        return chain(self.instructions, islice(self.past.messages, self.past_length), self.now)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, int) and -len(self.now) <= at < 0:
            return self.now[at]
        return list(self)[at]


@dataclass(slots=True)
class Transcript:
    """What was said in the visible runs that have ended, kept from turn to turn.

    `tip` is the last run it covers, `compactions` how many the thread had by then. It is built
    again when the branch changes or old runs are compacted.
    """

    tip: str | None = None
    compactions: int = 0
    imported: int = 0
    runs: list[Run] = field(default_factory=list)
    past: Past = field(default_factory=Past, compare=False)
    tokens: int = 0

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
        self.runs, self.past = [], Past()
        path = state.path(tip)
        covered = {run.run_id: position for position, run in enumerate(path)}
        for item in state.imported:
            image = (Part(kind="image", content=item.content),)
            is_image = item.content_type == "image"
            self._append(
                Message(
                    role=item.role,
                    content="" if is_image else item.content,
                    parts=image if is_image else (),
                )
            )
        for compaction in reversed(state.compactions):
            if compaction.through_run in covered:
                self._append(Message(role="system", content=SUMMARY + compaction.summary))
                path = path[covered[compaction.through_run] + 1 :]
                break
        for run in path:
            self._add(run)

    def _add(self, run: Run) -> None:
        self.runs.append(run)
        for message in run_messages(run):
            self._append(message)

    def _append(self, message: Message) -> None:
        self.past.messages.append(message)
        self.tokens += rough_tokens(message)


def conversation(
    state: ThreadState, transcript: Transcript, instructions: Sequence[Message] = ()
) -> Conversation:
    """The visible conversation, oldest first, starting after what was compacted."""
    transcript.follow(state)
    active = state.run(state.active_run) if state.active_run is not None else None
    now = list(run_messages(active)) if active is not None else []
    return Conversation(instructions, transcript.past, now)


def thread_messages(state: ThreadState) -> list[Message]:
    """The same of a state without a transcript."""
    return list(conversation(state, Transcript()))


def rough_tokens(message: Message) -> int:
    """About four bytes to a token; good to a factor of two in any script. Counted once."""
    if message.tokens:
        return message.tokens
    size = _size(message.content)
    for part in message.parts:
        size += IMAGE_SIZE if part.kind == "image" else _file_size(part)
    for call in message.tool_calls:
        size += len(repr(call.arguments)) + len(call.name)
    return message.keep_tokens(8 + size // 4)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _file_size(part: Part) -> int:
    """A model that reads a file itself looks at its pages; a page full of text is about as much."""
    size = _size(part.content)
    return max(size, IMAGE_SIZE * (part.pages or 0)) if part.original is not None else size


def run_messages(run: Run) -> Iterator[Message]:
    """What one run adds to a conversation."""
    if run.message is not None:
        yield run.user_message or _user_message(run, run.message)
    if run.calls or run.steering:
        yield from _rounds(run)
    if run.answer is not None and run.answer.content.strip():
        yield Message(role="assistant", content=run.answer.content)
    elif run.cancelled is not None and run.cancelled.partial:
        yield Message(role="assistant", content=f"{run.cancelled.partial}\n{CUT_SHORT}")


def _user_message(run: Run, sent: UserInput) -> Message:
    parts = sent.parts
    if sent.context:
        # What the client says about its user, apart from what the user said.
        lines = ["User context:", *(f"{key}: {value}" for key, value in sent.context.items())]
        parts = (*parts, Part(content="\n".join(lines)))
    texts = [part.content for part in parts if part.kind == "text"]
    if len(texts) == len(parts):
        run.user_message = Message(role="user", content="\n".join(texts))
    else:
        run.user_message = Message(role="user", parts=parts)
    return run.user_message


def _rounds(run: Run) -> Iterator[Message]:
    """Made once while the run goes on: the same objects in each later prompt, counted once."""
    yield from run.round_messages
    new = list(_new_rounds(run))
    if run.phase is RunStatus.RUNNING and not run.open_calls:
        run.round_messages.extend(new)
        run.round_calls, run.round_steering = len(run.calls), len(run.delivered)
    yield from new


def _new_rounds(run: Run) -> Iterator[Message]:
    """Round by round: what the user said before it, then its calls and their results."""
    delivered = list(run.delivered[run.round_steering :]) if run.steering else []
    calls_since = islice(run.calls.values(), run.round_calls, None)
    spoken: dict[int, str] | None = None
    for number, group in groupby(calls_since, key=lambda call: call.proposal.round):
        if spoken is None:
            spoken = {thought.round: thought.content for thought in run.thoughts if thought.spoken}
        while delivered and _round_of(delivered[0]) <= number:
            yield from _steering_messages(run, delivered.pop(0))
        calls = list(group)
        yield Message(
            role="assistant",
            content=spoken.get(number, ""),
            tool_calls=tuple(call.proposed for call in calls),
            # Models want their thoughts back until they have answered.
            reasoning_state=None if run.phase in TERMINAL else calls[0].proposal.reasoning_state,
        )
        for call in calls:
            yield _result_message(call)
    for one in delivered:
        yield from _steering_messages(run, one)


def _round_of(steering: Steering) -> int:
    assert steering.delivery is not None
    return steering.delivery.round


def _steering_messages(run: Run, steering: Steering) -> Iterator[Message]:
    """What the user said; before it what the model had answered, if it was asked again for it."""
    delivery = steering.delivery
    assert delivery is not None
    if delivery.usage is not None and delivery.message_ids[0] == steering.said.message_id:
        for thought in run.thoughts:
            if thought.spoken and thought.round == delivery.round - 1 and thought.content.strip():
                yield Message(role="assistant", content=thought.content)
    yield Message(role="user", content=steering.said.content)


def _result_message(call: Call) -> Message:
    """Its pictures are beside the text: a client sends them if its model can see."""
    finished = call.finished
    return Message(
        role="tool",
        content=finished.result if finished is not None else "",
        parts=tuple(
            Part(kind="image", content=attachment.uri, name=attachment.name)
            for attachment in (finished.attachments if finished is not None else None) or ()
            if attachment.is_picture
        ),
        tool_call_id=call.proposal.call_id,
    )
