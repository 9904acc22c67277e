"""Sees what an operator changes beside the server: access keys, roles, encryption keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Self

from sk_agents.audit.server_log import ServerLog, remembered
from sk_agents.engine.services import BackgroundTask
from sk_agents.exceptions import TealError

logger = logging.getLogger(__name__)

SECONDS = 5.0

# What there is now, by an id: text that says what each is. Raises ConfigurationError.
Table = Callable[[], Mapping[str, str]]


class TableWatch(BackgroundTask):
    """Has the log note how each table differs from what it noted last, also of times in which no
    server ran. Processes that see the same change note it once."""

    def __init__(self, log: ServerLog, tables: Mapping[str, Table]) -> None:
        self._log = log
        self._tables = tables
        self._noted: dict[str, Mapping[str, str]] = {}

    async def __aenter__(self) -> Self:
        await self.look()
        return await super().__aenter__()

    async def look(self) -> None:
        for name, read in self._tables.items():
            try:
                table = read()
                if self._noted.get(name) != table:
                    await self._log.append(remembered(name, table))
                    self._noted[name] = table
            except TealError as error:
                logger.warning(
                    "a change could not be noted", extra={"table": name, "reason": str(error)}
                )

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            await self.look()
