"""What was changed in a store before its last checkpoint is found."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from sk_agents.audit.server_log import ServerLog
from sk_agents.audit.verification import verify
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.log.chain import last_chain
from sk_agents.engine.models import SERVER_LOG, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.commits import append, create, thought
from tests.audit.stores import (
    SIGNER,
    Attacker,
    checkpoint,
    filled,
    found,
    open_log,
    opened,
    talk,
)
from tests.chaos.scale import trials
from tests.stores.test_sqlite_store import OF_THREAD

TRIES = trials(full=200, small=16)


@pytest.mark.parametrize("kind", ["sqlite", "sqlite encrypted", "file"])
async def test_every_record_that_is_changed_or_removed_is_found(tmp_path: Path, kind: str) -> None:
    scheme, _, encrypted = kind.partition(" ")
    unnoticed = []
    for seed in range(TRIES):
        url = f"{scheme}://{tmp_path}/{seed}"
        async with opened(url, encrypted=bool(encrypted)) as store:
            kept = await filled(store)
            assert await found(store, kept) == []
            done = await Attacker(store, seed).strike(kept)
            if not await found(store, kept):
                unnoticed.append(f"{seed}: {done}")
    assert unnoticed == []


async def test_a_signature_in_the_log_is_enough_for_what_came_before_it(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        await Attacker(store, 1).strike(kept)
        assert await found(store) != []


async def test_checkpoint_of_another_key_or_with_another_content_is_refused(
    tmp_path: Path,
) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        for wrong in (
            kept.model_copy(update={"signature": "00" * 64}),
            kept.model_copy(update={"signature": "no hex"}),
            kept.model_copy(update={"at": "2020-01-01T00:00:00+00:00"}),
        ):
            [finding] = await found(store, wrong)
            assert "is not signed by its key" in finding.problem
        unknown = kept.model_copy(update={"key_id": "another"})
        result = await verify(store, kept=[unknown], keys=[SIGNER.public])
        assert (result.findings, result.unsigned) == ([], 1)


async def test_result_says_how_much_was_read(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        told: list[tuple[int, int]] = []
        result = await verify(
            store, kept=[kept], keys=[SIGNER.public], told=lambda done, of: told.append((done, of))
        )
        assert told == [(number, len(told)) for number in range(1, len(told) + 1)] != []
        ids = [name for name in await store.all_threads(limit=100) if name != SERVER_LOG]
        heads = await store.heads(ids)
        assert result.threads == len(ids) > 1
        assert result.events == sum(head.next_seq - 1 for head in heads)
        assert (result.unchained, result.unsigned, result.uncovered) == (0, 0, 0)


async def test_newest_part_that_is_cut_off_is_found_with_a_kept_checkpoint_only(
    tmp_path: Path,
) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        thread, records = await store.whole_thread(SERVER_LOG)
        await store.delete(SERVER_LOG, next_seq=thread.next_seq)
        short = thread._replace(next_seq=records[3].first_seq)
        await store.restore(short._replace(chain=last_chain(short, records[:3])), records[:3])
        assert await found(store) == []
        [finding] = await found(store, kept)
        assert "checkpoint" in finding.problem
        assert finding.seq == kept.next_seq - 1


async def test_thread_that_is_gone_is_found_unless_its_deletion_was_noted(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        async with open_log(store) as log:
            head = await store.thread("t1")
            await log.deleting(head, who="ann", reason="asked for")
            await store.delete("t1", next_seq=head.next_seq)
            assert await found(store, kept) == []
            head = await store.thread("t2")
            await store.delete("t2", next_seq=head.next_seq)
            [finding] = await found(store, kept)
        assert (finding.log, "no deletion of it was noted" in finding.problem) == ("t2", True)


async def test_thread_that_was_made_again_is_not_the_one_that_was_covered(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        head = await store.thread("t2")
        await store.delete("t2", next_seq=head.next_seq)
        await store.commit(create("t2", thought("another one")))
        [finding] = await found(store, kept)
        assert finding.log == "t2"


async def test_later_commits_and_checkpoints_change_nothing_about_the_first(
    tmp_path: Path,
) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store, open_log(store) as log:
        await talk(store, threads=2, commits=2)
        first = await checkpoint(store, log)
        await store.commit(append(await store.thread("t0"), thought("later")))
        result = await verify(store, kept=[first], keys=[SIGNER.public])
        assert (result.findings, result.uncovered) == ([], 1)
        second = await checkpoint(store, log)
        result = await verify(store, kept=[second, first], keys=[SIGNER.public])
        assert (result.findings, result.uncovered, result.checkpoints) == ([], 0, 4)
        assert result.last_checkpoint == second


async def test_log_in_several_parts_is_verified_over_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sk_agents.audit.server_log.PART_EVENTS", 3)
    async with opened(f"sqlite://{tmp_path}/s") as store:
        kept = await filled(store)
        parts = [one for one in await store.all_threads() if one.startswith(SERVER_LOG)]
        assert len(parts) > 2
        assert await found(store, kept) == []
        thread, records = await store.whole_thread(parts[0])
        changed = [records[0], *records[1:-1]]
        await store.delete(thread.thread_id, next_seq=thread.next_seq)
        short = thread._replace(next_seq=records[-1].first_seq)
        await store.restore(short._replace(chain=last_chain(short, changed)), changed)
        assert [(one.log, one.seq, one.problem) for one in await found(store, kept)] == [
            (parts[1], 1, "does not follow the part of the log before it")
        ]


async def test_two_processes_and_a_restart_write_one_log(tmp_path: Path) -> None:
    async with opened(f"sqlite://{tmp_path}/s") as store:
        await filled(store)
        async with ServerLog(store, RandomIds()) as log:
            kept = await checkpoint(store, log)
        assert await found(store, kept) == []


@pytest.mark.parametrize("log", [SERVER_LOG, "t1"])
async def test_damage_to_any_log_is_found_with_its_place(tmp_path: Path, log: str) -> None:
    url = f"sqlite://{tmp_path}/s"
    async with opened(url) as store:
        await filled(store)
        _, records = await store.whole_thread(log)
    place = (log, records[1].first_seq)
    with closing(apsw.Connection(str(tmp_path / "s"))) as database:
        damage = f"UPDATE record SET body = zeroblob(9) WHERE {OF_THREAD} AND place & 65535 = ?"
        database.execute(damage, place)
    async with opened(url) as store:
        assert place in [(one.log, one.seq) for one in await found(store)]


class DeletedMeanwhile(SqliteStore):
    """`t2` is deleted, and this noted, once `t1` is looked at."""

    log: ServerLog | None = None

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        if thread_id == "t1" and self.log is not None:
            head = await self.thread("t2")
            await self.log.deleting(head, who="ann", reason="asked for")
            await self.delete("t2", next_seq=head.next_seq)
        return await super().whole_thread(thread_id)


async def test_thread_that_is_deleted_while_others_are_looked_at_is_not_missing(
    tmp_path: Path,
) -> None:
    async with DeletedMeanwhile(tmp_path / "s") as store:
        kept = await filled(store)
        async with open_log(store) as log:
            store.log = log
            assert await found(store, kept) == []
        assert "t2" not in await store.all_threads()
