"""`scripted/...`: a model that says what a file says, for tests, demos and the tour.

Which turn is played depends only on the prompt, not on what was played before: so any number of
conversations share one player, and one that is continued after a crash goes on where it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.engine.models import Message, Usage
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import (
    ConfigurationError,
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)
from sk_agents.llm.openai_wire import encoded, part_text
from sk_agents.llm.retry import Pace
from sk_agents.llm.tokens import estimate_prompt, estimate_text

BUILT_IN = Path(__file__).parent / "scripts"
FAILURES: dict[str, type[ModelError]] = {
    "rate_limited": ModelRateLimited,
    "unavailable": ModelUnavailable,
    "interrupted": ModelInterrupted,
    "protocol": ModelProtocolError,
    "refused": ModelRefused,
    "context": ContextTooLong,
}
Failure = Literal["rate_limited", "unavailable", "interrupted", "protocol", "refused", "context"]


def _compilable(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedCall(Strict):
    tool: str
    arguments: dict[str, Any] = {}


class ScriptedTurn(Strict):
    """One reply. `{user}` and `{result}` in `text` are the last message and the last result.

    A failure comes after what the turn says; with `fail_times`, only so often per player.
    """

    thinking: str = ""
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    pieces: int = Field(1, ge=1, le=10_000)
    delay_ms: float = Field(0, ge=0, le=600_000)
    finish: str | None = None
    fail: Failure | None = None
    fail_times: int | None = Field(None, ge=1)


class Rule(Strict):
    """The turns of a run whose message matches: the first, and after results the following."""

    match: Annotated[str, AfterValidator(_compilable)]
    turns: tuple[ScriptedTurn, ...] = Field(min_length=1)


class ModelScript(Strict):
    """Rules first, in order; where none matches, `turns` one after the other, then again."""

    rules: tuple[Rule, ...] = ()
    turns: tuple[ScriptedTurn, ...] = Field(min_length=1)


class ScriptPlayer:
    """A `Model` that plays a script."""

    def __init__(self, script: ModelScript, pace: Pace | None = None) -> None:
        self._script = script
        self._pace = pace or Pace()
        self._failed: Counter[int] = Counter()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        turn = chosen_turn(self._script, prompt.messages)
        said = filled(turn.text, prompt.messages)
        for delta in (*_cut(turn.thinking, turn.pieces, ReasoningDelta), *_cut(said, turn.pieces)):
            if turn.delay_ms:
                await self._pace.sleep(turn.delay_ms / 1000)
            yield [delta]
        if turn.fail is not None and self._fails_now(turn):
            raise FAILURES[turn.fail]
        calls = [
            CallRequested(f"scripted_{number}", call.tool, encoded(call.arguments).decode())
            for number, call in enumerate(turn.calls)
        ]
        reason = turn.finish or ("tool_calls" if calls else "stop")
        written = estimate_text(turn.thinking + said)
        usage = Usage(prompt_tokens=estimate_prompt(prompt), completion_tokens=written)
        yield [*calls, TurnFinished(reason, usage)]

    def _fails_now(self, turn: ScriptedTurn) -> bool:
        self._failed[id(turn)] += 1
        return turn.fail_times is None or self._failed[id(turn)] <= turn.fail_times


def load_script(name: str, folder: Path) -> ModelScript:
    """A script that comes with this package, by its name, or a YAML or JSON file, by its path.

    Raises:
        ConfigurationError: there is none, or it breaks a rule; names the file and the field.
    """
    built_in = BUILT_IN / f"{name}.yaml"
    path = built_in if name.isidentifier() and built_in.is_file() else folder / name
    try:
        return ModelScript.model_validate(read_yaml(path))
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "script"
        raise ConfigurationError(f"{path}: {field}: {problem['msg']}") from None


def chosen_turn(script: ModelScript, messages: Sequence[Message]) -> ScriptedTurn:
    last = max((n for n, m in enumerate(messages) if m.role == "user"), default=-1)
    text = text_of(messages[last]) if last >= 0 else ""
    for rule in script.rules:
        if re.search(rule.match, text):
            played = _replies(messages[last:])
            return rule.turns[min(played, len(rule.turns) - 1)]
    return script.turns[_replies(messages) % len(script.turns)]


def filled(text: str, messages: Sequence[Message]) -> str:
    for mark, role in (("{user}", "user"), ("{result}", "tool")):
        if mark in text:
            last = next((m for m in reversed(messages) if m.role == role), None)
            text = text.replace(mark, text_of(last) if last else "")
    return text


def text_of(message: Message) -> str:
    texts = [part_text(part) for part in message.parts if part.kind != "image"]
    return message.content or "\n".join(texts)


def _replies(messages: Sequence[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)


def _cut(
    text: str, pieces: int, kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
) -> list[ModelPiece]:
    size = max(1, -(-len(text) // pieces))
    return [kind(text[start : start + size]) for start in range(0, len(text), size)]
