import gc
from collections.abc import Iterator

import pytest

from sk_agents.cli.garbage_collection import YOUNGEST, collect_rarely, paused_collection


@pytest.fixture(autouse=True)
def own_collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


def test_nothing_is_looked_for_while_a_server_is_loaded() -> None:
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_loaded_server_looks_for_garbage_but_not_among_what_it_loaded() -> None:
    with paused_collection():
        collect_rarely()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == YOUNGEST


def test_a_start_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(RuntimeError), paused_collection():
        raise RuntimeError
    assert gc.isenabled()
