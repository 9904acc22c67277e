"""A store with conversations in it, its audit, and an attacker who can rewrite all of it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sk_agents.audit.checkpointing import Checkpointer
from sk_agents.audit.checkpoints import Signer
from sk_agents.audit.server_log import ServerLog
from sk_agents.audit.verification import AuditFinding, verify
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.events import Noted
from sk_agents.engine.log.chain import last_chain
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import PortableStore, StoredRecord
from sk_agents.persistence.encryption import EncryptingCodec, new_key, read_keys
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import append, create, thought
from sk_agents.wire.views import Checkpoint

SIGNER = Signer(Ed25519PrivateKey.generate())


@asynccontextmanager
async def opened(url: str, *, encrypted: bool = False) -> AsyncIterator[PortableStore]:
    codec = EncryptingCodec(read_keys(new_key(), "test")) if encrypted else None
    store = open_store(url, codec=codec)
    assert isinstance(store, PortableStore)
    async with store as entered:
        yield entered


@asynccontextmanager
async def open_log(store: PortableStore) -> AsyncIterator[ServerLog]:
    async with ServerLog(store, RandomIds()) as log:
        yield log


async def talk(store: PortableStore, threads: int, commits: int) -> None:
    for number in range(threads):
        head = (await store.commit(create(f"t{number}", thought(f"{number} first")))).thread
        for step in range(commits - 1):
            head = (await store.commit(append(head, thought(f"{number} {step}")))).thread


async def checkpoint(store: PortableStore, log: ServerLog) -> Checkpoint:
    return await Checkpointer(store, log, SIGNER, SystemClock()).write()


async def filled(store: PortableStore) -> Checkpoint:
    """Conversations and notes, and a checkpoint of them, and then some more of both."""
    async with open_log(store) as log:
        await talk(store, threads=4, commits=4)
        for number in range(3):
            await log.note(Noted(what="exporting", who="ann", subject=f"t{number}"))
        first = await checkpoint(store, log)
        await log.note(Noted(what="exporting", who="bob", subject="t1"))
        return first


async def found(store: PortableStore, *kept: Checkpoint) -> list[AuditFinding]:
    return (await verify(store, kept=kept, keys=[SIGNER.public])).findings


class Attacker:
    """Has the disk, the encryption keys and this program, and no signing key: whatever it changes
    of a thread, checksums and chain fit it again."""

    def __init__(self, store: PortableStore, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)

    async def strike(self, checkpoint: Checkpoint) -> str:
        """Change or remove one record that the checkpoint covers; says what was done."""
        thread_id = self._random.choice(list(await self._store.all_threads()))
        thread, records = await self._store.whole_thread(thread_id)
        covered = [
            number
            for number, record in enumerate(records)
            if thread.incarnation != checkpoint.incarnation
            or record.first_seq < checkpoint.next_seq
        ]
        number = self._random.choice(covered)
        how = self._random.choice(["edit", "remove", "rename"])
        changed = list(records)
        if how == "edit":
            changed[number] = replace(records[number], body=self._edited(records[number].body))
        elif how == "rename":
            changed[number] = replace(records[number], commit_id="another")
        else:
            changed = _without(thread, changed, number)
        await self._put(thread, changed)
        return f"{how} {thread_id} {number}"

    def _edited(self, body: bytes) -> bytes:
        """Another record that can be read: one letter or digit inside a text is another one."""
        text = body.decode()
        start = text.index('"events"')
        places = [
            place
            for place, char in enumerate(text)
            if place > start and char.isdigit() and text[place - 1] not in '"_'
        ] or [text.index('"content":"') + len('"content":"')]
        place = self._random.choice(places)
        other = "7" if text[place] != "7" else "3"
        return (text[:place] + other + text[place + 1 :]).encode()

    async def _put(self, thread: Thread, records: list[StoredRecord]) -> None:
        await self._store.delete(
            thread.thread_id, next_seq=thread.next_seq, incarnation=thread.incarnation
        )
        if records:
            sizes = [_events(record) for record in records]
            thread = thread._replace(next_seq=1 + sum(sizes))
            await self._store.restore(thread._replace(chain=last_chain(thread, records)), records)


def _without(thread: Thread, records: list[StoredRecord], number: int) -> list[StoredRecord]:
    """The others, moved together so that no place is empty."""
    missing = _events(records[number])
    return [
        *records[:number],
        *(replace(one, first_seq=one.first_seq - missing) for one in records[number + 1 :]),
    ]


def _events(record: StoredRecord) -> int:
    return record.body.count(b'"type":"')
