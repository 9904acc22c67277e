"""Changes that do not fit into one transaction, and how they are brought to their end.

A transaction has at most 100 items. The removal of a thread, and a commit that changes more entries
than fit, begin with one that decides: from then on the thread is gone, or the commit is stored. The
same transaction leaves an item that says what is still to be done. The instance that began does it
at once; if it is lost, another one does. To do it twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from sk_agents.engine.log.commits import entries_of
from sk_agents.engine.models import Entry
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, StoreUnavailable
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.dynamodb.items import (
    UNFINISHED,
    HeadItem,
    RecordItem,
    deletions,
    entry_item,
    entry_name,
    head_key,
    key,
    record_prefix,
    text,
    values,
)
from sk_agents.persistence.dynamodb.reading import Reader
from sk_agents.persistence.dynamodb.table import (
    ConditionFailed,
    Item,
    Refused,
    Table,
    Unanswered,
)
from sk_agents.persistence.encoding import decode_record

logger = logging.getLogger(__name__)

# A later commit of the thread, or another thread, may have changed the entry since.
NOT_NEWER = (
    "attribute_not_exists(pk) OR thread_id <> :thread OR life_id <> :life"
    " OR head_version < :version"
)
OF_LIFE = "thread_id = :thread AND life_id = :life"
AT_ONCE = 16


def note(thread_id: str, life: str) -> Item:
    """The item that says that something of this thread is to be done."""
    return {**key(UNFINISHED, life), "thread_id": text(thread_id)}


class Unfinished:
    def __init__(self, table: Table, reader: Reader, codec: RecordCodec) -> None:
        self._table = table
        self._reader = reader
        self._codec = codec

    async def finish_all(self) -> None:
        """What instances that were lost have left. Raises StoreError."""
        async for page in self._table.query("pk = :pk", values(pk=UNFINISHED)):
            for item in page:
                thread_id, life = item["thread_id"]["S"], item["sk"]["S"]
                try:
                    head = await self._reader.head(thread_id)
                    if head is None or head.life != life:
                        await self.remove(thread_id, life)
                    elif head.behind is not None:
                        await self.index(head)
                    else:
                        await self._done(life)
                except (StateCorrupt, SchemaTooNew):
                    logger.warning("entries cannot be written", extra={"thread_id": thread_id})

    async def index(self, head: HeadItem) -> None:
        """Write the entries that a stored commit has left out.

        Raises:
            StateCorrupt, SchemaTooNew: the commit cannot be read.
            StoreError: it is to be tried again.
        """
        assert head.behind is not None
        version, first_seq = head.behind
        entries = await self._entries_since(head, first_seq)
        await self.put_entries(entries, head.life, version)
        try:
            await self._table.send(
                "UpdateItem",
                Key=head_key(head.user_id, head.thread_id),
                UpdateExpression="REMOVE behind",
                ConditionExpression="life_id = :life AND head_version = :version",
                ExpressionAttributeValues=values(life=head.life, version=head.version),
            )
        except ConditionFailed:
            pass  # another instance was faster
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self._table}: {error}") from error
        await self._done(head.life)

    async def put_entries(self, entries: Iterable[Entry], life: str, version: int) -> None:
        async def put(entry: Entry) -> None:
            place = values(thread=entry.thread_id, life=life, version=version)
            await self._table.put(entry_item(entry, life, version), NOT_NEWER, place)

        await self._each([put(entry) for entry in entries])

    async def remove(self, thread_id: str, life: str) -> None:
        """Remove the records and entries of a thread whose head is gone."""
        async for page in self._table.query(
            "pk = :pk AND begins_with(sk, :prefix)",
            values(pk=f"t#{thread_id}", prefix=record_prefix(life)),
        ):
            records = [RecordItem.read(item) for item in page if "commit_id" in item]
            names = {name for record in records for name in record.entries}
            place = values(thread=thread_id, life=life)
            await self._each(
                [self._table.delete(key(f"e#{name}"), OF_LIFE, place) for name in names]
            )
            await self._write_all(deletions(page))
        await self.drop_parts(thread_id, f"h#{life}#")
        await self._done(life)

    async def drop_parts(self, thread_id: str, prefix: str) -> None:
        async for page in self._table.query(
            "pk = :pk AND begins_with(sk, :prefix)", values(pk=f"t#{thread_id}", prefix=prefix)
        ):
            await self._write_all(deletions(page))

    async def _done(self, life: str) -> None:
        try:
            await self._table.delete(key(UNFINISHED, life))
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self._table}: {error}") from error

    async def _entries_since(self, head: HeadItem, first_seq: int) -> Iterable[Entry]:
        thread, written = self._codec.decode_head(head.thread_id, head.body, head.checksum)
        found: dict[str, Entry] = {}
        records = self._reader.records(head.thread_id, head.life, first_seq)
        async with aclosing(records) as rows:
            async for row in rows:
                place = (head.thread_id, row.first_seq, row.commit_id, row.body, row.checksum)
                record = decode_record(*place, thread.incarnation, written=written)
                for entry in entries_of(thread, record.events):
                    found[entry_name(entry)] = entry
        return found.values()

    async def _write_all(self, requests: Sequence[dict[str, Any]]) -> None:
        try:
            await self._table.write_all(requests)
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self._table}: {error}") from error

    async def _each(self, changes: Sequence[Any]) -> None:
        """Conditional changes, several at a time; a condition that fails is as good."""
        free = asyncio.Semaphore(AT_ONCE)

        async def one(change: Any) -> None:
            async with free:
                try:
                    await change
                except ConditionFailed:
                    pass
                except (Unanswered, Refused) as error:
                    raise StoreUnavailable(f"{self._table}: {error}") from error

        await asyncio.gather(*map(one, changes))
