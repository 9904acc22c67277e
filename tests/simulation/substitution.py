"""Puts virtual parts in the place of what the package takes from the machine.

Every module of the package is looked through, and each name that stands for one of the originals
stands for its substitute from then on: the code itself runs as it is shipped.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pkgutil
import queue
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sk_agents.engine.defaults import RandomIds
from sk_agents.persistence.liveness import process_is_gone
from tests.simulation.virtual_threads import (
    VirtualExecutor,
    VirtualQueue,
    VirtualThreading,
    VirtualTime,
)

FILE_STORE = "sk_agents.persistence.file."
ROOMS = ("chats", "client", "engine", "http", "persistence", "signals")


class SeededWorld:
    """What is random in a history, from its seed; and which owners' processes are gone."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.gone: set[str] = set()

    def begin(self, seed: int) -> None:
        self.random.seed(seed)
        random.seed(seed)
        self.gone.clear()

    def token_hex(self, nbytes: int = 32) -> str:
        return self.random.randbytes(nbytes).hex()

    def urandom(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.random.randbytes(16), version=4)

    def process_is_gone(self, owner: str) -> bool:
        return owner in self.gone


WORLD = SeededWorld()


class SeededIds:
    """Stands for `RandomIds`."""

    def new(self) -> str:
        return str(WORLD.uuid4())


class SeededSecrets:
    """Stands for the module `secrets`."""

    token_hex = staticmethod(WORLD.token_hex)
    token_bytes = staticmethod(WORLD.urandom)

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)


def substitute(disk_os: object, disk_fcntl: object) -> None:
    """For the rest of this process; `disk_os` and `disk_fcntl` are for the file store only."""
    for room in ROOMS:
        package = importlib.import_module(f"sk_agents.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    virtual_time = VirtualTime()
    everywhere: Mapping[int, object] = {
        id(time): virtual_time,
        id(time.monotonic): virtual_time.monotonic,
        id(time.sleep): virtual_time.sleep,
        id(threading): VirtualThreading(),
        id(queue.SimpleQueue): VirtualQueue,
        id(ThreadPoolExecutor): VirtualExecutor,
        id(secrets): SeededSecrets(),
        id(secrets.token_hex): WORLD.token_hex,
        id(os.urandom): WORLD.urandom,
        id(uuid.uuid4): WORLD.uuid4,
        id(process_is_gone): WORLD.process_is_gone,
        id(RandomIds): SeededIds,
    }
    files: Mapping[int, object] = {id(os): disk_os, id(fcntl): disk_fcntl}
    assert any(name.startswith(FILE_STORE) for name in sys.modules)
    for name, loaded in list(sys.modules.items()):
        if not name.startswith(tuple(f"sk_agents.{room}" for room in ROOMS)):
            continue
        table = everywhere
        # Not where a disk's operations are recorded: each of them is one step.
        if name.startswith(FILE_STORE) and not name.endswith(".disk"):
            table = {**everywhere, **files}
        for attribute, value in list(vars(loaded).items()):
            if id(value) in table:
                setattr(loaded, attribute, table[id(value)])
