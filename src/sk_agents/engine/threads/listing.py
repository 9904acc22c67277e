"""What a store is asked for when it lists threads, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from sk_agents.engine.models import Thread


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """`text` matches, without regard to case, the title and what was said in the thread."""

    user_id: str
    surface: str | None = None
    session_id: str | None = None
    text: str | None = None
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Most recently changed first. `after` continues the listing; `None` at its end."""

    threads: tuple[Thread, ...]
    after: str | None = None
