"""An interaction as the events that tell it, and what makes two interactions the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sk_agents.engine.events import (
    Answered,
    Cancelled,
    Event,
    Failed,
    RunEnded,
    RunStarted,
    Thinking,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.models import Part, RunStatus, UserInput
from sk_agents.exceptions import InvalidInput
from sk_agents.wire.events import (
    AnswerEvent,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from sk_agents.wire.views import Interaction

_ENDED = {
    InteractionStatus.COMPLETED: RunStatus.COMPLETED,
    InteractionStatus.FAILED: RunStatus.FAILED,
    InteractionStatus.CANCELLED: RunStatus.CANCELLED,
}


def events_of(interaction: Interaction, parent: str | None) -> Iterator[Event]:
    """The events of an interaction, in the order they must have happened.

    Raises:
        InvalidInput: it has not ended, or it makes no sense.
    """
    status = _ENDED.get(interaction.status)
    if status is None or interaction.completed_at is None:
        raise InvalidInput("Only an interaction that has ended can be saved.")
    run_id, began = interaction.id, _time(interaction.created_at)
    message = UserInput(parts=(Part(content=interaction.user_message),))
    yield RunStarted(run_id=run_id, at=began, message=message, parent_run=parent)
    for event in _steps(interaction):
        yield event.model_copy(update={"run_id": run_id, "at": began})
    ended = _time(interaction.completed_at)
    if status is RunStatus.FAILED:
        text = "This interaction was saved as failed."
        yield Failed(run_id=run_id, at=ended, code="saved_as_failed", message=text)
    if status is RunStatus.CANCELLED:
        yield Cancelled(run_id=run_id, at=ended)
    yield RunEnded(run_id=run_id, at=ended, status=status)  # type: ignore[arg-type]  # one of three


def _steps(interaction: Interaction) -> Iterator[Event]:
    open_calls: dict[str, str] = {}
    number, has_results = 1, False
    for event in interaction.agent_events:
        if has_results and not isinstance(event, ToolResultEvent):
            number, has_results = number + 1, False
        match event:
            case ThinkingEvent():
                yield Thinking(round=number, content=event.content)
            case ToolCallEvent():
                open_calls[event.id] = event.tool_name
                yield _proposed(event, number)
                yield ToolStarted(call_id=event.id)
            case ToolResultEvent():
                if open_calls.pop(event.id, None) != event.tool_name:
                    raise InvalidInput("A tool result belongs to no open call.")
                has_results = True
                yield ToolFinished(call_id=event.id, result=event.tool_output)
            case AnswerEvent():
                if event is not interaction.agent_events[-1]:
                    raise InvalidInput("An answer is the last thing said.")
                yield Answered(round=number, content=event.content)
    if open_calls:
        raise InvalidInput("Every tool call needs its result.")


def _proposed(event: ToolCallEvent, number: int) -> ToolProposed:
    plugin, dash, function = event.tool_name.partition("-")
    arguments = _parsed(event.tool_input)
    if not isinstance(arguments, dict):
        raise InvalidInput("A tool's input is a JSON object.")
    return ToolProposed(
        round=number,
        call_id=event.id,
        plugin_name=plugin if dash else "",
        function_name=function if dash else event.tool_name,
        arguments=arguments,
        gated=False,
    )


def essence(interaction: Interaction, like: Interaction | None = None) -> Any:
    """What two versions of an interaction must agree on.

    JSON inside texts may be spaced differently, a state left out is that of `like`, and the dates
    are those of the first time.
    """
    if like is not None and interaction.final_agent_state is None:
        interaction = interaction.model_copy(update={"final_agent_state": like.final_agent_state})
    return _plain(interaction.model_dump(exclude={"created_at", "completed_at"}))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _parsed(item) if key in ("tool_input", "arguments") else _plain(item)
            for key, item in value.items()
        }
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput("A time is written as ISO 8601.") from None
    if time.tzinfo is None:
        raise InvalidInput("A time has its zone.")
    return time
