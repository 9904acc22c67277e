"""Whether the process behind a lease can still be alive."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from sk_agents.persistence.liveness import new_owner, process_is_gone
from tests.missing import lacks
from tests.patience import seconds

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def on_linux() -> None:
    if not Path("/proc/self/stat").exists():
        lacks("linux", "without /proc nothing is known of a process")


def name_and_wait(pipe: Connection) -> None:
    pipe.send(new_owner())
    pipe.recv()


@contextmanager
def child_owner() -> Iterator[tuple[str, multiprocessing.context.SpawnProcess]]:
    """A child that says its owner's name and lives until it is killed."""
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=name_and_wait, args=(there,))
    child.start()
    try:
        assert here.poll(30)
        yield here.recv(), child
    finally:
        child.kill()
        child.join(seconds(30))


def renamed(**changes: str) -> str:
    names = ("boot", "namespace", "pid", "started", "token")
    fields = dict(zip(names, new_owner().split(":"), strict=True))
    return ":".join({**fields, **changes}.values())


def test_owner_in_this_process_is_not_gone() -> None:
    assert not process_is_gone(new_owner())


def test_every_owner_has_its_own_name() -> None:
    assert len({new_owner() for _ in range(100)}) == 100


def test_owner_in_a_live_process_is_not_gone_and_after_a_kill_it_is() -> None:
    with child_owner() as (owner, child):
        assert not process_is_gone(owner)
        child.kill()
        child.join(seconds(30))
        assert process_is_gone(owner)


def test_zombie_is_gone() -> None:
    """Killed, but its parent has not collected it yet."""
    with child_owner() as (owner, child):
        child.kill()
        assert child.pid is not None
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}").exists()
        assert process_is_gone(owner)


def test_owner_before_the_last_boot_is_gone() -> None:
    assert process_is_gone(renamed(boot="00000000-0000-0000-0000-000000000000"))


def test_owner_whose_pid_belongs_to_another_process_now_is_gone() -> None:
    assert process_is_gone(renamed(started="1"))


def test_of_another_container_nothing_is_known() -> None:
    assert not process_is_gone(renamed(namespace="4026530000", pid="999999999"))


def test_of_a_process_without_a_start_time_nothing_is_known() -> None:
    assert not process_is_gone(renamed(started="0"))


def test_of_an_unknown_boot_nothing_is_known() -> None:
    assert not process_is_gone(renamed(boot="unknown"))


@pytest.mark.parametrize(
    "owner", ["", "owner", "a:b:c:d:e", "a:b:1:2", "a:b:1:2:3:4", "a:b:-1:2:e", "a:b:1:x:e"]
)
def test_of_a_name_that_is_not_ours_nothing_is_known(owner: str) -> None:
    assert not process_is_gone(owner)
