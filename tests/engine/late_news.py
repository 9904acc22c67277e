"""A store in which something is stored, and readable, before its sender hears of it."""

import asyncio
from pathlib import Path

from sk_agents.engine.events import LogEvent
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.persistence.sqlite.store import SqliteStore


class LateNews(SqliteStore):
    """Keeps commits with such an event to itself until it `may_tell`."""

    def __init__(self, path: Path, kind: type[LogEvent]) -> None:
        super().__init__(path)
        self._kind = kind
        self.is_stored, self.may_tell = asyncio.Event(), asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        if any(isinstance(event, self._kind) for event in commit.events):
            self.is_stored.set()
            await self.may_tell.wait()
        return done
