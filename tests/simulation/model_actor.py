"""The model: it does what the last message of its user says, and keeps every prompt it got.

A message is a unique word and a script: `m7 wait:5 send:0.5+look:0` lets it think for five seconds
each time, then call two tools, which take as long as it says, and then answer. `break` ends its
first reply of the run half-way, `fail` refuses to answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from sk_agents.engine.models import Message
from sk_agents.engine.turns import CallRequested, ModelPiece, Prompt, TextDelta, TurnFinished
from sk_agents.exceptions import ModelError, ModelInterrupted
from tests.simulation.virtual_loop import PROCESS

NAMES = {
    "send": "Mail-send",
    "post": "Mail-post",
    "put": "Notes-put",
    "look": "Files-look",
    "sign": "Desk-sign",
}


@dataclass(slots=True)
class Asked:
    """A prompt, when it came and from which process."""

    at: float
    process: str
    messages: Sequence[Message]
    # Whether the whole reply went out.
    is_answered: bool = False

    @property
    def users(self) -> list[str]:
        return [text_of(message) for message in self.messages if message.role == "user"]


@dataclass(slots=True)
class ModelActor:
    prompts: list[Asked] = field(default_factory=list)
    _broken: set[str] = field(default_factory=set)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        messages = list(prompt.messages)
        asked = Asked(asyncio.get_running_loop().time(), str(PROCESS.get()), messages)
        self.prompts.append(asked)
        said = asked.users[-1] if asked.users else ""
        word, *script = said.split() or [""]
        last_user = max(at for at, message in enumerate(messages) if message.role == "user")
        done = sum(bool(message.tool_calls) for message in messages[last_user:])
        wait = next((float(one[5:]) for one in script if one.startswith("wait:")), 0.0)
        rounds = [one for one in script if one[:4] in NAMES or one.split(":")[0] in NAMES]
        if "fail" in script:
            raise ModelError
        yield [TextDelta(f"{word} ")]
        await asyncio.sleep(wait)
        if "break" in script and word not in self._broken:
            self._broken.add(word)
            raise ModelInterrupted
        if done < len(rounds):
            asked.is_answered = True
            yield [*_calls(word, done, rounds[done]), TurnFinished("tool_calls")]
            return
        yield [TextDelta("is ")]
        await asyncio.sleep(0.05)
        asked.is_answered = True
        yield [TextDelta("answered"), TurnFinished()]


def text_of(message: Message) -> str:
    return message.content or "\n".join(part.content for part in message.parts)


def _calls(word: str, number: int, text: str) -> list[CallRequested]:
    found = []
    for at, call in enumerate(text.split("+")):
        tool, _, seconds = call.partition(":")
        arguments = {"text": f"{word}.{number}.{at}", "seconds": float(seconds or 0)}
        found.append(CallRequested(f"c{at}", NAMES[tool], json.dumps(arguments)))
    return found
