"""Interactions kept and read back one by one: the seed's four methods over any store.

A view of the log, as `tasks.view` is for tasks: what is saved becomes events, what is loaded is
their fold. So the server reads what was saved here and the other way round, and nothing that was
said can be changed afterwards.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sk_agents import exceptions as errors
from sk_agents.engine.events import (
    Answered,
    Cancelled,
    Event,
    Failed,
    RunEnded,
    RunStarted,
    Steered,
    SteeringDelivered,
    Thinking,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.commits import Absent, Commit, Guard, Unchanged
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import NewThread, Part, RunStatus, Thread, Usage, UserInput
from sk_agents.engine.ports import Store
from sk_agents.interactions import agent_state, chat_thread_id, interaction_of
from sk_agents.persistence.file.store import FileStore
from sk_agents.wire.events import (
    AnswerEvent,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from sk_agents.wire.views import AgentState, Interaction, StoredChat

SURFACE = "chats"
USER = "dummyuser"
MAX_ATTEMPTS = 100

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Those of what was said to an interaction at work.
_DATES: dict[str, Any] = {"steering": {"__all__": {"at"}}}
_ENDED = {
    InteractionStatus.COMPLETED: RunStatus.COMPLETED,
    InteractionStatus.FAILED: RunStatus.FAILED,
    InteractionStatus.CANCELLED: RunStatus.CANCELLED,
}


class InteractionStore(ABC):
    @abstractmethod
    async def save_interaction(self, chat_id: str, interaction: Interaction) -> None:
        """Keep an interaction with its final state; the chat is made if it is not there."""

    @abstractmethod
    async def load_interaction(self, chat_id: str, interaction_id: str) -> Interaction:
        """One interaction.

        Raises:
            ThreadNotFound, RunNotFound: no such chat, or none in it.
        """

    @abstractmethod
    async def load_chat(self, chat_id: str) -> StoredChat:
        """The chat with its visible interactions, oldest first.

        Raises:
            ThreadNotFound: no such chat.
        """

    @abstractmethod
    async def get_previous_state(self, chat_id: str, interaction_id: str) -> AgentState | None:
        """Everything said before this interaction; `None` before the first.

        Raises:
            ThreadNotFound, RunNotFound: no such chat, or none in it.
        """


class StoredInteractions(InteractionStore):
    """The chats of `user_id` in `store`, which the caller opens and closes.

    `agent` answers when a chat that was made here is continued at the server.
    """

    def __init__(self, store: Store, user_id: str = USER, *, agent: str = "") -> None:
        self._store = store
        self._user_id = user_id
        self._agent = agent

    async def save_interaction(self, chat_id: str, interaction: Interaction) -> None:
        """Append an interaction that has ended; the same once more changes nothing.

        Its state may be left out. If it is there, it must be what was said in the chat up to its
        end: a state follows from the conversation and is not kept beside it.

        Raises:
            InvalidInput: it has not ended, it makes no sense, or its state is of another chat.
            Conflict: another one is kept under this id.
            ThreadBusy: an interaction of this chat is active.
        """
        _check_ids(chat_id, interaction.id)
        for _ in range(MAX_ATTEMPTS):
            try:
                head, state = await self._read(chat_id)
                incarnation: str | None = head.incarnation
            except errors.ThreadNotFound:
                state, incarnation = ThreadState(), None
            if interaction.id in state.runs:
                kept = interaction_of(state, interaction.id)
                if _essence(kept) != _essence(interaction, kept):
                    raise errors.Conflict(
                        "A kept interaction cannot be changed.", run_id=interaction.id
                    )
                return
            if state.active_run is not None or state.queue:
                raise errors.ThreadBusy(run_id=state.active_run)
            events = tuple(
                _events_of(interaction, _parent(interaction, state.runs, state.head_run))
            )
            guard: Guard = Unchanged(state.next_seq)
            if state.next_seq == 1:
                new = NewThread(self._user_id, wire_id=chat_id, surface=SURFACE, agent=self._agent)
                guard = Absent(new)
            _check_state(interaction, state, events)
            try:
                return await self._commit(chat_id, guard, events, incarnation)
            except (errors.SequenceConflict, errors.ThreadExists, errors.ThreadNotFound):
                continue
        raise errors.Conflict(run_id=interaction.id)

    async def load_interaction(self, chat_id: str, interaction_id: str) -> Interaction:
        _, state = await self._read(chat_id)
        _check_known(state, interaction_id)
        return interaction_of(state, interaction_id)

    async def load_chat(self, chat_id: str) -> StoredChat:
        head, state = await self._read(chat_id)
        return StoredChat(
            id=chat_id,
            interactions=[interaction_of(state, run.run_id) for run in state.branch()],
            created_at=head.created_at.isoformat(),
        )

    async def get_previous_state(self, chat_id: str, interaction_id: str) -> AgentState | None:
        _, state = await self._read(chat_id)
        _check_known(state, interaction_id)
        parent = state.run(interaction_id).parent_run
        return agent_state(state, parent) if parent is not None else None

    async def _read(self, chat_id: str) -> tuple[Thread, ThreadState]:
        thread_id = chat_thread_id(self._user_id, chat_id)
        head = await self._store.thread(thread_id)
        state = ThreadState()
        while events := await self._store.events_after(
            thread_id, state.next_seq - 1, incarnation=head.incarnation
        ):
            for event in events:
                state.apply(event)
        return head, state

    async def _commit(
        self, chat_id: str, guard: Guard, events: tuple[Event, ...], incarnation: str | None
    ) -> None:
        thread_id = chat_thread_id(self._user_id, chat_id)
        commit = Commit(thread_id, uuid.uuid4().hex, guard, events, incarnation=incarnation)
        try:
            await self._store.commit(commit)
        except errors.CommitOutcomeUnknown:
            await self._store.commit(commit)


class FileInteractionStore(StoredInteractions):
    """Interactions as JSON files under `folder`, open while it is entered."""

    def __init__(self, folder: Path, user_id: str = USER, *, agent: str = "") -> None:
        self._files = FileStore(folder, single_user=user_id)
        super().__init__(self._files, user_id, agent=agent)

    async def __aenter__(self) -> Self:
        await self._files.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._files.__aexit__(*exc_info)


def _check_state(interaction: Interaction, state: ThreadState, events: tuple[Event, ...]) -> None:
    """The log as it would be must hold the very interaction that is to be saved."""
    try:
        for seq, event in enumerate(events, state.next_seq):
            state.apply(event.model_copy(update={"seq": seq}))
    except errors.StateCorrupt as error:
        raise errors.InvalidInput(f"This cannot have happened: {error}") from error
    kept = interaction_of(state, interaction.id)
    if _essence(kept) != _essence(interaction, kept):
        raise errors.InvalidInput("The final state is not what was said in this chat.")


def _check_ids(*ids: str) -> None:
    if not all(_ID.fullmatch(id) for id in ids):
        raise errors.InvalidInput("An id has 1 to 64 letters, digits, hyphens and underscores.")


def _check_known(state: ThreadState, interaction_id: str) -> None:
    if interaction_id not in state.runs:
        raise errors.RunNotFound(run_id=interaction_id)


def past_of(interactions: Iterable[Interaction]) -> Iterator[Event]:
    """The log of a chat that consists of these, oldest first; each follows the one it names, or
    else the one before it. Their states are not looked at: they follow from what was said.

    Raises:
        InvalidInput: one of them has not ended, or makes no sense.
    """
    known: list[str] = []
    for interaction in interactions:
        last = known[-1] if known else None
        yield from _events_of(interaction, _parent(interaction, known, last))
        known.append(interaction.id)


def _parent(interaction: Interaction, known: Container[str], last: str | None) -> str | None:
    """One that was made from another and names no parent was the first message said otherwise."""
    named = interaction.parent_id
    if named in known or (named is None and interaction.edits is not None):
        return named
    return last


def _events_of(interaction: Interaction, parent: str | None) -> Iterator[Event]:
    """The events of an interaction, in the order they must have happened.

    Raises:
        InvalidInput: it has not ended, or it makes no sense.
    """
    status = _ENDED.get(interaction.status)
    if status is None or interaction.completed_at is None:
        raise errors.InvalidInput("Only an interaction that has ended can be saved.")
    run_id, began = interaction.id, _time(interaction.created_at)
    message = UserInput(parts=(Part(content=interaction.user_message),))
    yield RunStarted(
        run_id=run_id, at=began, message=message, parent_run=parent, edits=interaction.edits
    )
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
    for index, event in enumerate(interaction.agent_events):
        if has_results and not isinstance(event, ToolResultEvent):
            number, has_results = number + 1, False
        yield from _said_before(interaction, index)
        if given := _given_before(interaction, index):
            answered = _answered_before(interaction, index)
            number += answered
            yield _delivery(given, number, is_after_answer=answered)
        match event:
            case ThinkingEvent():
                yield Thinking(round=number, content=event.content, spoken=event.spoken)
            case ToolCallEvent():
                open_calls[event.id] = event.tool_name
                yield _proposed(event, number)
                yield ToolStarted(call_id=event.id)
            case ToolResultEvent():
                if open_calls.pop(event.id, None) != event.tool_name:
                    raise errors.InvalidInput("A tool result belongs to no open call.")
                has_results = True
                yield ToolFinished(call_id=event.id, result=event.tool_output)
            case AnswerEvent():
                if event is not interaction.agent_events[-1]:
                    raise errors.InvalidInput("An answer is the last thing said.")
                reason = event.finish_reason or "stop"
                yield Answered(round=number, content=event.content, finish_reason=reason)
    if open_calls:
        raise errors.InvalidInput("Every tool call needs its result.")
    last = len(interaction.agent_events)
    yield from _said_before(interaction, last)
    if given := _given_before(interaction, last):
        answered = _answered_before(interaction, last)
        yield _delivery(given, number + (has_results or answered), is_after_answer=answered)


def _said_before(interaction: Interaction, index: int) -> Iterator[Event]:
    """What the user said to the agent at work, just before its event of this index."""
    for one in interaction.steering:
        if one.after_events == index:
            yield Steered(message_id=one.message_id, content=one.content)


def _given_before(interaction: Interaction, index: int) -> tuple[str, ...]:
    """The messages that the model's call got from which the event of this index came."""
    return tuple(
        one.message_id for one in interaction.steering if one.delivered_after_events == index
    )


def _answered_before(interaction: Interaction, index: int) -> bool:
    """Whether the model had answered, and was asked again for what the user had said since."""
    before = interaction.agent_events[index - 1] if index else None
    return isinstance(before, ThinkingEvent) and before.spoken


def _delivery(given: tuple[str, ...], number: int, *, is_after_answer: bool) -> SteeringDelivered:
    usage = Usage() if is_after_answer else None
    return SteeringDelivered(round=number, message_ids=given, usage=usage)


def _proposed(event: ToolCallEvent, number: int) -> ToolProposed:
    plugin, dash, function = event.tool_name.partition("-")
    arguments = _parsed(event.tool_input)
    if not isinstance(arguments, dict):
        raise errors.InvalidInput("A tool's input is a JSON object.")
    return ToolProposed(
        round=number,
        call_id=event.id,
        plugin_name=plugin if dash else "",
        function_name=function if dash else event.tool_name,
        arguments=arguments,
        gated=False,
    )


def _essence(interaction: Interaction, like: Interaction | None = None) -> Any:
    """What two versions of an interaction must agree on.

    JSON inside texts may be spaced differently, a state left out is that of `like`, the dates are
    those of the first time, and the place is where it was put then.
    """
    if like is not None and interaction.final_agent_state is None:
        interaction = interaction.model_copy(update={"final_agent_state": like.final_agent_state})
    left_out = {"created_at", "completed_at", "parent_id", "edits"}
    return _plain(interaction.model_dump(exclude={**dict.fromkeys(left_out, True), **_DATES}))


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
        raise errors.InvalidInput("A time is written as ISO 8601.") from None
    if time.tzinfo is None:
        raise errors.InvalidInput("A time has its zone.")
    return time
