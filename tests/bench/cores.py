"""What is measured runs alone on one core; models and load have the others.

A process on two cores pays for waking the idle one at each hand-over between its threads, which
says more about the machine than about the program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

CORES = sorted(os.sched_getaffinity(0))


def on_one_core() -> None:
    """Bind this process."""
    os.sched_setaffinity(0, {CORES[-1]})


@contextmanager
def one_core() -> Iterator[None]:
    on_one_core()
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)
