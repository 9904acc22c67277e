"""The table itself: made where there is none, and looked at when the store is opened."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Any

from sk_agents.exceptions import (
    ConfigurationError,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.dynamodb.address import TableAddress
from sk_agents.persistence.dynamodb.items import (
    ALL_THREADS,
    BY_DUE,
    BY_LIST,
    key,
    number,
    values,
)
from sk_agents.persistence.dynamodb.table import (
    ConditionFailed,
    Item,
    NoSuchTable,
    Refused,
    Table,
    Unanswered,
)

logger = logging.getLogger(__name__)

VERSION = 1
KEYS = ("pk", "sk")
INDEXES = {BY_LIST: ("list_pk", "list_sk"), BY_DUE: ("due_pk", "due_sk")}
# The attribute by which the table removes what is not needed any more, hours or days later.
EXPIRES = "expires_at"
MAKING_SECONDS = 120
TRIES = 20


async def prepare(table: Table, address: TableAddress, codec: RecordCodec) -> None:
    """Make the table if there is none, then look whether it is ours.

    Raises:
        ConfigurationError: it cannot be made, or is not ours.
        StoreNotEncrypted, StoreEncrypted, WrongEncryptionKey: the codec is not for this table.
        SchemaTooNew: a newer version wrote it.
        StoreError: it cannot be reached.
    """
    try:
        _check_keys(table, await _usable(table, address))
        await _expire(table)
        await _check_schema(table, codec)
    except (Unanswered, Refused) as error:
        raise StoreUnavailable(f"{table}: {error}") from error


def definition(address: TableAddress) -> dict[str, Any]:
    """What the table is made with."""
    capacity: dict[str, Any] = {}
    if address.units is not None:
        read, write = address.units
        units = {"ReadCapacityUnits": read, "WriteCapacityUnits": write}
        capacity = {"ProvisionedThroughput": units}
    names = [*KEYS, *(name for keys in INDEXES.values() for name in keys)]
    return {
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names],
        "KeySchema": _key_schema(KEYS),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": name,
                "KeySchema": _key_schema(keys),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
                **capacity,
            }
            for name, keys in INDEXES.items()
        ],
        "BillingMode": "PROVISIONED" if capacity else "PAY_PER_REQUEST",
        **capacity,
    }


async def _usable(table: Table, address: TableAddress) -> dict[str, Any]:
    """The description of the table, once it can be used."""
    found = await _described(table)
    if found is None:
        await _make(table, address)
    end, pause = time.monotonic() + MAKING_SECONDS, 0.02
    while found is None or found["TableStatus"] not in ("ACTIVE", "UPDATING"):
        if time.monotonic() > end:
            raise StoreBusy(f"{table}: the table is still being made")
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2.0)
        found = await _described(table)
    return found


def _key_schema(keys: tuple[str, str]) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": n, "KeyType": kind} for n, kind in zip(keys, kinds, strict=True)]


async def _described(table: Table) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = (await table.send("DescribeTable"))["Table"]
    except NoSuchTable:
        return None
    return found


async def _make(table: Table, address: TableAddress) -> None:
    try:
        await table.send("CreateTable", **definition(address))
    except StoreError as error:
        cause = str(error.__cause__)
        if "ResourceInUse" in cause:
            return  # another instance makes it
        if "AccessDenied" in cause:
            raise ConfigurationError(
                f"{table}: there is no such table, and these credentials may not make one: run"
                " `teal migrate` with some that may"
            ) from error
        raise
    logger.info("dynamodb table made", extra={"table": table.name})


def _check_keys(table: Table, found: dict[str, Any]) -> None:
    indexes = {one["IndexName"]: one for one in found.get("GlobalSecondaryIndexes", [])}
    is_ours = found["KeySchema"] == _key_schema(KEYS) and all(
        name in indexes and indexes[name]["KeySchema"] == _key_schema(keys)
        for name, keys in INDEXES.items()
    )
    if not is_ours:
        raise ConfigurationError(
            f"{table}: the keys or indexes of this table are not ours: name a table that does not"
            " exist yet, or make it as the documentation says"
        )


async def _expire(table: Table) -> None:
    """Have the table remove old marks, counters and signs of life. It works without."""
    try:
        told = await table.send("DescribeTimeToLive")
        if told["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLED", "ENABLING"):
            return
        setting = {"Enabled": True, "AttributeName": EXPIRES}
        await table.send("UpdateTimeToLive", TimeToLiveSpecification=setting)
    except (Refused, StoreError) as error:
        logger.warning(
            "old marks, counters and signs of life stay in the table: its time to live is not set",
            extra={"table": table.name, "error": type(error.__cause__ or error).__name__},
        )


async def _check_schema(table: Table, codec: RecordCodec) -> None:
    """Raises what `prepare` names."""
    for _ in range(TRIES):
        item = await table.get(key("schema"))
        version = int(item["version_number"]["N"]) if item is not None else 0
        if version > VERSION:
            raise SchemaTooNew(
                f"{table}: the table was written by a newer version (schema {version}, this one"
                f" knows {VERSION}); it was not touched."
            )
        found = item["encryption"]["B"] if item is not None and "encryption" in item else None
        is_empty = found is None and await _has_no_thread(table)
        marker = codec.marker(found, is_empty=is_empty)
        if version == VERSION and marker == found:
            return
        try:
            await _write_schema(table, item, found, marker)
            return
        except ConditionFailed:
            continue  # another instance was faster
    raise StoreBusy(f"{table}: what the table says of itself changes all the time")


async def _write_schema(
    table: Table, item: Item | None, found: bytes | None, marker: bytes | None
) -> None:
    new: Item = {**key("schema"), "version_number": number(VERSION)}
    if marker is not None:
        new["encryption"] = {"B": marker}
    if item is None:
        await table.put(new, "attribute_not_exists(pk)")
    elif found is None:
        await table.put(new, "attribute_exists(pk) AND attribute_not_exists(encryption)")
    else:
        await table.put(new, "encryption = :found", {":found": {"B": found}})


async def replace_marker(table: Table, found: bytes, marker: bytes) -> bool:
    """Have the table say something else of its encryption; False if it does not say `found`."""
    new: Item = {
        **key("schema"),
        "version_number": number(VERSION),
        "encryption": {"B": marker},
    }
    try:
        await table.put(new, "encryption = :found", {":found": {"B": found}})
        return True
    except ConditionFailed:
        return False


async def _has_no_thread(table: Table) -> bool:
    query = table.query("list_pk = :pk", values(pk=ALL_THREADS), IndexName=BY_LIST, Limit=1)
    async with aclosing(query) as pages:
        async for page in pages:
            return not page
    return True
