"""A second process over a SQLite file: it obeys its lines of input, and stays open in between."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sk_agents.exceptions import ThreadNotFound
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.forked_python import PYTHON
from tests.stores.sqlite_faults import note


class SecondProcess:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, command: str, thread_id: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command} {thread_id}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def second_process(path: Path) -> Iterator[SecondProcess]:
    command = [PYTHON, "-m", "tests.stores.second_process", str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield SecondProcess(process)
        process.communicate()
    assert process.returncode == 0


async def _obey(path: Path) -> None:
    async with SqliteStore(path) as store:
        # Lines are read while nothing else is going on here.
        for line in iter(sys.stdin.readline, ""):
            command, thread_id = line.split()
            if command == "write":
                await store.commit(note(thread_id, f"{thread_id} of the second process"))
            try:
                said = str((await store.thread(thread_id)).metadata["title"])
            except ThreadNotFound:
                said = "nothing"
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_obey(Path(sys.argv[1])))
