"""A whole SQLite store encrypted, or its threads' keys wrapped by another one.

Both go on where a killed one stopped: a thread is converted as a whole, in one transaction, and its
bytes show whether it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from sk_agents.exceptions import StateCorrupt, StoreBusy, StoreUnavailable
from sk_agents.persistence.encoding import decode_head, head_checksum, record_checksum
from sk_agents.persistence.encryption import EncryptingCodec, StoreMarker, is_sealed
from sk_agents.persistence.sqlite import rows
from sk_agents.persistence.sqlite.database import (
    BUSY_MS,
    check_identity,
    immediate,
    leave_wal_alone,
    migrate,
    translated,
)
from sk_agents.persistence.store_encryption import Outcome, Told

# How much one transaction converts, about: a kill loses no more, and a server waits no longer.
BATCH_BYTES = 4 * 1024 * 1024
BATCH_THREADS = 64
# How often threads are looked for that a server has wrapped with an old key after all.
PASSES = 5


def encrypt(path: Path, codec: EncryptingCodec, told: Told) -> Outcome:
    """Encrypt every thread of a store that no other process has open.

    Raises:
        StoreBusy: a process has it open.
        StoreError, WrongEncryptionKey: it cannot be encrypted; what was done stays done.
    """
    _check_exists(path)
    with translated(path):
        db = apsw.Connection(str(path))
        try:
            _take_alone(db, path)
            found = rows.marker(db)
            marker = None if found is None else StoreMarker.read(found).opened_with(codec.keys)
            if marker is not None and marker.state == "encrypted":
                return Outcome(0)
            _mark(db, StoreMarker(keys=codec.keys.ids[:1], state="encrypting"))
            outcome = _encrypt_threads(db, codec, told)
            # Free pages and the WAL may still hold plain text.
            db.execute("VACUUM")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            _mark(db, StoreMarker(keys=codec.keys.ids[:1]))
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return outcome
        finally:
            db.close()


def rekey(path: Path, codec: EncryptingCodec, told: Told) -> Outcome:
    """Have the first key wrap the key of every thread, while servers use the store.

    Raises:
        StoreError, WrongEncryptionKey, StoreNotEncrypted: it cannot be done; what was done stays.
    """
    _check_exists(path)
    with translated(path):
        db = apsw.Connection(str(path))
        try:
            db.set_busy_timeout(BUSY_MS)
            check_identity(db, path)
            migrate(db)
            leave_wal_alone(db)
            db.execute("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON")
            with immediate(db):
                rows.mark(db, codec)
            changed = 0
            for _ in range(PASSES):
                outcome = _rewrap_threads(db, codec, told)
                changed += outcome.changed
                if _drop_unused_keys(db, codec, outcome.damaged):
                    return Outcome(changed, outcome.damaged)
            raise StoreBusy(
                f"{path}: a server still wraps keys with another one; restart it with the new key "
                "as the first, and run this again"
            )
        finally:
            db.close()


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise StoreUnavailable(f"{path}: there is no store here")


def _take_alone(db: apsw.Connection, path: Path) -> None:
    """No other process can open the file from now on; none has it open."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    try:
        check_identity(db, path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON")
        migrate(db)
        db.execute("BEGIN EXCLUSIVE; COMMIT")
    except (apsw.BusyError, apsw.LockedError):
        raise StoreBusy(f"{path}: a server has the store open; stop it first") from None


def _mark(db: apsw.Connection, marker: StoreMarker) -> None:
    db.execute("INSERT OR REPLACE INTO encryption (no, marker) VALUES (1, ?)", (marker.encoded(),))


def _encrypt_threads(db: apsw.Connection, codec: EncryptingCodec, told: Told) -> Outcome:
    numbers = _numbers(db)
    damaged: list[str] = []
    changed = done = 0
    while done < len(numbers):
        with immediate(db):
            written = 0
            while done < len(numbers) and written < BATCH_BYTES:
                try:
                    size = _encrypt_thread(db, codec, numbers[done])
                    written += size
                    changed += size > 0
                except StateCorrupt as error:
                    damaged.append(str(error.thread_id))
                done += 1
        told(done, len(numbers))
    return Outcome(changed, tuple(damaged))


def _encrypt_thread(db: apsw.Connection, codec: EncryptingCodec, no: int) -> int:
    """How many bytes were written; 0 if it is encrypted already. Raises StateCorrupt: nothing of
    it was changed."""
    [(thread_id, stored, check)] = db.execute(
        "SELECT thread_id, head, checksum FROM thread WHERE no = ?", (no,)
    )
    if is_sealed(stored):
        return 0
    head = decode_head(thread_id, stored, check)
    written = codec.for_new(head)
    sealed = []
    for number, first_seq, commit_id, body, record_check in rows.records(db, no):
        identity = (thread_id, first_seq, commit_id)
        if record_checksum(*identity, body, head.incarnation) != record_check:
            raise StateCorrupt(thread_id=thread_id, seq=first_seq)
        body = written.seal_record(first_seq, commit_id, body)
        sealed.append((body, record_checksum(*identity, body, head.incarnation), number))
    db.executemany("UPDATE record SET body = ?, checksum = ? WHERE no = ?", sealed)
    rows.replace_head(db, no, thread_id, written.encode_head(head))
    return len(stored) + sum(len(body) for body, _, _ in sealed)


def _rewrap_threads(db: apsw.Connection, codec: EncryptingCodec, told: Told) -> Outcome:
    numbers = _numbers(db)
    damaged: list[str] = []
    changed = 0
    for start in range(0, len(numbers), BATCH_THREADS):
        batch = numbers[start : start + BATCH_THREADS]
        with immediate(db):
            for no in batch:
                try:
                    changed += _rewrap_thread(db, codec, no)
                except StateCorrupt as error:
                    damaged.append(str(error.thread_id))
        told(start + len(batch), len(numbers))
    return Outcome(changed, tuple(damaged))


def _rewrap_thread(db: apsw.Connection, codec: EncryptingCodec, no: int) -> bool:
    for thread_id, stored, check in db.execute(
        "SELECT thread_id, head, checksum FROM thread WHERE no = ?", (no,)
    ):
        if head_checksum(thread_id, stored) != check:
            raise StateCorrupt(thread_id=thread_id)
        again = codec.rewrapped_head(thread_id, stored)
        if again is not None:
            rows.replace_head(db, no, thread_id, again)
            return True
    return False


def _drop_unused_keys(db: apsw.Connection, codec: EncryptingCodec, damaged: Sequence[str]) -> bool:
    """Have the store name only the key that wraps now; False if others are still in use."""
    first = bytes.fromhex(codec.keys.ids[0])
    with immediate(db):
        if any(thread_id not in damaged for thread_id in rows.wrapped_by_others(db, first)):
            return False
        _mark(db, StoreMarker(keys=codec.keys.ids[:1]))
    return True


def _numbers(db: apsw.Connection) -> list[int]:
    return [no for (no,) in db.execute("SELECT no FROM thread ORDER BY no")]
