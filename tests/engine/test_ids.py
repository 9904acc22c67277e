"""Ids: canonical, random, different."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

from sk_agents.engine.ids import RandomIds


def test_ids_are_random_uuids_in_canonical_text_and_all_different() -> None:
    ids = RandomIds()
    made = [ids.new() for _ in range(1_000)]
    uuids = [UUID(text) for text in made]
    assert all(uuid.version == 4 and uuid.variant == RFC_4122 for uuid in uuids)
    assert [str(uuid) for uuid in uuids] == made
    assert len(set(made)) == len(made)
    # Every variant digit that may occur does, and so does every digit elsewhere.
    assert {text[19] for text in made} == set("89ab")
    assert {text[20] for text in made} == {text[0] for text in made} == set("0123456789abcdef")


def test_threads_that_take_ids_at_once_get_different_ones() -> None:
    def take(_: int) -> list[str]:
        ids = RandomIds()
        return [ids.new() for _ in range(5_000)]

    with ThreadPoolExecutor(4) as threads:
        made = [text for taken in threads.map(take, range(8)) for text in taken]
    assert len(set(made)) == len(made) == 40_000


def test_child_of_a_process_does_not_make_its_parents_ids_again() -> None:
    script = (
        "import os; from sk_agents.engine.ids import RandomIds as Ids; Ids().new();"
        "os.fork() and os.wait(); print(Ids().new())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    one, other = run.stdout.split()
    assert one != other
