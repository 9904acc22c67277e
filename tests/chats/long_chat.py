"""Chats as a long use of the server would have left them."""

from __future__ import annotations

from pathlib import Path

from sk_agents.engine.events import Answered, Event, RunEnded, RunStarted
from sk_agents.engine.log.commits import Absent, Commit, Unchanged
from sk_agents.engine.models import NewThread, Part, RunStatus, UserInput
from sk_agents.interactions import chat_thread_id
from sk_agents.persistence.store_factory import open_store
from tests.chats.serving import Served


def turns(number: int, *, padding: int = 0) -> list[Event]:
    """So many in a row; each answer is followed by so many dots."""
    return [event for n in range(number) for event in turn(n, n - 1 if n else None, padding)]


def turn(number: int, parent: int | None, padding: int = 0) -> list[Event]:
    run_id = f"int_{number}"
    message = UserInput(parts=(Part(content=f"message {number}"),))
    follows = f"int_{parent}" if parent is not None else None
    return [
        RunStarted(run_id=run_id, message=message, parent_run=follows),
        Answered(run_id=run_id, content=f"answer {number}" + "." * padding),
        RunEnded(run_id=run_id, status=RunStatus.COMPLETED),
    ]


async def fill(folder: Path, events: list[Event], *, at_once: int = 3000) -> None:
    """Write chat `c` into the SQLite file of a server that is not running, by so large commits."""
    thread_id = chat_thread_id("dummyuser", "c")
    new = NewThread("dummyuser", wire_id="c", surface="chats", agent="helper")
    await fill_thread(f"sqlite:///{folder}/chats.sqlite", thread_id, new, events, at_once=at_once)


async def fill_thread(
    url: str, thread_id: str, new: NewThread, events: list[Event], *, at_once: int = 3000
) -> None:
    async with open_store(url) as store:
        for start in range(0, len(events), at_once):
            guard = Unchanged(start + 1) if start else Absent(new)
            part = tuple(events[start : start + at_once])
            await store.commit(Commit(thread_id, f"fill {start}", guard, part))


async def pages_of(served: Served, query: str = "") -> list[list[str]]:
    pages, before = [], ""
    while True:
        page = await served.get(f"/chats/c?{query}{before}")
        pages.append([entry["user_message"] for entry in page["interactions"]])
        assert page["truncated"] is (page["next"] is not None)
        if page["next"] is None:
            return pages
        before = f"&before={page['next']}"
