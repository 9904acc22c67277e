"""Kill -9 of a process that commits in a loop: nothing acknowledged is lost, nothing is torn."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sk_agents.engine.events import Event, RunStarted, Thinking
from sk_agents.engine.log.state import fold
from sk_agents.engine.ports import Store
from sk_agents.exceptions import StateCorrupt, ThreadNotFound
from sk_agents.persistence.store_factory import open_store
from tests.chaos.committer import content
from tests.chaos.in_place_store import InPlaceStore
from tests.chaos.scale import FULL, trials
from tests.forked_python import PYTHON
from tests.patience import seconds
from tests.requirements import requirement

KILLS = trials(full=150, small=5)
PLACES = {"sqlite": "teal.sqlite", "file": "chats"}


def kill_while_committing(command: list[str], acknowledgements: int) -> dict[str, int]:
    """Run the committer, kill it after so many lines; the last acknowledged number a thread."""
    last: dict[str, int] = defaultdict(lambda: -1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout):
            thread_id, number = line.split()
            last[thread_id] = max(last[thread_id], int(number))
            if count == acknowledgements:
                process.kill()
    assert process.returncode == -9, "the committer ended before it was killed"
    return dict(last)


async def lost_or_torn(store: Store, acknowledged: dict[str, int]) -> list[str]:
    """What is wrong with each thread after the kill; empty when every promise was kept."""
    problems = []
    for thread_id, last in acknowledged.items():
        try:
            log = await store.events_after(thread_id, 0, 1_000_000)
            fold(log)
        except (StateCorrupt, ThreadNotFound) as error:
            problems.append(f"{thread_id}: {error}")
            continue
        texts = [_text(event) for event in log]
        if len(texts) <= last:
            problems.append(f"{thread_id}: {last} was acknowledged, the log ends at {len(texts)}")
        if texts != [content(thread_id, number) for number in range(len(texts))]:
            problems.append(f"{thread_id}: the log says something else than was committed")
    return problems


def _text(event: Event) -> str:
    match event:
        case RunStarted(message=message) if message is not None:
            return message.text
        case Thinking():
            return event.content
    raise AssertionError(f"unexpected {event.type}")


async def kill_and_check(
    url: str, reopen: Callable[[], AbstractAsyncContextManager[Store]], seed: int
) -> list[str]:
    chance = random.Random(seed)
    problems: list[str] = []
    for trial in range(KILLS):
        acknowledged = kill_while_committing(
            [PYTHON, "-m", "tests.chaos.committer", url, f"t{trial}"],
            chance.randint(5, 60),
        )
        try:
            async with reopen() as store:
                problems += await lost_or_torn(store, acknowledged)
        except StateCorrupt as error:
            problems.append(str(error))
        if problems:
            break
    return problems


@requirement("S004-13-failure-scenarios")
@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize("kind", sorted(PLACES))
async def test_a_killed_writer_loses_no_acknowledged_commit(tmp_path: Path, kind: str) -> None:
    """Red with the in-place build of `in_place_store.py`: see the next test."""
    url = f"{kind}://{tmp_path / PLACES[kind]}"
    assert await kill_and_check(url, lambda: open_store(url), seed=7) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(1800))
@pytest.mark.skipif(not FULL, reason="needs the full number of kills to be certain to fail")
async def test_the_kill_experiment_finds_out_in_place_writes(tmp_path: Path) -> None:
    url = f"in-place://{tmp_path}"
    problems = await kill_and_check(url, lambda: InPlaceStore(tmp_path), seed=7)
    assert problems, "in-place writes went unnoticed"
