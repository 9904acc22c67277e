"""All commits that wait, as one statement; see `persistence.commit_writer`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors

from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.commit_writer import (
    AnswerLost,
    Chain,
    CommitJob,
    CommitWriter,
    DecideAgain,
    KnownHead,
    NotStorable,
    Unreadable,
    whole_chain,
)
from sk_agents.persistence.encoding import record_checksum
from sk_agents.persistence.postgres import statements
from sk_agents.persistence.postgres.arrays import (
    BoolArray,
    BytesArray,
    Int8Array,
    TextArray,
    TimeArray,
)
from sk_agents.persistence.postgres.connections import Rows, fetch, open_connection
from sk_agents.persistence.postgres.rows import entry
from sk_agents.postgres_access import AsyncConnection, PostgresAccess, is_lost, store_error

# What a statement may fail with though each of its commits could be stored.
_TRY_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
# What a text or a size in a commit may be refused with.
_INVALID = (errors.DataError, errors.ProgramLimitExceeded, UnicodeEncodeError)

# How often a head was written, and its checksum.
Mark = tuple[int, int]
PostgresChain = Chain[Mark]


class PostgresCommitWriter(CommitWriter[Mark]):
    """With a connection of its own. `lease_clock` gives the time of leases, or `None` for the
    database's own."""

    def __init__(
        self,
        access: PostgresAccess,
        codec: RecordCodec,
        lease_clock: Callable[[], float | None],
        connection: AsyncConnection,
    ) -> None:
        super().__init__(access, codec)
        self._access = access
        self._lease_clock = lease_clock
        self._connection: AsyncConnection | None = connection

    async def stop(self) -> None:
        await super().stop()
        if self._connection is not None:
            await self._connection.close()

    async def _usable_connection(self) -> tuple[AsyncConnection, bool]:
        if self._connection is not None and not is_lost(self._connection):
            return self._connection, False
        self._connection = None
        self._connection = await open_connection(self._access)
        return self._connection, True

    async def _fetch(self, statement: Any, values: Mapping[str, Any]) -> Rows:
        """All rows of a statement that reads. Raises StoreError."""
        while True:
            connection, is_new = await self._usable_connection()
            try:
                return await fetch(connection, statement, values)
            except psycopg.Error as error:
                if not is_lost(connection):
                    raise store_error(error, self._access) from error
                if is_new:
                    raise self._access.unreachable(error) from error

    async def _read_heads(
        self, thread_ids: Collection[str]
    ) -> dict[str, KnownHead[Mark] | Unreadable]:
        values = {"thread_ids": TextArray([*thread_ids]), "clock": self._lease_clock()}
        rows = await self._fetch(statements.HEADS_TO_CHANGE, values)
        return {
            thread_id: self._read_head(thread_id, no, (version, check), body, check, alive)
            for thread_id, no, version, body, check, alive in rows
        }

    async def _read_approvals(self, wanted: Mapping[str, str]) -> dict[str, Entry]:
        values = {"kind": "approval", "keys": TextArray([*wanted])}
        rows = await self._fetch(statements.ENTRIES, values)
        return {found.key: found for found in map(entry, rows)}

    async def _read_sent(
        self, wanted: Sequence[tuple[CommitJob[Mark], KnownHead[Mark]]]
    ) -> dict[CommitJob[Mark], tuple[int, bytes, int]]:
        values = {
            "job": Int8Array([*range(len(wanted))]),
            "no": Int8Array([known.no for _, known in wanted]),
            "first_seq": Int8Array([max(job.first_seq or 0, 0) for job, _ in wanted]),
            "commit_id": TextArray([job.commit.commit_id for job, _ in wanted if job.commit]),
        }
        rows = await self._fetch(statements.SENT_BEFORE, values)
        return {wanted[number][0]: (first, body, check) for number, first, body, check in rows}

    def _mark_of(self, chain: PostgresChain) -> Mark:
        return (chain.known.mark[0] if chain.known is not None else 0) + 1, chain.checksum

    async def _send(self, chains: list[PostgresChain]) -> dict[PostgresChain, int]:
        connection, _ = await self._usable_connection()
        values = {**_columns(chains), "clock": self._lease_clock()}
        try:
            rows: Rows = await fetch(connection, statements.COMMIT, values)
        except _INVALID as error:
            raise NotStorable from error
        except psycopg.Error as error:
            if is_lost(connection):
                raise AnswerLost from error
            if isinstance(error, errors.ReadOnlySqlTransaction):
                await connection.close()  # the primary is elsewhere by now
            if isinstance(error, _TRY_AGAIN):
                raise DecideAgain from error
            raise store_error(error, self._access) from error
        return {chains[number]: no for number, no in rows}


def restoring(
    codec: RecordCodec, thread: Thread, records: Sequence[StoredRecord]
) -> dict[str, Any]:
    """The parameters of `statements.COMMIT` that write a whole thread. Raises StateCorrupt: the
    records are not its log."""
    return _columns([whole_chain(codec, thread, records)])


def _columns(chains: list[PostgresChain]) -> dict[str, Any]:
    """The parameters of `statements.COMMIT`."""
    # In one order for all instances, so that no two wait for each other.
    moved = sorted(
        ((n, chain) for n, chain in enumerate(chains) if chain.known is not None),
        key=lambda pair: pair[1].known.no if pair[1].known else 0,
    )
    made = sorted(
        ((n, chain) for n, chain in enumerate(chains) if chain.known is None),
        key=lambda pair: pair[1].thread.thread_id,
    )
    old = [(n, chain, chain.thread, chain.known) for n, chain in moved if chain.known is not None]
    new = [(n, chain, chain.thread) for n, chain in made]
    records = [
        (n, chain.thread, record) for n, chain in enumerate(chains) for record in chain.records
    ]
    entries = [(n, row) for n, chain in enumerate(chains) for row in chain.entries.values()]
    return {
        "chain": Int8Array([n for n, *_ in old]),
        "no": Int8Array([known.no for *_, known in old]),
        "version": Int8Array([known.mark[0] for *_, known in old]),
        "owner": TextArray([thread.owner for _, _, thread, _ in old]),
        "runnable": BoolArray([thread.runnable for _, _, thread, _ in old]),
        "updated_at": TimeArray([thread.updated_at for _, _, thread, _ in old]),
        "head": BytesArray([chain.encoded for _, chain, _, _ in old]),
        "checksum": Int8Array([chain.checksum for _, chain, _, _ in old]),
        "takes_over": BoolArray([chain.takes_over for _, chain, _, _ in old]),
        "new_chain": Int8Array([n for n, _, _ in new]),
        "new_thread_id": TextArray([thread.thread_id for _, _, thread in new]),
        "new_user_id": TextArray([thread.user_id for _, _, thread in new]),
        "new_surface": TextArray([thread.surface for _, _, thread in new]),
        "new_session_id": TextArray([thread.session_id for _, _, thread in new]),
        "new_owner": TextArray([thread.owner for _, _, thread in new]),
        "new_runnable": BoolArray([thread.runnable for _, _, thread in new]),
        "new_updated_at": TimeArray([thread.updated_at for _, _, thread in new]),
        "new_head": BytesArray([chain.encoded for _, chain, _ in new]),
        "new_checksum": Int8Array([chain.checksum for _, chain, _ in new]),
        "record_chain": Int8Array([n for n, _, _ in records]),
        "record_first_seq": Int8Array([first_seq for _, _, (first_seq, _, _) in records]),
        "record_commit_id": TextArray([commit_id for _, _, (_, commit_id, _) in records]),
        "record_body": BytesArray([body for _, _, (_, _, body) in records]),
        "record_checksum": Int8Array(
            [
                record_checksum(thread.thread_id, first_seq, commit_id, body, thread.incarnation)
                for _, thread, (first_seq, commit_id, body) in records
            ]
        ),
        "entry_chain": Int8Array([n for n, _ in entries]),
        "entry_kind": TextArray([row.kind for _, row in entries]),
        "entry_key": TextArray([row.key for _, row in entries]),
        "entry_user_id": TextArray([row.user_id for _, row in entries]),
        "entry_run_id": TextArray([row.run_id for _, row in entries]),
        "entry_open": BoolArray([row.open for _, row in entries]),
        "entry_due_at": TimeArray([row.due_at for _, row in entries]),
    }
