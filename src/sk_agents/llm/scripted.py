"""`scripted/...`: a model that says what a file says, for tests, demos and the tour.

Which turn is played depends only on the prompt, not on what was played before: so any number of
conversations share one player, and one that is continued after a crash goes on where it was.

`rules` are tried in order against the last message of the user. The first whose `match` is found
plays its `turns`, one for each round of tool calls, the last one for all further rounds. Where no
rule matches, the script's own `turns` follow one another. A turn with `cases` asks further: the
first case whose `when` holds is played in its place, else the turn itself. `when` looks at the last
message (`user`) and at the results of the last round (`result`; one that matches is enough).

What a pattern names, `(?P<who>...)`, is filled into texts and arguments as `{who}`, or
`{who|somebody}` where it may be absent; `{user}` is the last message, `{result}` the last result
and `{results}` those of the last round with their tools. Other braces are left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

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
from sk_agents.llm.failures import Timing
from sk_agents.llm.openai_wire import encoded
from sk_agents.llm.tokens import estimate_prompt, estimate_text

Failure = Literal["rate_limited", "unavailable", "interrupted", "protocol", "refused", "context"]

MARK = re.compile(r"\{(\w+)(?:\|([^{}|]*))?\}")

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


def _compilable(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compilable)]
Pieces = Literal["words"] | Annotated[int, Field(ge=1, le=10_000)]
"""Into how many pieces a text is cut; `words`: one for each word."""
Milliseconds = Annotated[float, Field(ge=0, le=600_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ScriptedCall(_Strict):
    tool: str
    arguments: dict[str, Any] = {}


class When(_Strict):
    """All that is given must hold."""

    user: Pattern | None = None
    result: Pattern | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.user is None and self.result is None:
            raise ValueError("needs user or result")
        return self


class ScriptedTurn(_Strict):
    """One reply. What it leaves out about its timing, the script says.

    A failure comes after what the turn says; with `fail_times`, only so often per player.
    """

    when: When | None = None
    cases: tuple[ScriptedTurn, ...] = ()
    thinking: str = ""
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    pieces: Pieces | None = None
    delay_ms: Milliseconds | None = None
    finish: str | None = None
    fail: Failure | None = None
    fail_times: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _cases_have_conditions(self) -> Self:
        if any(case.when is None for case in self.cases):
            raise ValueError("each of cases needs a when; the turn itself is for all others")
        return self


def _unconditional(turns: tuple[ScriptedTurn, ...]) -> tuple[ScriptedTurn, ...]:
    if any(turn.when is not None for turn in turns):
        raise ValueError("a when belongs to one of a turn's cases")
    return turns


Turns = Annotated[tuple[ScriptedTurn, ...], Field(min_length=1), AfterValidator(_unconditional)]


class ScriptRule(_Strict):
    """The turns of a run whose message matches: the first, and after results the following."""

    match: Pattern
    turns: Turns


class ModelScript(_Strict):
    """Rules first, in order; where none matches, `turns` one after the other, then again."""

    pieces: Pieces = 1
    delay_ms: Milliseconds = 0
    rules: tuple[ScriptRule, ...] = ()
    turns: Turns


def chosen_turn(
    script: ModelScript, messages: Sequence[Message]
) -> tuple[ScriptedTurn, Mapping[str, str]]:
    """The turn to play, and what its marks stand for."""
    last = max((n for n, m in enumerate(messages) if m.role == "user"), default=-1)
    user = text_of(messages[last]) if last >= 0 else ""
    results = last_results(messages)
    values = {
        "user": user,
        "result": next((text_of(m) for m in reversed(messages) if m.role == "tool"), ""),
        "results": "\n".join(f"- `{tool}`: {result}" for tool, result in results),
    }
    turn = script.turns[_replies(messages) % len(script.turns)]
    for rule in script.rules:
        if found := re.search(rule.match, user):
            values |= _named(found)
            turn = rule.turns[min(_replies(messages[last:]), len(rule.turns) - 1)]
            break
    while (case := _case(turn, user, [result for _, result in results])) is not None:
        turn = case[0]
        values |= case[1]
    return turn, values


def last_results(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Tool and result of each call of the last round, if the prompt ends in one."""
    results: list[tuple[str | None, str]] = []
    for message in reversed(messages):
        if message.role != "tool":
            names = {call.id: call.name for call in message.tool_calls}
            return [(names.get(call or "", ""), text) for call, text in reversed(results)]
        results.append((message.tool_call_id, text_of(message)))
    return []


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its marks replaced; what is no mark of this script stays as it is."""

    def value(mark: re.Match[str]) -> str:
        name, default = mark[1], mark[2]
        if name not in values:
            return mark[0]
        return values[name] or default or ""

    return MARK.sub(value, text)


def filled_in(value: Any, values: Mapping[str, str]) -> Any:
    """The same for every text inside a JSON value."""
    match value:
        case str():
            return filled(value, values)
        case dict():
            return {key: filled_in(inner, values) for key, inner in value.items()}
        case list():
            return [filled_in(inner, values) for inner in value]
        case _:
            return value


def text_of(message: Message) -> str:
    texts = [part.text for part in message.parts if part.kind != "image"]
    return message.content or "\n".join(texts)


def _case(
    turn: ScriptedTurn, user: str, results: Sequence[str]
) -> tuple[ScriptedTurn, Mapping[str, str]] | None:
    for case in turn.cases:
        assert case.when is not None
        found = [
            next(filter(None, (re.search(pattern, text) for text in texts)), None)
            for pattern, texts in ((case.when.user, [user]), (case.when.result, results))
            if pattern is not None
        ]
        if all(found):
            return case, {k: v for match in found if match for k, v in _named(match).items()}
    return None


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: text or "" for name, text in match.groupdict().items()}


def _replies(messages: Sequence[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)


class ScriptPlayer:
    """A `Model` that plays a script. `slowness` multiplies its pauses; 0 leaves them out."""

    def __init__(
        self, script: ModelScript, timing: Timing | None = None, *, slowness: float = 1.0
    ) -> None:
        self._script = script
        self._timing = timing or Timing()
        self._slowness = slowness
        self._failed: Counter[int] = Counter()

    def slowed(self, slowness: float) -> ScriptPlayer:
        return ScriptPlayer(self._script, self._timing, slowness=slowness)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        script = self._script
        turn, values = chosen_turn(script, prompt.messages)
        thinking, said = filled(turn.thinking, values), filled(turn.text, values)
        pieces = turn.pieces or script.pieces
        pause = script.delay_ms if turn.delay_ms is None else turn.delay_ms
        for delta in (*_cut(thinking, pieces, ReasoningDelta), *_cut(said, pieces)):
            if pause and self._slowness:
                await self._timing.sleep(pause * self._slowness / 1000)
            yield [delta]
        if turn.fail is not None and self._fails_now(turn):
            raise FAILURES[turn.fail]
        calls = [
            CallRequested(
                f"scripted_{number}", call.tool, encoded(filled_in(call.arguments, values)).decode()
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
