"""A thread in the hands of somebody who can write to the database file.

What is put back is sealed anew, so no checksum tells: only what the engine itself compares can.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from sk_agents.persistence.encoding import head_checksum, record_checksum

PLACE_BITS = 32


@dataclass(slots=True)
class StoredRecord:
    place: int
    commit_id: str
    document: dict[str, Any]


@dataclass(slots=True)
class StoredThread:
    """`approval` is the row of the index by which its one approval is found; `indent` how the
    records are spelled."""

    no: int
    thread_id: str
    head: dict[str, Any]
    records: list[StoredRecord]
    approval: dict[str, Any]
    indent: int | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for record in self.records for event in record.document["events"]]

    @property
    def proposed(self) -> dict[str, Any]:
        return next(event for event in self.events if event["type"] == "tool_proposed")

    @property
    def asked(self) -> dict[str, Any]:
        return next(event for event in self.events if event["type"] == "approval_requested")

    @property
    def run_id(self) -> str:
        run_id: str = self.events[0]["run_id"]
        return run_id


@contextmanager
def opened(path: Path, thread_id: str) -> Iterator[StoredThread]:
    """The thread as it lies there; what is made of it is put back."""
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(5_000)
        with connection:
            stored = _read(connection, thread_id)
            key = stored.approval["key"]
            yield stored
            _write(connection, stored, key)
    finally:
        connection.close()


def _read(db: apsw.Connection, thread_id: str) -> StoredThread:
    [(no, head)] = db.execute("SELECT no, head FROM thread WHERE thread_id = ?", (thread_id,))
    first = no << PLACE_BITS
    records = [
        StoredRecord(place, commit_id, json.loads(body))
        for place, commit_id, body in db.execute(
            "SELECT place, commit_id, body FROM record WHERE place BETWEEN ? AND ? ORDER BY place",
            (first, first + (1 << PLACE_BITS) - 1),
        )
    ]
    columns = ("key", "user_id", "run_id", "due_at")
    [row] = db.execute(
        f"SELECT {', '.join(columns)} FROM entry WHERE kind = 'approval' AND thread_no = ?", (no,)
    )
    approval = dict(zip(columns, row, strict=True))
    return StoredThread(no, thread_id, json.loads(head), records, approval)


def _write(db: apsw.Connection, stored: StoredThread, key: str) -> None:
    head = json.dumps(stored.head).encode()
    db.execute(
        "UPDATE thread SET thread_id = ?, head = ?, checksum = ? WHERE no = ?",
        (stored.thread_id, head, head_checksum(stored.thread_id, head), stored.no),
    )
    for record in stored.records:
        body = json.dumps(record.document, indent=stored.indent).encode()
        first_seq = record.place & (1 << PLACE_BITS) - 1
        incarnation = stored.head["incarnation"]
        check = record_checksum(stored.thread_id, first_seq, record.commit_id, body, incarnation)
        db.execute(
            "UPDATE record SET body = ?, checksum = ? WHERE place = ?", (body, check, record.place)
        )
    row = stored.approval
    db.execute(
        "UPDATE entry SET key = ?, user_id = ?, run_id = ?, due_at = ?"
        " WHERE kind = 'approval' AND key = ?",
        (row["key"], row["user_id"], row["run_id"], row["due_at"], key),
    )
