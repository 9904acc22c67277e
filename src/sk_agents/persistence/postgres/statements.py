"""Every statement of the PostgreSQL store. Each is a transaction by itself."""

from __future__ import annotations

from typing import LiteralString

# The clock of leases and marks: the database's own, unless a test brings one.
NOW: LiteralString = (
    "coalesce(%(clock)s::float8, extract(epoch FROM statement_timestamp())::float8)"
)

# All commits that wait, at most one new head a thread. A chain is what is appended to one thread:
# it is written as a whole if its head is still the one that the sender knew (`version`), and, where
# the sender took the thread's owner for lost, if that owner has not renewed its leases since.
COMMIT: LiteralString = f"""
WITH moved AS (
    UPDATE teal_thread AS thread
    SET version = sent.version + 1, owner = sent.owner, runnable = sent.runnable,
        updated_at = sent.updated_at, head = sent.head, checksum = sent.checksum
    FROM unnest(
        %(chain)s, %(no)s, %(version)s, %(owner)s, %(runnable)s, %(updated_at)s, %(head)s,
        %(checksum)s, %(takes_over)s
    ) AS sent (
        chain, no, version, owner, runnable, updated_at, head, checksum, takes_over
    )
    WHERE thread.no = sent.no AND thread.version = sent.version
        AND NOT (sent.takes_over AND EXISTS (
            SELECT FROM teal_owner
            WHERE teal_owner.owner = thread.owner AND alive_until > {NOW}
        ))
    RETURNING sent.chain, thread.no
), fresh AS (
    SELECT * FROM unnest(
        %(new_chain)s, %(new_thread_id)s, %(new_user_id)s, %(new_surface)s, %(new_session_id)s,
        %(new_owner)s, %(new_runnable)s, %(new_updated_at)s, %(new_head)s, %(new_checksum)s
    ) AS sent (
        chain, thread_id, user_id, surface, session_id, owner, runnable, updated_at, head, checksum
    )
), made AS (
    INSERT INTO teal_thread (
        thread_id, user_id, surface, session_id, version, owner, runnable, updated_at, head,
        checksum
    )
    SELECT thread_id, user_id, surface, session_id, 1, owner, runnable, updated_at, head, checksum
    FROM fresh
    ON CONFLICT (thread_id) DO NOTHING
    RETURNING thread_id, no
), written AS (
    SELECT chain, no FROM moved
    UNION ALL
    SELECT chain, no FROM made JOIN fresh USING (thread_id)
), kept AS (
    INSERT INTO teal_record (thread_no, first_seq, commit_id, body, checksum)
    SELECT no, first_seq, commit_id, body, checksum
    FROM written JOIN unnest(
        %(record_chain)s, %(record_first_seq)s, %(record_commit_id)s, %(record_body)s,
        %(record_checksum)s
    ) AS sent (chain, first_seq, commit_id, body, checksum) USING (chain)
), indexed AS (
    INSERT INTO teal_entry (kind, key, thread_no, user_id, run_id, open, due_at)
    SELECT kind, key, no, user_id, run_id, open, due_at
    FROM written JOIN unnest(
        %(entry_chain)s, %(entry_kind)s, %(entry_key)s, %(entry_user_id)s, %(entry_run_id)s,
        %(entry_open)s, %(entry_due_at)s
    ) AS sent (chain, kind, key, user_id, run_id, open, due_at) USING (chain)
    ON CONFLICT (kind, key) DO UPDATE
    SET thread_no = excluded.thread_no, user_id = excluded.user_id, run_id = excluded.run_id,
        open = excluded.open, due_at = excluded.due_at
)
SELECT chain, no FROM written
"""

# What a commit must know that is not known here, or that was wrong.
HEADS_TO_CHANGE: LiteralString = f"""
SELECT thread_id, no, version, head, checksum, coalesce(alive_until > {NOW}, false)
FROM teal_thread LEFT JOIN teal_owner USING (owner)
WHERE thread_id = ANY(%(thread_ids)s)
"""

SENT_BEFORE: LiteralString = """
SELECT sent.job, record.first_seq, record.body, record.checksum
FROM unnest(%(job)s, %(no)s, %(first_seq)s, %(commit_id)s) AS sent (job, no, first_seq, commit_id)
JOIN teal_record AS record ON record.thread_no = sent.no
    AND record.first_seq >= sent.first_seq AND record.commit_id = sent.commit_id
"""

DELETE: LiteralString = f"""
WITH gone AS (
    DELETE FROM teal_thread AS thread
    WHERE no = %(no)s AND version = %(version)s
        AND NOT (%(takes_over)s AND EXISTS (
            SELECT FROM teal_owner
            WHERE teal_owner.owner = thread.owner AND alive_until > {NOW}
        ))
    RETURNING no
), records AS (
    DELETE FROM teal_record USING gone WHERE thread_no = gone.no
), entries AS (
    DELETE FROM teal_entry USING gone WHERE thread_no = gone.no
)
SELECT no FROM gone
"""

HEAD: LiteralString = "SELECT head, checksum FROM teal_thread WHERE thread_id = %(thread_id)s"

HEADS: LiteralString = """
SELECT thread_id, head, checksum FROM teal_thread WHERE thread_id = ANY(%(thread_ids)s)
"""

# One page of a log with its head, as of one moment. The head comes with the first row alone.
LOG: LiteralString = """
SELECT CASE WHEN coalesce(page.before, 0) = 0 THEN thread.head END, thread.checksum,
    page.first_seq, page.commit_id, page.body, page.checksum
FROM teal_thread AS thread
LEFT JOIN LATERAL (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY first_seq) - octet_length(body) AS before
    FROM (
        SELECT first_seq, commit_id, body, checksum FROM teal_record
        WHERE thread_no = thread.no AND first_seq >= (
            SELECT max(first_seq) FROM teal_record
            WHERE thread_no = thread.no AND first_seq <= %(due)s
        )
        ORDER BY first_seq LIMIT %(records)s
    ) AS record
) AS page ON page.before < %(max_bytes)s
WHERE thread.thread_id = %(thread_id)s
ORDER BY page.first_seq
"""

# Whole logs of a few threads, to look for words in them.
LOGS: LiteralString = """
SELECT thread.thread_id, first_seq, commit_id, body, record.checksum
FROM teal_thread AS thread JOIN teal_record AS record ON record.thread_no = thread.no
WHERE thread.thread_id = ANY(%(thread_ids)s)
ORDER BY thread.no, first_seq
"""

ALL_THREADS: LiteralString = """
SELECT thread_id FROM teal_thread WHERE thread_id > %(after)s ORDER BY thread_id LIMIT %(limit)s
"""

# By the index on the user; that the newest come first is sorted out of one user's threads, for an
# index on the time would be written at each commit.
PAGE: LiteralString = """
SELECT thread_id, head, checksum, updated_at FROM teal_thread
WHERE user_id = %(user_id)s
    AND (%(surface)s::text IS NULL OR surface = %(surface)s)
    AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
    AND (%(at)s::timestamptz IS NULL OR (updated_at, thread_id) < (%(at)s, %(thread_id)s::text))
ORDER BY updated_at DESC, thread_id DESC LIMIT %(limit)s
"""

OWNERS: LiteralString = f"SELECT owner FROM teal_owner WHERE alive_until > {NOW}"

ORPHANS: LiteralString = f"""
SELECT thread_id, head, thread.checksum
FROM teal_thread AS thread LEFT JOIN teal_owner USING (owner)
WHERE runnable AND (
    owner IS NULL OR owner = ANY(%(gone)s) OR NOT coalesce(alive_until > {NOW}, false)
)
ORDER BY updated_at, thread_id LIMIT %(limit)s
"""

_ENTRY: LiteralString = """
SELECT kind, key, thread_id, entry.user_id, run_id, open, due_at
FROM teal_entry AS entry JOIN teal_thread AS thread ON thread.no = entry.thread_no
"""
ENTRIES: LiteralString = f"{_ENTRY} WHERE kind = %(kind)s AND key = ANY(%(keys)s)"
OPEN_ENTRIES: LiteralString = f"""{_ENTRY}
WHERE kind = %(kind)s AND entry.user_id = %(user_id)s AND key > %(after)s AND open
ORDER BY key LIMIT %(limit)s
"""
OVERDUE: LiteralString = f"""{_ENTRY}
WHERE kind = %(kind)s AND due_at <= coalesce(%(now)s::timestamptz, now()) AND open
ORDER BY due_at, key LIMIT %(limit)s
"""

RENEW: LiteralString = f"""
INSERT INTO teal_owner (owner, alive_until) VALUES (%(owner)s, {NOW} + %(ttl)s)
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
"""
RETIRE: LiteralString = "DELETE FROM teal_owner WHERE owner = %(owner)s"
FORGET_OWNERS: LiteralString = f"DELETE FROM teal_owner WHERE alive_until < {NOW} - %(seconds)s"

MARK: LiteralString = f"""
INSERT INTO teal_watched AS mark (run_id, at)
SELECT DISTINCT run_id, {NOW} - %(ago)s FROM unnest(%(run_ids)s) AS run (run_id)
ON CONFLICT (run_id) DO UPDATE SET at = greatest(mark.at, excluded.at)
"""
FORGET_MARKS: LiteralString = f"DELETE FROM teal_watched WHERE at < {NOW} - %(seconds)s"
WATCHED: LiteralString = f"SELECT at, {NOW} FROM teal_watched WHERE run_id = %(run_id)s"

# A counter is a row before its first addition is made, so that there is something to lock; in one
# order for all instances. Counters need not survive a power cut.
COUNTERS: LiteralString = """
INSERT INTO teal_counter AS counter (key, sum, forget_at)
SELECT DISTINCT key, 0, 0 FROM unnest(%(keys)s) AS wanted (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET sum = counter.sum
RETURNING key, sum, forget_at, set_config('synchronous_commit', 'off', true)
"""
COUNT: LiteralString = """
UPDATE teal_counter AS counter SET sum = sent.sum, forget_at = sent.forget_at
FROM unnest(%(keys)s, %(sums)s, %(forget_at)s::float8[]) AS sent (key, sum, forget_at)
WHERE counter.key = sent.key
"""
FORGET_COUNTERS: LiteralString = """
DELETE FROM teal_counter WHERE key IN (
    SELECT key FROM teal_counter WHERE forget_at <= %(now)s FOR UPDATE SKIP LOCKED
)
"""
SUMS: LiteralString = """
SELECT key, sum FROM teal_counter
WHERE key >= %(prefix)s AND key < %(end)s AND forget_at > %(now)s
"""

# A row of no owner: shows that the database takes writes.
TOUCH: LiteralString = """
INSERT INTO teal_owner (owner, alive_until) VALUES ('', 0)
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
"""
