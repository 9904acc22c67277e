"""Tasks, and what every place that keeps them promises. Every operation is about one user's tasks
and sees no others.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict

from sk_agents.exceptions import InvalidInput, NotFound

State = Literal["open", "done", "all"]


class Task(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: int
    title: str
    notes: str
    due: date | None
    created_at: str
    completed_at: str | None


class TaskNotFound(NotFound):
    """There is no such task."""


class TaskStore(Protocol):
    """Opened by entering it, on one event loop. Several processes may share the same database:
    each operation is one transaction, and ends within a bounded time also if the database hangs.

    Any operation raises InvalidInput for a text or a user's name that not every database can keep,
    and StoreError when the database cannot serve it; nothing was changed then, unless it is
    CommitOutcomeUnknown. The next one tries again.
    """

    async def __aenter__(self) -> Self:
        """Make the tables if there are none; any number of processes may do so at once.

        Raises:
            ConfigurationError: what is there cannot be used, is not a todo list, or was written
                by a newer version; it was not touched.
            StoreUnavailable: the database cannot be reached.
        """

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        """The new task. Its number is the user's next one, and no number is used again: an old
        message must not mean a new task.
        """

    async def list(self, user_id: str, state: State, limit: int) -> list[Task]:
        """Those with a due date first, the most urgent one first, then by number."""

    async def complete(self, user_id: str, id: int) -> Task:
        """Done twice is done once.

        Raises:
            TaskNotFound: this user has no such task.
        """

    async def update(
        self,
        user_id: str,
        id: int,
        *,
        title: str | None = None,
        notes: str | None = None,
        due: date | None = None,
    ) -> Task:
        """What is `None` stays as it is.

        Raises:
            TaskNotFound: this user has no such task.
        """

    async def delete(self, user_id: str, id: int) -> Task:
        """The task as it was.

        Raises:
            TaskNotFound: this user has no such task.
        """


def check_texts(*texts: str | None) -> None:
    """Raises InvalidInput for what PostgreSQL or UTF-8 cannot hold, wherever the tasks lie."""
    for text in filter(None, texts):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidInput("The text holds characters that cannot be stored.")


def not_found(id: int) -> TaskNotFound:
    return TaskNotFound(f"There is no task {id}.")


def shown_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
