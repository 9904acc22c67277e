"""What the clients of an experiment did and saw, for its checker.

A request that was not answered may still be carried out, as late as its server pleases: of a
deletion nothing is known then, and so of what it may delete.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import Any

# The cursor that says so.
BEGINNING = "0"
# Problems that no client needs to see more often.
MANY = 200


@dataclass(slots=True)
class Message:
    """`acked` is when its interaction was announced; until then it may be there or not.

    Of one that needed several `attempts`, an early one may be taken late, by an instance that was
    stopped: if its chat was deleted in between, its key was too, and it makes the chat again.
    """

    client: str
    chat: str
    token: str
    sent: float
    acked: float = inf
    interaction: str = ""
    attempts: int = 0


@dataclass(slots=True)
class Deletion:
    """`acked` is when it was confirmed; an unconfirmed one may happen at any time after `sent`."""

    chat: str
    sent: float
    acked: float = inf
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    id: str
    name: str
    data: dict[str, Any]


@dataclass(slots=True)
class Reading:
    """The stored frames that one client saw, over however many connections.

    They are those of an interaction, or of the whole chat if none is named and none was begun.
    `after` is the id that it began behind; none if it began at the beginning. `message` is what
    the client began the interaction with, if it did.
    """

    client: str
    chat: str
    interaction: str = ""
    after: str | None = None
    message: Message | None = None
    frames: list[Frame] = field(default_factory=list)

    def take(self, frame: Frame, now: float) -> None:
        self.frames.append(frame)
        if self.is_unknown and frame.name in ("interaction_started", "interaction_queued"):
            assert self.message is not None
            self.interaction = frame.data["interaction_id"]
            self.message.interaction, self.message.acked = self.interaction, now

    @property
    def is_unknown(self) -> bool:
        """Whether it is of an interaction that has not been announced yet."""
        return self.message is not None and not self.interaction

    @property
    def is_of_chat(self) -> bool:
        return self.message is None and not self.interaction

    @property
    def path(self) -> str:
        if self.is_of_chat:
            return f"/chats/{self.chat}/events"
        return f"/chats/{self.chat}/interactions/{self.interaction}/events"

    @property
    def last_id(self) -> str | None:
        return self.frames[-1].id if self.frames else self.after

    @property
    def has_ended(self) -> bool:
        """A chat has no end."""
        has_last = bool(self.frames) and self.frames[-1].name == "interaction_complete"
        return has_last and not self.is_of_chat


@dataclass(frozen=True, slots=True)
class Order:
    """A cancel (`approval_id` is empty) or a decision that a server has confirmed.

    `owner` drove the run right after, if any process did.
    """

    client: str
    chat: str
    interaction: str
    approval_id: str
    instance: int
    sent: float
    owner: int | None


class History:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.deletions: list[Deletion] = []
        self.readings: list[Reading] = []
        self.orders: list[Order] = []
        # How often a person asked for a call to be run once more, by run and call.
        self.retries: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[str] = Counter()
        self.problems: list[str] = []
        self._numbers = itertools.count(1)

    def new_message(self, client: str, chat: str, now: float) -> Message:
        message = Message(client, chat, f"m{next(self._numbers)}", now)
        self.messages.append(message)
        return message

    def problem(self, text: str) -> None:
        if len(self.problems) < MANY:
            self.problems.append(text)

    def acked_messages(self, chat: str | None = None) -> list[Message]:
        return [
            message
            for message in self.messages
            if message.acked < inf and chat in (None, message.chat)
        ]

    def is_deleted_at_times(self, chat: str) -> bool:
        return any(one.chat == chat for one in self.deletions)

    def may_be_deleted(self, message: Message) -> bool:
        """Whether a deletion of its chat may have come after the message."""
        return any(one.chat == message.chat and one.acked > message.sent for one in self.deletions)

    def must_be_deleted(self, message: Message) -> bool:
        """Whether a deletion of its chat has certainly come after the message."""
        return any(
            one.chat == message.chat and one.is_done and one.sent > message.acked
            for one in self.deletions
        )
