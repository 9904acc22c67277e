"""Writes checkpoints: by a running server at intervals, by `teal audit checkpoint` at once."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from sk_agents.audit.checkpoints import Signer
from sk_agents.audit.server_log import ServerLog
from sk_agents.audit.trail import CHECKPOINT, COVERED, LAST
from sk_agents.engine.events import Event, Noted, ThreadChanged
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Clock, Count, PortableStore
from sk_agents.engine.services import BackgroundTask
from sk_agents.engine.threads.heads import heads_since
from sk_agents.exceptions import ConfigurationError, CounterFull, TealError
from sk_agents.private_files import open_private
from sk_agents.wire.views import Checkpoint

logger = logging.getLogger(__name__)

# How far the clocks of processes that share a store may be apart.
SKEW = timedelta(minutes=10)
_STATE = "covered_until"


class Checkpointer:
    """`path` is a file that gets a line for each checkpoint, beside the server's log."""

    def __init__(
        self,
        store: PortableStore,
        log: ServerLog,
        signer: Signer,
        clock: Clock,
        path: Path | None = None,
    ) -> None:
        self._store = store
        self._log = log
        self._signer = signer
        self._clock = clock
        self._path = path

    async def write(self, *, everything: bool = False) -> Checkpoint:
        """Take in the chains of the threads that changed since the last checkpoint, or of all, and
        sign what the server's log has come to.

        Raises:
            StoreError, StoreFull: there is no new checkpoint.
            OSError: it is in the log, and not in the file.
        """
        began = self._clock.now()
        head = await self._log.append(lambda labels: [])
        since = None if everything or head is None else _time(head.metadata.get(_STATE))
        async for page in _chained_threads(self._store, since - SKEW if since else None):
            await self._log.note(_covered(page))
        covered: list[Event] = [ThreadChanged(metadata={_STATE: began.isoformat()})]
        head = await self._log.append(lambda labels: covered)
        assert head is not None  # something was appended
        signed = self._signer.signed(
            Checkpoint(
                at=self._clock.now().isoformat(),
                incarnation=head.incarnation,
                next_seq=head.next_seq,
                chain=head.chain,
            )
        )
        noted = Noted(what=CHECKPOINT, details=signed.model_dump())
        await self._log.append(
            lambda labels: [noted, ThreadChanged(metadata={LAST: noted.details})]
        )
        if self._path is not None:
            await asyncio.to_thread(_append_line, self._path, signed.model_dump_json())
        return signed


class RegularCheckpoints(BackgroundTask):
    """One of the processes that share a store writes one in each interval."""

    def __init__(self, checkpointer: Checkpointer, store: PortableStore, seconds: float) -> None:
        self._checkpointer = checkpointer
        self._store = store
        self._seconds = seconds

    async def _work(self) -> None:
        while True:
            try:
                await self._store.count([Count("audit\tcheckpoint", 1, self._seconds, at_most=1)])
                await self._checkpointer.write()
            except CounterFull:
                pass
            except (TealError, OSError) as error:
                logger.error("no audit checkpoint was written", extra={"reason": str(error)})
            await asyncio.sleep(self._seconds)


async def _chained_threads(
    store: PortableStore, since: datetime | None
) -> AsyncIterator[Sequence[Thread]]:
    async for heads in heads_since(store, since):
        if chained := [head for head in heads if head.chain]:
            yield chained


def _covered(heads: Sequence[Thread]) -> Noted:
    threads = [[head.thread_id, head.incarnation, head.next_seq, head.chain] for head in heads]
    return Noted(what=COVERED, count=len(threads), details={"threads": threads})


def _time(stored: object) -> datetime | None:
    try:
        return datetime.fromisoformat(stored) if isinstance(stored, str) else None
    except ValueError:
        return None


def _append_line(path: Path, line: str) -> None:
    """All of it or nothing: half a line would spoil the next one, too.

    Raises:
        ConfigurationError: it cannot be written.
    """
    rest = f"{line}\n".encode()
    try:
        with open(path, "ab", buffering=0, opener=open_private) as file:
            end = os.fstat(file.fileno()).st_size
            try:
                while rest:
                    rest = rest[os.write(file.fileno(), rest) :]
            except OSError:
                # Where the server may only append, the operator has to take it out.
                with suppress(OSError):
                    os.ftruncate(file.fileno(), end)
                raise
    except OSError as error:
        reason = f"TA_AUDIT_CHECKPOINTS_FILE: {path}: {error.strerror}"
        raise ConfigurationError(reason) from error
