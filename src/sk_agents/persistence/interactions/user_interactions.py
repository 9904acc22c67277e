"""The operator's own `InteractionStore`, called: a method may be plain or a coroutine, raise
anything, and answer with models of its own."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from sk_agents import exceptions as errors
from sk_agents.config.class_loader import build_configured
from sk_agents.config.settings import Settings
from sk_agents.engine.models import Thread
from sk_agents.persistence.interaction_store import USER, InteractionStore
from sk_agents.wire.events import AnswerEvent, InteractionStatus
from sk_agents.wire.views import AgentState, ChatMessage, Interaction
from sk_agents.worker_threads import WorkerThreads

SOURCE = "TA_INTERACTION_STORE_MODULE, TA_INTERACTION_STORE_CLASS"
DELETE = "delete_chat"
# After so many seconds a call has failed.
CALL_SECONDS = 30.0
THREADS = 8
# What a class may raise for a chat that it does not have.
ABSENT = (errors.NotFound, LookupError, FileNotFoundError)
# No chat of a user has an id with a full stop.
PROBE_CHAT = "start-up.probe"
PROBE = Interaction(
    id="int_probe",
    status=InteractionStatus.COMPLETED,
    user_message="Is what is saved kept?",
    agent_events=[AnswerEvent(content="Yes.")],
    final_agent_state=AgentState(
        messages=[
            ChatMessage(role="user", content="Is what is saved kept?"),
            ChatMessage(role="assistant", content="Yes."),
        ]
    ),
    created_at="2025-01-15T10:00:00Z",
    completed_at="2025-01-15T10:00:05Z",
)


def own_interactions(settings: Settings) -> UserInteractions | None:
    """The class that the settings name, if they name one.

    Raises:
        ConfigurationError: it cannot be loaded or built, or another setting asks for more than it
            can do.
    """
    module, name = settings.interaction_store_module, settings.interaction_store_class
    if module is None or name is None:
        return None
    if settings.encrypts:
        raise errors.ConfigurationError(
            "TA_INTERACTION_STORE_MODULE and TA_ENCRYPTION_KEYS are both set: the class would be "
            "given each interaction in plain text"
        )
    base = InteractionStore
    own = UserInteractions(
        build_configured(module, name, base, settings, source=SOURCE)  # type: ignore[type-abstract]  # a base to check against
    )
    if settings.retention and not own.deletes:
        raise errors.ConfigurationError(
            f"TA_RETENTION is set, and {own} has no method {DELETE}: what is removed here would "
            "stay there"
        )
    return own


class UserInteractions:
    """Every method raises `StoreUnavailable` for what the class raises, and for a call that takes
    too long."""

    def __init__(self, store: InteractionStore, *, seconds: float = CALL_SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._threads = WorkerThreads(THREADS, most_abandoned=THREADS)
        self._names_user = "user_id" in inspect.signature(store.save_interaction).parameters

    def __str__(self) -> str:
        return f"{type(self._store).__module__}.{type(self._store).__name__}"

    @property
    def deletes(self) -> bool:
        return callable(getattr(self._store, DELETE, None))

    async def save(self, user_id: str, chat_id: str, interaction: Interaction) -> None:
        named = {"user_id": user_id} if self._names_user else {}
        await self._call("save_interaction", copy_id(user_id, chat_id), interaction, **named)

    async def load_chat(self, user_id: str, chat_id: str) -> Sequence[Interaction] | None:
        """Its interactions; `None` if the class has no such chat.

        Raises:
            StateCorrupt: what it returned is no chat.
        """
        return await self._chat(copy_id(user_id, chat_id))

    async def delete_chat(self, thread: Thread) -> None:
        """Raises NotDeletable: the class has no way to."""
        if not self.deletes:
            raise errors.NotDeletable(thread_id=thread.thread_id)
        try:
            await self._call(DELETE, copy_id(thread.user_id, thread.wire_id))
        except _Absent:
            return

    async def probe(self) -> None:
        """Prove that the class keeps what it is given, and says what it does not have.

        Raises:
            ConfigurationError: it does not.
        """
        if await self._chat(f"start-up.{uuid.uuid4().hex}") is not None:
            raise errors.ConfigurationError(
                f"TA_INTERACTION_STORE_CLASS: {self}: load_chat of a chat that was never saved "
                "must return None or raise KeyError, FileNotFoundError or ThreadNotFound"
            )
        first = PROBE.model_copy(update={"agent_events": [AnswerEvent(content="Not yet.")]})
        for version in (first, PROBE):
            named = {"user_id": USER} if self._names_user else {}
            await self._call("save_interaction", PROBE_CHAT, version, **named)
        if not await self._keeps_probe():
            raise errors.ConfigurationError(
                f"TA_INTERACTION_STORE_CLASS: {self} does not return an interaction as it was "
                "saved last, so it cannot keep a chat"
            )
        if not await self._knows_the_first():
            raise errors.ConfigurationError(
                f"TA_INTERACTION_STORE_CLASS: {self}: get_previous_state of a chat's first "
                "interaction must return None"
            )
        if self.deletes:
            await self._call(DELETE, PROBE_CHAT)
            if await self._chat(PROBE_CHAT) is not None:
                raise errors.ConfigurationError(
                    f"TA_INTERACTION_STORE_CLASS: {self}: {DELETE} does not delete a chat"
                )

    async def _keeps_probe(self) -> bool:
        kept = await self._chat(PROBE_CHAT) or []
        try:
            loaded = await self._read(_interaction, "load_interaction", PROBE_CHAT, PROBE.id)
        except _Absent:
            return False
        return [_essence(one) for one in (*kept, loaded)] == [_essence(PROBE)] * 2

    async def _knows_the_first(self) -> bool:
        try:
            return not await self._call("get_previous_state", PROBE_CHAT, PROBE.id)
        except _Absent:
            return False

    async def _chat(self, chat_id: str) -> Sequence[Interaction] | None:
        try:
            chat = await self._read(_interactions, "load_chat", chat_id)
        except _Absent:
            return None
        # Some classes know no chat without interactions, others none that is not there.
        return chat or None

    async def _read(self, parse: Callable[[Any], Any], name: str, *arguments: str) -> Any:
        try:
            return parse(await self._call(name, *arguments))
        except (ValidationError, TypeError, KeyError, AttributeError) as error:
            raise errors.StateCorrupt(f"{self}: {name} returned no chat of ours.") from error

    async def _call(self, name: str, *arguments: Any, **named: str) -> Any:
        method = getattr(self._store, name)
        try:
            async with asyncio.timeout(self._seconds):
                if inspect.iscoroutinefunction(method):
                    return await method(*arguments, **named)
                result = await self._threads.run(lambda: method(*arguments, **named))
                return await result if inspect.isawaitable(result) else result
        except ABSENT as error:
            if name == "save_interaction":
                raise self._failed(name, error) from error
            raise _Absent from error
        except Exception as error:
            raise self._failed(name, error) from error

    def _failed(self, name: str, error: Exception) -> errors.StoreUnavailable:
        # Only the kind of error is shown: its text may hold an address or a password.
        return errors.StoreUnavailable(f"{self}: {name} failed with {type(error).__name__}.")


class _Absent(errors.StoreUnavailable):
    """The class has no such chat."""


def copy_id(user_id: str, chat_id: str) -> str:
    """Under which id the class keeps a chat: its own for the development user. Other users have ids
    of their own choice, so theirs say whose they are; no chat of a user has a full stop in its id.
    """
    if user_id == USER:
        return chat_id
    return f"{chat_id}.{hashlib.sha256(user_id.encode()).hexdigest()[:32]}"


def _interactions(chat: Any) -> list[Interaction]:
    if chat is None:
        return []
    found = chat["interactions"] if isinstance(chat, dict) else chat.interactions
    return [_interaction(one) for one in found]


def _interaction(found: Any) -> Interaction:
    """As ours, whichever model the class has for it."""
    if isinstance(found, Interaction):
        return found
    if isinstance(found, BaseModel):
        found = found.model_dump(mode="json")
    return Interaction.model_validate(found)


def _essence(interaction: Interaction) -> object:
    return interaction.model_dump(include={"id", "status", "user_message", "agent_events"})
