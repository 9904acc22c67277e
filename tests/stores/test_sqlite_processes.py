"""Two processes over one SQLite file, both with it open."""

from dataclasses import replace
from pathlib import Path

import pytest

from sk_agents.exceptions import ThreadExists
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.requirements import requirement
from tests.stores.second_process import second_process
from tests.stores.sqlite_faults import note


@requirement("S003-1.2-sqlite")
async def test_what_one_process_writes_the_other_reads_while_both_are_open(tmp_path: Path) -> None:
    path = tmp_path / "teal.sqlite"
    async with SqliteStore(path) as store:
        with second_process(path) as second:
            assert second.ask("read", "ours") == "nothing"
            await store.commit(note("ours", "of the first"))
            assert second.ask("read", "ours") == "of the first"
            assert second.ask("write", "theirs") == "theirs of the second process"
            assert (await store.thread("theirs")).metadata == {
                "title": "theirs of the second process"
            }
            assert [event.seq for event in await store.events_after("theirs", 0)] == [1]
            with pytest.raises(ThreadExists):
                await store.commit(replace(note("theirs"), commit_id="another"))
