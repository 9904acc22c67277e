"""Ids: canonical, random, different."""

import subprocess
import sys
from uuid import RFC_4122, UUID

from sk_agents.engine.defaults import RandomIds
from tests.patience import seconds

FORKING = """
import os, sys
from sk_agents.engine.defaults import RandomIds
ids = RandomIds()
ids.new()
if not os.fork():
    os.write(1, f"{ids.new()}\\n".encode())
    os._exit(0)
os.wait()
os.write(1, f"{ids.new()}\\n".encode())
"""


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


def test_a_forked_process_makes_other_ids_than_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=seconds(30)
    )
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.split()
    assert child != parent
