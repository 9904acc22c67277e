"""A model that says what a test wrote down for it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import CallRequested, ModelPiece, Prompt, TextDelta, TurnFinished
from sk_agents.exceptions import ModelError

# Pieces in a tuple arrive together. An event is a gate: the stream goes on once it is set. An
# error is raised where it stands.
Step = ModelPiece | tuple[ModelPiece, ...] | asyncio.Event | Exception
Turn = Sequence[Step]


class Script:
    """Turns, played one after the other; an error alone is a turn of its own."""

    def __init__(self, turns: Sequence[Turn | Exception]) -> None:
        self._turns: list[Turn] = [
            [turn] if isinstance(turn, Exception) else list(turn) for turn in turns
        ]
        self.played = 0

    def next_turn(self) -> Turn:
        """The next turn; after the last one, an error that says so."""
        self.played += 1
        if self.played > len(self._turns):
            return [ModelError(f"the script has {len(self._turns)} turns, not {self.played}")]
        return self._turns[self.played - 1]


class ScriptedModel:
    """A `Model` that plays a script. `prompts` are those it has seen, in order."""

    def __init__(self, script: Sequence[Turn | Exception]) -> None:
        self.script = Script(script)
        self.prompts: list[Prompt] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        self.prompts.append(prompt)
        for step in self.script.next_turn():
            match step:
                case Exception():
                    raise step
                case asyncio.Event():
                    await step.wait()
                case tuple():
                    yield step
                case _:
                    yield (step,)


def says(text: str, *, pieces: int = 1, usage: Usage | None = None) -> Turn:
    """A turn that answers, its text cut into so many pieces."""
    size = max(1, -(-len(text) // pieces))
    deltas = [TextDelta(text[start : start + size]) for start in range(0, len(text), size)]
    return [*deltas, TurnFinished("stop", usage or Usage())]


def calls(*requests: tuple[str, Mapping[str, Any]], usage: Usage | None = None) -> Turn:
    """A turn that asks for these tools with these arguments."""
    asked = [
        CallRequested(f"provider-{number}", name, json.dumps(arguments))
        for number, (name, arguments) in enumerate(requests, 1)
    ]
    return [*asked, TurnFinished("tool_calls", usage or Usage())]
