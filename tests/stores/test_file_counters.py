"""The journal of counters in a file store: read on, written again, and cut where a writer died."""

from pathlib import Path

from sk_agents.engine.ports import Count, Store
from sk_agents.persistence.file import counters
from sk_agents.persistence.file.store import FileStore


async def add(store: Store, key: str = "k") -> int:
    return (await store.count([Count(key, 1, 3600)]))[0]


async def test_journal_is_written_again_before_it_grows_without_end(tmp_path: Path) -> None:
    journal = tmp_path.joinpath(*counters.JOURNAL)
    async with FileStore(tmp_path) as store, FileStore(tmp_path) as other:
        for number in range(counters.SPARE_LINES // 2 + 10):
            assert await add(store) == 2 * number + 1
            assert await add(other) == 2 * number + 2
        assert len(journal.read_bytes().splitlines()) < 50


async def test_line_of_a_killed_writer_is_cut_off(tmp_path: Path) -> None:
    journal = tmp_path.joinpath(*counters.JOURNAL)
    async with FileStore(tmp_path) as store:
        await add(store)
        with journal.open("ab") as torn:
            torn.write(b'[["k",99')
        assert await add(store) == 2
    async with FileStore(tmp_path) as store:
        assert await add(store) == 3


async def test_damaged_line_takes_only_what_it_said(tmp_path: Path) -> None:
    journal = tmp_path.joinpath(*counters.JOURNAL)
    async with FileStore(tmp_path) as store:
        await add(store)
        await add(store, "other")
        journal.write_bytes(journal.read_bytes() + b"\0\0\0\n{}\n[[1]]\n7\n")
        assert (await add(store), await add(store, "other")) == (2, 2)
