"""From a store's URL to the store, unopened."""

from __future__ import annotations

from pathlib import Path

from sk_agents.exceptions import ConfigurationError
from todo_server.sqlite_tasks import SqliteTasks
from todo_server.tasks import TaskStore

FORMS = "sqlite:///path or postgresql://user:password@host/database"


def task_store(url: str) -> TaskStore:
    """The store that `url` names; the caller enters it.

    Raises:
        ConfigurationError: it names no store we have, or not in its form, or its driver is not
            installed. The message repeats nothing of the URL: there may be a password in it.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and rest.strip("/"):
        return SqliteTasks(Path("/" + rest.lstrip("/")))
    if scheme in {"postgres", "postgresql"} and rest.startswith("//"):
        # Its driver comes with an extra.
        from todo_server.postgres_tasks import PostgresTasks  # noqa: PLC0415

        return PostgresTasks(url)
    raise ConfigurationError(f"the todo store's URL must be {FORMS}; a path is absolute")
