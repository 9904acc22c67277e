"""`scripted/...`: a model that says what a file says, for tests, demos and the tour.

Which turn is played depends only on the prompt, not on what was played before: so any number of
conversations share one player, and one that is continued after a crash goes on where it was. The
language of the files is described in `model_script`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.engine.models import Usage
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
from sk_agents.llm.model_script import (
    ModelScript,
    Pieces,
    ScriptedTurn,
    chosen_turn,
    filled,
    filled_in,
)
from sk_agents.llm.openai_wire import encoded
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
WORD = re.compile(r"\S*\s*")


class ScriptPlayer:
    """A `Model` that plays a script. `slowness` multiplies its pauses; 0 leaves them out."""

    def __init__(
        self, script: ModelScript, pace: Pace | None = None, *, slowness: float = 1.0
    ) -> None:
        self._script = script
        self._pace = pace or Pace()
        self._slowness = slowness
        self._failed: Counter[int] = Counter()

    def slowed(self, slowness: float) -> ScriptPlayer:
        return ScriptPlayer(self._script, self._pace, slowness=slowness)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        script = self._script
        turn, values = chosen_turn(script, prompt.messages)
        thinking, said = filled(turn.thinking, values), filled(turn.text, values)
        pieces = turn.pieces or script.pieces
        pause = script.delay_ms if turn.delay_ms is None else turn.delay_ms
        for delta in (*_cut(thinking, pieces, ReasoningDelta), *_cut(said, pieces)):
            if pause and self._slowness:
                await self._pace.sleep(pause * self._slowness / 1000)
            yield [delta]
        if turn.fail is not None and self._fails_now(turn):
            raise FAILURES[turn.fail]
        calls = [
            CallRequested(
                f"scripted_{number}",
                call.tool,
                encoded(filled_in(call.arguments, values)).decode(),
            )
            for number, call in enumerate(turn.calls)
        ]
        reason = turn.finish or ("tool_calls" if calls else "stop")
        written = estimate_text(thinking + said)
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


def _cut(
    text: str, pieces: Pieces, kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
) -> Iterator[ModelPiece]:
    if pieces == "words":
        yield from (kind(word) for word in WORD.findall(text) if word)
        return
    size = max(1, -(-len(text) // pieces))
    yield from (kind(text[start : start + size]) for start in range(0, len(text), size))
