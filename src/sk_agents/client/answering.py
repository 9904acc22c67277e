"""The text so far: previews put together as they come.

A preview is void once its round is asked anew (a higher attempt) and once the round's stored event
is there: what looked like an answer may have been said beside a tool call, as a thought.
"""

from __future__ import annotations

from sk_agents.client.events import (
    Answer,
    AnswerDelta,
    ApprovalRequired,
    Complete,
    Delta,
    Event,
    Started,
    Thinking,
    ThinkingDelta,
    ToolCall,
)


class _Draft:
    """One text that grows by pieces of one attempt at one round."""

    def __init__(self) -> None:
        self.text = ""
        self._at = (0, 0)

    def add(self, piece: Delta) -> None:
        """Ignores what is void, and what would leave a hole: the stored event will have it all."""
        at = (piece.round, piece.attempt)
        if at < self._at:
            return
        if at > self._at:
            self._at, self.text = at, ""
        if piece.offset <= len(self.text):
            end = piece.offset + len(piece.content)
            self.text = self.text[: piece.offset] + piece.content + self.text[end:]

    def clear(self) -> None:
        self.text = ""


class Answering:
    """Feed it every event of a stream; `text` is what to show now.

    It follows one interaction: the start of another begins anew.
    """

    def __init__(self) -> None:
        self.interaction_id = ""
        self._answer: str | None = None
        self._is_over = False
        self._said = _Draft()
        self._thought = _Draft()

    @property
    def text(self) -> str:
        return self._answer if self._answer is not None else self._said.text

    @property
    def thinking(self) -> str:
        """What the agent thinks right now, in the round that is open."""
        return self._thought.text

    @property
    def is_final(self) -> bool:
        """Whether `text` is the stored answer, no longer a preview."""
        return self._answer is not None

    @property
    def is_over(self) -> bool:
        return self._is_over

    def add(self, event: Event) -> str:
        """Take the next event; returns `text`."""
        match event:
            case Started() if event.interaction_id != self.interaction_id:
                self._begin(event.interaction_id)
            case ThinkingDelta():
                self._thought.add(event)
            case AnswerDelta():
                self._said.add(event)
            case Thinking() | ToolCall() | ApprovalRequired():
                self._said.clear()
                self._thought.clear()
            case Answer():
                self._answer = event.content
                self._thought.clear()
            case Complete() if self.interaction_id in ("", event.interaction_id):
                self._is_over = True
            case _:
                pass
        return self.text

    def _begin(self, interaction_id: str) -> None:
        self.interaction_id = interaction_id
        self._answer = None
        self._is_over = False
        self._said = _Draft()
        self._thought = _Draft()
