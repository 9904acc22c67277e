"""From a run to the messages a model is sent. Pure.

A prompt never holds a tool call without its result: an ended run is sealed, and an active one is
only asked for its messages once every call of the round has a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice

from sk_agents.engine.calls.call import Call
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Message, Part, RunStatus, ToolCall, UserInput

CUT_SHORT = "[cut short: the user cancelled this answer]"


def run_messages(run: Run) -> Iterator[Message]:
    if run.message is not None:
        yield run.said or _user_message(run, run.message)
    if run.calls:
        yield from _rounds(run)
    if run.answer is not None and run.answer.content.strip():
        yield Message(role="assistant", content=run.answer.content)
    elif run.cancelled is not None and run.cancelled.partial:
        yield Message(role="assistant", content=f"{run.cancelled.partial}\n{CUT_SHORT}")


def _user_message(run: Run, sent: UserInput) -> Message:
    parts = (*sent.parts, Part(content=_context(sent.context))) if sent.context else sent.parts
    if all(part.kind == "text" for part in parts):
        text = "\n".join(part.content for part in parts)
        run.said = Message(role="user", content=text)
    else:
        run.said = Message(role="user", parts=parts)
    return run.said


def _context(context: Mapping[str, str]) -> str:
    """What the client told about its user, apart from what the user said."""
    return "\n".join(["User context:", *(f"{key}: {value}" for key, value in context.items())])


def _rounds(run: Run) -> Iterator[Message]:
    """Made once while the run goes on: the same objects each time, counted and encoded once."""
    yield from run.told
    new = list(_new_rounds(run))
    if run.phase is RunStatus.RUNNING and not run.open_calls:
        run.told.extend(new)
        run.told_calls = len(run.calls)
    yield from new


def _new_rounds(run: Run) -> Iterator[Message]:
    calls_since = islice(run.calls.values(), run.told_calls, None)
    spoken: dict[int, str] | None = None
    for number, group in groupby(calls_since, key=lambda call: call.proposal.round):
        if spoken is None:
            spoken = {thought.round: thought.content for thought in run.thoughts if thought.spoken}
        calls = list(group)
        yield Message(
            role="assistant",
            content=spoken.get(number, ""),
            tool_calls=tuple(tool_call(call) for call in calls),
        )
        yield from _results(calls)


def _results(calls: Iterable[Call]) -> Iterator[Message]:
    for call in calls:
        result = call.finished.result if call.finished is not None else ""
        yield Message(role="tool", content=result, tool_call_id=call.proposal.call_id)


def tool_call(call: Call) -> ToolCall:
    """The call as proposed: what the model itself asked for."""
    proposal = call.proposal
    return ToolCall(
        id=proposal.call_id,
        plugin_name=proposal.plugin_name,
        function_name=proposal.function_name,
        arguments=proposal.arguments,
    )
