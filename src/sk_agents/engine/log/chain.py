"""The digest that a thread's head has of its whole log: each record's covers the one before.

A record that was changed, removed or put in another place gives another digest from there on. The
digest alone lies beside what it protects: only a copy of it that is kept elsewhere, or that was
signed, shows that both were changed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Thread


class ChainedRecord(Protocol):
    """One record, its body as it was before encryption."""

    @property
    def first_seq(self) -> int: ...
    @property
    def commit_id(self) -> str: ...
    @property
    def body(self) -> bytes: ...


def extended(thread: Thread, chain: str, first_seq: int, commit_id: str, body: bytes) -> str:
    """The chain after one more record; `chain` is the one before it, empty if there is none.

    A chain says where it begins: at the first event, or later in a thread of a version that had
    none.
    """
    if chain:
        start, _, before = chain.partition(":")
    else:
        start, before = str(first_seq), _beginning(thread, first_seq)
    place = f"{before} {first_seq} {len(commit_id)} {commit_id} "
    hashed = hashlib.sha256(place.encode(errors="surrogatepass"))
    hashed.update(body)
    return f"{start}:{hashed.hexdigest()}"


def rebuilt(thread: Thread, records: Iterable[ChainedRecord]) -> Iterator[tuple[int, str]]:
    """The chain before each record of a whole log, with the record's place; empty until the
    thread's chain begins."""
    chain = ""
    start = chain_start(thread.chain)
    for record in records:
        yield record.first_seq, chain
        if start and record.first_seq >= start:
            chain = extended(thread, chain, record.first_seq, record.commit_id, record.body)
    yield thread.next_seq, chain


def last_chain(thread: Thread, records: Iterable[ChainedRecord]) -> str:
    """The chain that the head of a whole log has."""
    *_, (_, chain) = rebuilt(thread, records)
    return chain


def chain_start(chain: str) -> int:
    """The first event that it covers; 0 if it is none."""
    start = chain.partition(":")[0]
    return int(start) if start.isascii() and start.isdigit() else 0


def _beginning(thread: Thread, start: int) -> str:
    """Two threads' logs never share a digest, nor do two users'."""
    return digest(["teal", thread.thread_id, thread.incarnation, thread.user_id, start])
