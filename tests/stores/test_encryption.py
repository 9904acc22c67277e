"""Encryption at rest: what lies on the disk cannot be read, swapped or mixed with plain text."""

import json
import random
from pathlib import Path

import apsw
import pytest

from sk_agents.engine.ports import ThreadQuery
from sk_agents.exceptions import (
    StateCorrupt,
    StoreBroken,
    StoreEncrypted,
    StoreNotEncrypted,
    WrongEncryptionKey,
)
from sk_agents.persistence.encoding import head_checksum, record_checksum
from sk_agents.persistence.file.lines import seal
from sk_agents.persistence.file.log import line_place
from sk_agents.persistence.store_factory import open_store
from tests.chaos.scale import trials
from tests.requirements import requirement
from tests.stores.conftest import DURABLE
from tests.stores.encrypted import CANARY, add_thread, codec, fill, hits, on_disk, put_back

SWAPS = trials(full=100, small=30)


@requirement("S004-10.2-encryption")
async def test_nothing_said_can_be_found_on_the_disk(durable_url: str, tmp_path: Path) -> None:
    async with open_store(durable_url, codec=codec()) as store:
        await fill(store, 4)
        found = hits(tmp_path)
        assert not found, "while it is open"
        page = await store.threads(ThreadQuery("ada", text=f"{CANARY} answer"))
        assert [head.metadata["title"] for head in page.threads] == [f"{CANARY} t2", f"{CANARY} t0"]
    assert hits(tmp_path) == []


async def test_without_keys_everything_can_be_found(durable_url: str, tmp_path: Path) -> None:
    async with open_store(durable_url) as store:
        await fill(store, 1)
    assert hits(tmp_path) != []


async def test_wrong_key_stops_the_start_and_touches_nothing(
    durable_url: str, tmp_path: Path
) -> None:
    async with open_store(durable_url, codec=codec()) as store:
        await fill(store, 2)
    before = on_disk(tmp_path)
    wrong = codec()
    with pytest.raises(WrongEncryptionKey, match=wrong.keys.ids[0]):
        await open_store(durable_url, codec=wrong).__aenter__()
    with pytest.raises(StoreEncrypted, match="TA_ENCRYPTION_KEYS"):
        await open_store(durable_url).__aenter__()
    assert on_disk(tmp_path) == before


async def test_keys_for_a_store_in_plain_text_stop_the_start(
    durable_url: str, tmp_path: Path
) -> None:
    async with open_store(durable_url) as store:
        await fill(store, 1)
    before = on_disk(tmp_path)
    with pytest.raises(StoreNotEncrypted, match="teal encrypt"):
        await open_store(durable_url, codec=codec()).__aenter__()
    assert on_disk(tmp_path) == before


async def test_a_server_in_plain_text_ends_when_its_empty_store_is_encrypted(
    durable_url: str, tmp_path: Path
) -> None:
    async with open_store(durable_url) as plain:
        async with open_store(durable_url, codec=codec()) as store:
            await fill(store, 1)
            with pytest.raises(StateCorrupt):
                await plain.thread("t0")
            with pytest.raises(StoreBroken, match="encrypted"):
                await add_thread(plain, "t1", user="bob", records=1)
            assert hits(tmp_path) == []


THREADS = 8


class SqliteVandal:
    """Changes rows as one who knows every checksum and has no key."""

    def __init__(self, folder: Path) -> None:
        self._database = apsw.Connection(str(folder / "teal.sqlite"))
        rows = self._database.execute("SELECT thread_id, no FROM thread")
        self._threads: dict[int, str] = {no: thread_id for thread_id, no in rows}
        first = self._database.execute("SELECT place >> 32, commit_id FROM record ORDER BY no DESC")
        # A thread's incarnation is its first commit.
        self._incarnations = dict(first)

    def close(self) -> None:
        self._database.close()

    def swap_records(self, chance: random.Random) -> list[str]:
        return self._swap(chance, self._records())

    def swap_records_of_a_thread(self, chance: random.Random) -> list[str]:
        """Two that hold as many events, so that only their places differ."""
        thread = chance.choice(sorted(self._threads))
        return self._swap(chance, [row for row in self._records() if row[1] >> 32 == thread][:-1])

    def _records(self) -> list[tuple[int, int, str, bytes]]:
        statement = "SELECT no, place, commit_id, body FROM record ORDER BY place"
        return list(self._database.execute(statement))

    def _swap(self, chance: random.Random, records: list[tuple[int, int, str, bytes]]) -> list[str]:
        one, other = chance.sample(records, 2)
        (no, place, commit_id, body), (other_no, other_place, other_id, other_body) = one, other
        is_whole = chance.random() < 0.5
        self._put_record(no, place, other_id if is_whole else commit_id, other_body)
        self._put_record(other_no, other_place, commit_id if is_whole else other_id, body)
        return [self._threads[place >> 32], self._threads[other_place >> 32]]

    def swap_heads(self, chance: random.Random) -> list[str]:
        one, other = chance.sample(sorted(self._threads.values()), 2)
        heads = {name: self._head(name) for name in (one, other)}
        self._put_head(one, heads[other])
        self._put_head(other, heads[one])
        return [one, other]

    def swap_wrapped_keys(self, chance: random.Random) -> list[str]:
        one, other = chance.sample(sorted(self._threads.values()), 2)
        heads = {name: self._head(name) for name in (one, other)}
        self._put_head(one, heads[other][:70] + heads[one][70:])
        return [one]

    def swap_users(self, chance: random.Random) -> list[str]:
        name = chance.choice(sorted(self._threads.values()))
        self._database.execute("UPDATE thread SET user_id = 'eve' WHERE thread_id = ?", (name,))
        return [name]

    def put_plain_record(self, chance: random.Random) -> list[str]:
        rows = list(self._database.execute("SELECT no, place, commit_id FROM record"))
        no, place, commit_id = chance.choice(rows)
        plain = b'{"v":1,"at":"2026-01-01T00:00:00Z","events":[{"type":"thread_changed"}]}'
        self._put_record(no, place, commit_id, plain)
        return [self._threads[place >> 32]]

    def put_plain_head(self, chance: random.Random) -> list[str]:
        name = chance.choice(sorted(self._threads.values()))
        self._put_head(name, b'{"thread_id":"%b","user_id":"eve"}' % name.encode())
        return [name]

    def _head(self, thread_id: str) -> bytes:
        found = self._database.execute("SELECT head FROM thread WHERE thread_id = ?", (thread_id,))
        ((head,),) = found
        return bytes(head)

    def _put_head(self, thread_id: str, head: bytes) -> None:
        self._database.execute(
            "UPDATE thread SET head = ?, checksum = ? WHERE thread_id = ?",
            (head, head_checksum(thread_id, head), thread_id),
        )

    def _put_record(self, no: int, place: int, commit_id: str, body: bytes) -> None:
        thread = place >> 32
        identity = (self._threads[thread], place & 2**32 - 1, commit_id)
        check = record_checksum(*identity, body, self._incarnations[thread])
        self._database.execute(
            "UPDATE record SET commit_id = ?, body = ?, checksum = ? WHERE no = ?",
            (commit_id, body, check, no),
        )


class FileVandal:
    """The same for files."""

    def __init__(self, folder: Path) -> None:
        keys = sorted((folder / "store").rglob("key.json"))
        self._folders = {json.loads(key.read_text())["thread_id"]: key.parent for key in keys}

    def close(self) -> None: ...

    def swap_lines(self, chance: random.Random) -> list[str]:
        name = chance.choice(sorted(self._folders))
        lines = self._lines(name)
        place = chance.randrange(1, len(lines))
        self._put_line(name, place, lines[place - 1])
        return [name]

    def take_line_of_another(self, chance: random.Random) -> list[str]:
        one, other = chance.sample(sorted(self._folders), 2)
        place = chance.randrange(len(self._lines(one)))
        self._put_line(one, place, self._lines(other)[place])
        return [one]

    def swap_keys(self, chance: random.Random) -> list[str]:
        return self._swap(chance, "key.json")

    def swap_wrapped_keys(self, chance: random.Random) -> list[str]:
        one, other = chance.sample(sorted(self._folders), 2)
        wrapped = json.loads((self._folders[other] / "key.json").read_text())["key"]
        self._change_key(one, key=wrapped)
        return [one]

    def swap_logs(self, chance: random.Random) -> list[str]:
        return self._swap(chance, "log.jsonl")

    def swap_users(self, chance: random.Random) -> list[str]:
        name = chance.choice(sorted(self._folders))
        self._change_key(name, user_id="eve")
        return [name]

    def put_plain_line(self, chance: random.Random) -> list[str]:
        name = chance.choice(sorted(self._folders))
        state = b'{"commit_id":"c","first_seq":1,"head":{"next_seq":2},"entries":[]}'
        plain = b'{"state_size":"%010d","state":%b,"body":{}}' % (len(state), state)
        self._put_line(name, chance.randrange(len(self._lines(name))), plain)
        return [name]

    def _swap(self, chance: random.Random, file: str) -> list[str]:
        names = chance.sample(sorted(self._folders), 2)
        one, other = (self._folders[name] / file for name in names)
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return names

    def _change_key(self, name: str, **fields: str) -> None:
        path = self._folders[name] / "key.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def _lines(self, name: str) -> list[bytes]:
        """What each line of the log holds."""
        text = (self._folders[name] / "log.jsonl").read_bytes()
        return [line[line.index(b'"record":') + 9 : -1] for line in text.splitlines()]

    def _put_line(self, name: str, number: int, payload: bytes) -> None:
        """Sealed anew for its place: the checksums need no key."""
        log, lines = self._folders[name] / "log.jsonl", self._lines(name)
        lines[number] = payload
        incarnation = json.loads((self._folders[name] / "key.json").read_text())["incarnation"]
        data = b""
        for seq, line in enumerate(lines, 1):
            data += seal(line_place(name, seq, len(data), incarnation), line)
        log.write_bytes(data)


VANDALS: dict[str, type[SqliteVandal] | type[FileVandal]] = {
    "sqlite": SqliteVandal,
    "file": FileVandal,
}
ACTS = [
    (kind, name)
    for kind, vandal in VANDALS.items()
    for name in vars(vandal)
    if name.startswith(("swap", "put", "take"))
]


@requirement("S004-10.2-encryption")
@pytest.mark.parametrize("kind", VANDALS)
async def test_swapped_and_plain_records_are_refused(kind: str, tmp_path: Path) -> None:
    url = f"{kind}://{tmp_path / DURABLE[kind]}"
    keys, chance = codec(), random.Random(16)
    async with open_store(url, codec=keys) as store:
        await fill(store, THREADS)
    untouched = on_disk(tmp_path)
    acts = [name for of, name in ACTS if of == kind]
    accepted = []
    for number in range(SWAPS):
        act = acts[number % len(acts)]
        vandal = VANDALS[kind](tmp_path)
        touched = getattr(vandal, act)(chance)
        vandal.close()
        async with open_store(url, codec=keys) as store:
            for name in touched:
                try:
                    await store.thread(name)
                    await store.events_after(name, 0)
                    accepted.append((act, name))
                except StateCorrupt:
                    continue
            others = {f"t{number}" for number in range(THREADS)} - set(touched)
            assert await store.events_after(min(others), 0), "the others are not affected"
        put_back(tmp_path, untouched)
    assert accepted == []
