"""The tables, how older ones are brought forward, and the settings of a server that matter."""

from __future__ import annotations

import logging
from typing import LiteralString

import psycopg

from sk_agents.exceptions import ConfigurationError, SchemaTooNew, StoreReadOnly
from sk_agents.persistence.codec import RecordCodec
from sk_agents.postgres_access import AsyncConnection

logger = logging.getLogger(__name__)

# Taken while the tables are looked for and made: one replica makes them, the others wait for it.
LOCK = 0x7EA1A6E7
OLDEST_SERVER = 14_00_00

# One migration a version, oldest first.
MIGRATIONS: tuple[LiteralString, ...] = (
    """
    -- `encryption` says how threads are written; null: as they are.
    CREATE TABLE teal_schema (version integer NOT NULL, encryption bytea);
    INSERT INTO teal_schema (version) VALUES (0);

    -- `version` counts the writes of a head: who knew it before a write knows whether it was right.
    -- Room in each page and no index on what a commit changes: a new head lies beside the old one,
    -- and no index is touched.
    CREATE TABLE teal_thread (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        thread_id text COLLATE "C" NOT NULL UNIQUE,
        user_id text COLLATE "C" NOT NULL,
        surface text COLLATE "C" NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        owner text COLLATE "C",
        runnable boolean NOT NULL,
        updated_at timestamptz NOT NULL,
        head bytea NOT NULL,
        checksum bigint NOT NULL
    ) WITH (fillfactor = 60);
    CREATE INDEX teal_thread_of_user ON teal_thread (user_id);
    CREATE INDEX teal_thread_runnable ON teal_thread (no) WHERE runnable;

    CREATE TABLE teal_record (
        thread_no bigint NOT NULL,
        first_seq bigint NOT NULL,
        commit_id text COLLATE "C" NOT NULL,
        body bytea NOT NULL,
        checksum bigint NOT NULL,
        PRIMARY KEY (thread_no, first_seq)
    );

    CREATE TABLE teal_entry (
        kind text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        thread_no bigint NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        run_id text COLLATE "C" NOT NULL,
        open boolean NOT NULL,
        due_at timestamptz,
        PRIMARY KEY (kind, key)
    );
    CREATE INDEX teal_entry_of_thread ON teal_entry (thread_no);
    CREATE INDEX teal_entry_open ON teal_entry (kind, user_id, key) WHERE open;
    CREATE INDEX teal_entry_due ON teal_entry (kind, due_at, key) WHERE open;

    -- Seconds of the database's clock.
    CREATE TABLE teal_owner (
        owner text COLLATE "C" PRIMARY KEY,
        alive_until double precision NOT NULL
    );
    -- Marks need not outlive a crash of the database.
    CREATE UNLOGGED TABLE teal_watched (
        run_id text COLLATE "C" PRIMARY KEY,
        at double precision NOT NULL
    );
    CREATE INDEX teal_watched_at ON teal_watched (at);
    -- Amounts that all instances count together, until a wall time.
    CREATE TABLE teal_counter (
        key text COLLATE "C" PRIMARY KEY,
        sum bigint NOT NULL,
        forget_at double precision NOT NULL
    );
    CREATE INDEX teal_counter_forget_at ON teal_counter (forget_at);
    """,
)

# Not `to_regclass`: it may answer from a cache what was true before this transaction had the lock.
EXISTS: LiteralString = """EXISTS (
    SELECT FROM pg_class WHERE relname = 'teal_schema' AND pg_table_is_visible(oid)
)"""
CHECK: LiteralString = f"""
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
    pg_is_in_recovery(), {EXISTS}
"""
# What is acknowledged may be lost with the server while one of them is off.
NEEDED: LiteralString = """
SELECT name FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name
"""
VERSION = "SELECT max(version) FROM teal_schema"
ENCRYPTION = "SELECT encryption, NOT EXISTS (SELECT FROM teal_thread) FROM teal_schema"


async def prepare(connection: AsyncConnection, codec: RecordCodec) -> None:
    """Look at the server and bring the tables forward.

    Raises:
        StoreNotEncrypted, StoreEncrypted, WrongEncryptionKey: the codec is not for this database.
        ConfigurationError: it cannot be used, as the message says.
        StoreReadOnly: it is a standby.
        SchemaTooNew: a newer version wrote it.
    """
    found = await (await connection.execute(CHECK)).fetchone()
    assert found is not None
    server, encoding, is_standby, exists = found
    if server < OLDEST_SERVER:
        raise ConfigurationError(f"PostgreSQL {server // 10_000} is too old: 14 is the oldest")
    if encoding != "UTF8":
        raise ConfigurationError(f"the database's encoding must be UTF8, not {encoding}")
    if is_standby:
        raise StoreReadOnly(
            "this PostgreSQL server is a standby and takes no writes; name the primary, or all"
            " hosts with target_session_attrs=read-write"
        )
    if not exists or await _version(connection) != len(MIGRATIONS):
        await migrate(connection)
    await _check_encryption(connection, codec)


async def migrate(connection: AsyncConnection) -> None:
    """Under a lock, so that any number of replicas may start at once."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        [(exists,)] = await (await connection.execute(f"SELECT {EXISTS}")).fetchall()
        version = await _version(connection) if exists else 0
        for number in range(version, len(MIGRATIONS)):
            try:
                await connection.execute(MIGRATIONS[number])
            except psycopg.errors.InsufficientPrivilege as error:
                raise ConfigurationError(
                    "the database role may not make tables: run `teal migrate` with one that may"
                ) from error
            await connection.execute("UPDATE teal_schema SET version = %s", (number + 1,))
            logger.info("postgres store migrated", extra={"schema_version": number + 1})


async def _check_encryption(connection: AsyncConnection, codec: RecordCodec) -> None:
    [(found, is_empty)] = await (await connection.execute(ENCRYPTION)).fetchall()
    if codec.marker(found, is_empty=is_empty) == found:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        [(found, is_empty)] = await (await connection.execute(ENCRYPTION)).fetchall()
        marker = codec.marker(found, is_empty=is_empty)
        await connection.execute("UPDATE teal_schema SET encryption = %s", (marker,))


async def _version(connection: AsyncConnection) -> int:
    [(version,)] = await (await connection.execute(VERSION)).fetchall()
    if not isinstance(version, int):
        raise ConfigurationError("the table teal_schema of this database is not ours")
    if version > len(MIGRATIONS):
        raise SchemaTooNew(
            f"the database was written by a newer version (schema {version}, this one knows"
            f" {len(MIGRATIONS)}); it was not touched."
        )
    return version
