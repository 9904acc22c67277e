"""The language of scripts: what a `scripted/` model says to whom.

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
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sk_agents.engine.models import Message
from sk_agents.llm.openai_wire import part_text

Failure = Literal["rate_limited", "unavailable", "interrupted", "protocol", "refused", "context"]

MARK = re.compile(r"\{(\w+)(?:\|([^{}|]*))?\}")


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


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ScriptedCall(Strict):
    tool: str
    arguments: dict[str, Any] = {}


class When(Strict):
    """All that is given must hold."""

    user: Pattern | None = None
    result: Pattern | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.user is None and self.result is None:
            raise ValueError("needs user or result")
        return self


class ScriptedTurn(Strict):
    """One reply. What it leaves out about its pace, the script says.

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


class Rule(Strict):
    """The turns of a run whose message matches: the first, and after results the following."""

    match: Pattern
    turns: Turns


class ModelScript(Strict):
    """Rules first, in order; where none matches, `turns` one after the other, then again."""

    pieces: Pieces = 1
    delay_ms: Milliseconds = 0
    rules: tuple[Rule, ...] = ()
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
    texts = [part_text(part) for part in message.parts if part.kind != "image"]
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
