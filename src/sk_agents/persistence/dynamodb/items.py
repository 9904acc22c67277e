"""The items of the table: their keys, what is in them, and the way back to the engine's nouns.

| pk | sk | what |
|---|---|---|
| `u#<user>` | `<thread>` | a thread's head |
| `t#<thread>` | `@` | whose thread it is; the way to its head |
| `t#<thread>` | `r#<life>#<place>` | a record |
| `t#<thread>` | `r#<life>#<place>#<token>#<number>` | a part of a record too large for one item |
| `t#<thread>` | `h#<life>#<token>#<number>` | a part of such a head |
| `e#<kind>#<key>` | `@` | an entry |
| `w#<owner>` | `@` | a sign of life of an owner |
| `m#<run>` | `@` | when a run was last read |
| `c#<shard>` | `k<key>` | a counter |
| `unfinished` | `<life>` | a change of which a part is still to be made |
| `schema` | `@` | the version of all this, and how threads are encrypted |

A `life` is new each time a thread is made, so that nothing of a thread that is being removed is
taken for one that was made again with the same id. The two indexes hold keys alone: `by_list` lists
all threads, those that are runnable and the open entries of a user, `by_due` entries with a time.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from sk_agents.engine.models import Entry, EntryKind, Thread
from sk_agents.exceptions import InvalidInput
from sk_agents.persistence.dynamodb.table import Item, Key

ONLY = "@"
BY_LIST = "by_list"
BY_DUE = "by_due"
ALL_THREADS = "threads"
UNFINISHED = "unfinished"
# Runnable threads are spread over so many parts of the index: each takes 1,000 writes a second.
RUNNABLE_SHARDS = 4
COUNTER_SHARDS = 8
# An item holds 400 KiB with its names and keys. What is larger than `WHOLE` lies in parts.
WHOLE = 256 * 1024
PART = 384 * 1024
# What the service takes as the two parts of a key, in bytes.
_MOST_PK, _MOST_SK = 2048, 1024


def text(value: str) -> dict[str, str]:
    """Raises InvalidInput: it is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("An id holds half of a character.") from None
    return {"S": value}


def number(value: float) -> dict[str, str]:
    return {"N": repr(value)}


def key(pk: str, sk: str = ONLY) -> Key:
    """Raises InvalidInput: too long for a key, or no text."""
    if not fits(pk, _MOST_PK) or not fits(sk, _MOST_SK):
        raise InvalidInput("An id is too long for a key of DynamoDB, or is no text.")
    return {"pk": text(pk), "sk": text(sk)}


def fits(value: str, most: int = _MOST_SK) -> bool:
    """Whether a key can hold it; an id that none can hold is of nothing that is stored."""
    try:
        return len(value.encode()) <= most
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class HeadItem:
    """`parts` is how many items more hold the head's bytes; then `body` is empty.

    `behind` is the version and the place of a record of which not all entries are written yet.
    """

    thread_id: str
    user_id: str
    life: str
    version: int
    body: bytes
    checksum: int
    token: str = ""
    parts: int = 0
    behind: tuple[int, int] | None = None

    @property
    def mark(self) -> tuple[str, int, int]:
        return self.life, self.version, self.checksum

    @classmethod
    def read(cls, item: Item) -> HeadItem:
        behind = item.get("behind")
        return cls(
            thread_id=item["sk"]["S"],
            user_id=item["pk"]["S"].removeprefix("u#"),
            life=item["life_id"]["S"],
            version=int(item["head_version"]["N"]),
            body=item["body"]["B"] if "body" in item else b"",
            checksum=int(item["checksum"]["N"]),
            token=item["token"]["S"] if "token" in item else "",
            parts=int(item["parts"]["N"]) if "parts" in item else 0,
            behind=None if behind is None else _pair(behind["S"]),
        )

    def item(self, thread: Thread) -> Item:
        found: Item = {
            **head_key(self.user_id, self.thread_id),
            "life_id": text(self.life),
            "head_version": number(self.version),
            "checksum": number(self.checksum),
            **_body(self.body, self.token, self.parts),
        }
        if self.behind is not None:
            found["behind"] = text(f"{self.behind[0]}:{self.behind[1]}")
        if thread.runnable:
            shard = zlib.crc32(thread.thread_id.encode()) % RUNNABLE_SHARDS
            found["list_pk"] = text(runnable_list(shard))
            found["list_sk"] = text(f"{thread.owner or ''}\n{thread.thread_id}")
        return found


@dataclass(frozen=True, slots=True)
class RecordItem:
    """`entries` are the kinds and keys of what the record's events changed in the index."""

    first_seq: int
    commit_id: str
    body: bytes
    checksum: int
    token: str = ""
    parts: int = 0
    entries: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def read(cls, item: Item) -> RecordItem:
        return cls(
            first_seq=int(item["sk"]["S"].split("#")[2]),
            commit_id=item["commit_id"]["S"],
            body=item["body"]["B"] if "body" in item else b"",
            checksum=int(item["checksum"]["N"]),
            token=item["token"]["S"] if "token" in item else "",
            parts=int(item["parts"]["N"]) if "parts" in item else 0,
            entries=frozenset(item["entries"]["SS"]) if "entries" in item else frozenset(),
        )

    def item(self, thread_id: str, life: str) -> Item:
        found: Item = {
            **record_key(thread_id, life, self.first_seq),
            "commit_id": text(self.commit_id),
            "checksum": number(self.checksum),
            **_body(self.body, self.token, self.parts),
        }
        if self.entries:
            found["entries"] = {"SS": sorted(self.entries)}
        return found


def is_part(item: Item) -> bool:
    """Whether it is a part of a record and not the record itself."""
    return str(item["sk"]["S"]).count("#") > 2


def _body(body: bytes, token: str, parts: int) -> Item:
    if parts:
        return {"token": text(token), "parts": number(parts)}
    return {"body": {"B": body}}


def split(thread_id: str, prefix: str, body: bytes) -> tuple[bytes, str, list[Item]]:
    """The bytes that go into the item itself; or the token of its parts, and the parts.

    The token is a new one: of two that write the same place at once, one is taken, with its parts.
    """
    if len(body) <= WHOLE:
        return body, "", []
    token = uuid.uuid4().hex
    parts = [
        {**key(f"t#{thread_id}", f"{prefix}#{token}#{n:06}"), "body": {"B": body[at : at + PART]}}
        for n, at in enumerate(range(0, len(body), PART))
    ]
    return b"", token, parts


def head_key(user_id: str, thread_id: str) -> Key:
    return key(f"u#{user_id}", thread_id)


def pointer_item(thread: Thread, life: str) -> Item:
    return {
        **key(f"t#{thread.thread_id}"),
        "user_id": text(thread.user_id),
        "life_id": text(life),
        "list_pk": text(ALL_THREADS),
        "list_sk": text(thread.thread_id),
    }


def record_prefix(life: str) -> str:
    return f"r#{life}#"


def record_place(life: str, first_seq: int) -> str:
    """Sorts as the places do; none is larger than 2^63."""
    return f"{record_prefix(life)}{min(max(first_seq, 0), 2**63):019}"


def record_key(thread_id: str, life: str, first_seq: int) -> Key:
    return key(f"t#{thread_id}", record_place(life, first_seq))


def runnable_list(shard: int) -> str:
    return f"runnable#{shard}"


def owner_of(item: Item) -> str:
    """The owner that the index names for a runnable thread; empty for none."""
    listed, thread_id = str(item["list_sk"]["S"]), str(item["sk"]["S"])
    return listed[: -len(thread_id) - 1]


def open_list(kind: str, user_id: str) -> str:
    return f"open#{kind}#{user_id}"


def entry_name(entry: Entry) -> str:
    return f"{entry.kind}#{entry.key}"


def entry_item(entry: Entry, life: str, version: int) -> Item:
    """`version` is that of the head with which it is written."""
    found: Item = {
        **key(f"e#{entry_name(entry)}"),
        "thread_id": text(entry.thread_id),
        "life_id": text(life),
        "head_version": number(version),
        "user_id": text(entry.user_id),
        "run_id": text(entry.run_id),
        "is_open": {"BOOL": entry.open},
    }
    if entry.due_at is not None:
        found["due_at"] = text(entry.due_at.isoformat())
    if entry.open:
        found["list_pk"] = text(open_list(entry.kind, entry.user_id))
        found["list_sk"] = text(entry.key)
        if entry.due_at is not None:
            found["due_pk"] = text(f"due#{entry.kind}")
            found["due_sk"] = text(f"{due_text(entry.due_at)}#{entry.key}")
    return found


def read_entry(item: Item) -> Entry:
    _, kind, name = item["pk"]["S"].split("#", 2)
    due_at = item.get("due_at")
    return Entry(
        cast(EntryKind, kind),
        name,
        item["thread_id"]["S"],
        item["user_id"]["S"],
        item["run_id"]["S"],
        item["is_open"]["BOOL"],
        None if due_at is None else datetime.fromisoformat(due_at["S"]).astimezone(UTC),
    )


def due_text(at: datetime) -> str:
    """Sorts as the times do."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"


def counter_place(name: str) -> tuple[str, str]:
    shard = zlib.crc32(name.encode(errors="surrogatepass")) % COUNTER_SHARDS
    return f"c#{shard}", f"k{name}"


def deletions(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Requests for a batch that delete these items."""
    return [{"DeleteRequest": {"Key": {"pk": one["pk"], "sk": one["sk"]}}} for one in items]


def puts(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [{"PutRequest": {"Item": item}} for item in items]


def values(**named: Any) -> Mapping[str, Any]:
    """The values of an expression: `life="x"` is `:life` in it."""
    return {
        f":{name}": text(value) if isinstance(value, str) else number(value)
        for name, value in named.items()
    }


def _pair(told: str) -> tuple[int, int]:
    first, _, second = told.partition(":")
    return int(first), int(second)
