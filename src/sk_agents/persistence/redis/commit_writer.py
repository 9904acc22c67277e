"""All commits that wait, in one pipeline: a script for each thread; see
`persistence.commit_writer`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any

from redis.exceptions import ResponseError

from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import TealError
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.commit_writer import (
    AnswerLost,
    Chain,
    CommitJob,
    CommitWriter,
    KnownHead,
    NotSecured,
    NotStorable,
    Unreadable,
    whole_chain,
)
from sk_agents.persistence.encoding import record_checksum
from sk_agents.persistence.redis import index, scripts
from sk_agents.persistence.redis.index import Change
from sk_agents.persistence.redis.server import RedisServer, liveness
from sk_agents.redis_access import LOST, REPLICA_SECONDS, Command

logger = logging.getLogger(__name__)

# Of the head that was written: no two writes have the same.
Mark = bytes
RedisChain = Chain[Mark]


class RedisCommitWriter(CommitWriter[Mark]):
    """`lease_clock` gives the time of leases, or nothing for the server's own."""

    def __init__(
        self, server: RedisServer, codec: RecordCodec, lease_clock: Callable[[], float | str]
    ) -> None:
        super().__init__(server, codec)
        self._server = server
        self._keys = server.keys
        self._lease_clock = lease_clock
        self._nonce = secrets.token_hex(8)
        self._numbers = count(1)
        self._acknowledged = 0

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> bool:
        """Write a whole thread of another store; False if there is one of its id.

        Raises:
            StateCorrupt: the records are not its log.
            CommitOutcomeUnknown, StoreError: as for a commit.
        """
        chain: RedisChain = whole_chain(self._codec, thread, records)
        chain.mark = self._mark_of(chain)
        try:
            won = await self._send([chain])
            await self._secure(has_written=True)
        except (AnswerLost, NotSecured) as error:
            raise self._outcome_unknown() from error
        for _, outcome in chain.outcomes:
            if isinstance(outcome, TealError):
                raise outcome
        return chain in won

    async def _read_heads(
        self, thread_ids: Collection[str]
    ) -> dict[str, KnownHead[Mark] | Unreadable]:
        owners, *rows = await self._server.ask(
            scripts.OWNERS([self._keys.owners], self._lease_clock()),
            *(
                ("HMGET", self._keys.head(thread_id), "mark", "body", "check")
                for thread_id in thread_ids
            ),
        )
        alive_until, now = liveness(owners)
        heads: dict[str, KnownHead[Mark] | Unreadable] = {}
        for thread_id, (mark, body, check) in zip(thread_ids, rows, strict=True):
            if mark is None:
                continue
            found = self._read_head(thread_id, 0, mark, body, int(check), False)
            if isinstance(found, KnownHead):
                alive = alive_until.get(found.thread.owner or "", 0.0) > now
                found = KnownHead(mark, found.thread, found.written, alive, found.recent)
            heads[thread_id] = found
        if len(heads) < len(thread_ids):
            await self._server.check_generation()
        return heads

    async def _read_approvals(self, wanted: Mapping[str, str]) -> dict[str, Entry]:
        names = {key: index.field_of("approval", key) for key in wanted}
        rows = await self._server.ask(
            *(("HGET", self._keys.entries(thread), names[key]) for key, thread in wanted.items())
        )
        return {
            key: index.decode_entry(wanted[key], names[key].encode(), row)
            for key, row in zip(wanted, rows, strict=True)
            if row is not None
        }

    async def _read_sent(
        self, wanted: Sequence[tuple[CommitJob[Mark], KnownHead[Mark]]]
    ) -> dict[CommitJob[Mark], tuple[int, bytes, int]]:
        jobs = [(job, job.commit) for job, _ in wanted if job.commit is not None]
        rows = await self._server.ask(
            *(
                scripts.SENT_BEFORE(
                    [self._keys.log(job.thread_id)], max(job.first_seq or 0, 0), commit.commit_id
                )
                for job, commit in jobs
            )
        )
        return {
            job: (int(row[0].partition(b"-")[0]), row[2], int(row[1]))
            for (job, _), row in zip(jobs, rows, strict=True)
            if row
        }

    def _mark_of(self, chain: RedisChain) -> Mark:
        return f"{self._nonce}.{next(self._numbers)}".encode()

    async def _send(self, chains: list[RedisChain]) -> dict[RedisChain, int]:
        try:
            changes = [self._changes(chain) for chain in chains]
            commands = [
                self._command(chain, changed)
                for chain, changed in zip(chains, changes, strict=True)
            ]
        except UnicodeEncodeError as error:
            raise NotStorable from error
        try:
            replies = await self._run(commands, changes)
        except LOST as error:
            raise AnswerLost from error
        won: dict[RedisChain, int] = {}
        for chain, reply in zip(chains, replies, strict=True):
            if isinstance(reply, ResponseError):
                self._fail(chain, self._server.access.refused(reply))
            elif reply:
                won[chain] = 0
        return won

    async def _run(
        self, commands: Sequence[Command], changes: Sequence[Sequence[Change]]
    ) -> list[Any]:
        """The scripts' replies. Raises one of `LOST`."""
        server = self._server
        if not server.is_cluster:
            wanted = server.access.options.replicas
            if not wanted:
                return await server.run_scripts(commands)
            *replies, self._acknowledged = await server.run_scripts([*commands, _wait(wanted)])
            return replies
        added = [change.command for each in changes for change in each if change.adds]
        for reply in await server.run_scripts(added):
            if isinstance(reply, ResponseError):
                raise server.access.refused(reply) from reply
        replies = await server.run_scripts(commands)
        done = [
            change.command
            for reply, each in zip(replies, changes, strict=True)
            for change in each
            if reply == 1
        ]
        try:
            await server.run_scripts(done)
        except LOST as error:  # the commits stand; `tidying` finds what is missing
            logger.warning("an index was not changed", extra={"error": type(error).__name__})
        return replies

    def _changes(self, chain: RedisChain) -> list[Change]:
        before = chain.known.thread if chain.known is not None else None
        return [*index.of_commit(self._keys, before, chain.thread, chain.entries.values())]

    def _command(self, chain: RedisChain, changes: Sequence[Change]) -> Command:
        thread, known = chain.thread, chain.known
        keys = self._keys
        thread_keys = [
            keys.head(thread.thread_id),
            keys.log(thread.thread_id),
            keys.entries(thread.thread_id),
        ]
        owner = known.thread.owner if known is not None and chain.takes_over else None
        values: list[Any] = [
            known.mark if known is not None else b"",
            owner or "",
            self._lease_clock(),
            chain.new_mark,
            chain.encoded,
            chain.checksum,
            self._server.access.options.ttl or "",
            len(chain.records),
        ]
        for first_seq, commit_id, body in chain.records:
            check = record_checksum(
                thread.thread_id, first_seq, commit_id, body, thread.incarnation
            )
            values += [first_seq, commit_id, check, body]
        values.append(len(chain.entries))
        for entry in chain.entries.values():
            values += [index.field_of(entry.kind, entry.key), index.encode_entry(entry)]
        if not self._server.is_cluster:
            thread_keys.append(keys.owners)
            more_keys, more_values = index.arguments(changes, len(thread_keys))
            thread_keys += more_keys
            values += more_values
        commits = [job.commit for job, _ in chain.outcomes]
        makes_room = any(commit is not None and commit.makes_room for commit in commits)
        script = scripts.COMMIT_MAKING_ROOM if makes_room else scripts.COMMIT
        return script(thread_keys, *values)

    def _fail(self, chain: RedisChain, error: TealError) -> None:
        """The server refused this chain; nothing of it was written, and the others are not
        concerned."""
        self.forget(chain.thread.thread_id)
        chain.outcomes = [
            (job, outcome if isinstance(outcome, TealError) else error)
            for job, outcome in chain.outcomes
        ]
        chain.is_changed, chain.is_read = False, True

    async def _secure(self, *, has_written: bool) -> None:
        """A commit that had been written before is secured by another write behind it."""
        wanted = self._server.access.options.replicas
        if not wanted or (has_written and self._acknowledged >= wanted):
            return
        if not has_written:
            try:
                replies = await self._server.run_scripts([self._server.touch, _wait(wanted)])
            except LOST as error:
                raise NotSecured("the connection was lost; send the same commit again.") from error
            self._acknowledged = replies[-1] if isinstance(replies[-1], int) else 0
        if self._acknowledged < wanted:
            raise NotSecured(
                f"{self._acknowledged} of {wanted} replicas have what was written; send the same"
                " commit again."
            )


def _wait(replicas: int) -> Command:
    return ("WAIT", replicas, int(REPLICA_SECONDS * 1000))
