"""`model_settings` of the SDK in the words of an agent file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

# Fitted to the model, if only by the SDK's defaults: not wanted where another one is named.
OF_THE_MODEL = {"reasoning", "verbosity"}
# What requests carry by the same name as OpenAI's own.
_IN_THE_BODY = ("frequency_penalty", "presence_penalty", "extra_args", "extra_body")
_KNOWN = {
    *("temperature", "max_tokens", "reasoning", "tool_choice", "parallel_tool_calls", "top_p"),
    *("extra_headers", "extra_query"),
    *_IN_THE_BODY,
}


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """`client` are those that belong to every request of a model: keys of an agent file."""

    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    client: Mapping[str, Any] = field(default_factory=dict)


def settings_of(given: Any, place: str) -> RoundSettings:
    """Raises ConfigurationError: a choice of tools that cannot be made here."""
    choice = getattr(given, "tool_choice", None)
    if choice is not None and not isinstance(choice, str):
        raise ConfigurationError(
            f"{place}model_settings.tool_choice is a {type(choice).__name__}, which is not "
            "supported here; auto, none, required or a tool's name is"
        )
    return RoundSettings(
        temperature=getattr(given, "temperature", None),
        max_tokens=getattr(given, "max_tokens", None),
        reasoning_effort=getattr(getattr(given, "reasoning", None), "effort", None),
        tool_choice=choice,
        parallel_tool_calls=getattr(given, "parallel_tool_calls", None),
        client=dict(_client(given)),
    )


def report_dropped(given: Any, place: str, *, has_own_model: bool) -> None:
    """Say which of them have no effect; those that were fitted to another model go unsaid."""
    known = _KNOWN if has_own_model else _KNOWN | OF_THE_MODEL
    dropped = sorted(changed_fields(given, known))
    if dropped:
        logger.warning("%smodel_settings have no effect here: %s", place, ", ".join(dropped))


def _client(given: Any) -> Iterator[tuple[str, Any]]:
    if (top_p := getattr(given, "top_p", None)) is not None:
        yield "top_p", top_p
    body: dict[str, Any] = {}
    for name in _IN_THE_BODY:
        value = getattr(given, name, None)
        if isinstance(value, Mapping):
            body |= value
        elif value is not None:
            body[name] = value
    if body:
        yield "extra_body", body
    for name, key in (("extra_headers", "headers"), ("extra_query", "query")):
        if value := getattr(given, name, None):
            yield key, {str(one): str(text) for one, text in value.items()}


def changed_fields(thing: Any, known: set[str]) -> Iterator[str]:
    """Public fields outside of `known` that have another value than by default."""
    for entry in fields(thing):
        if entry.name in known or entry.name.startswith("_"):
            continue
        factory = entry.default_factory
        default = entry.default if factory is MISSING else factory()
        if getattr(thing, entry.name) != default:
            yield entry.name
