"""What a store's URL opens, and how a wrong one is refused."""

import importlib
from pathlib import Path

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.memory.store import EphemeralStore, MemoryStore
from sk_agents.persistence.store_factory import STORES, Kind, open_store, place_of
from sk_agents.signals.signals_factory import peers_folder
from sk_agents.testing.commits import start_run
from sk_agents.tools.mcp.pins import pins_path


@pytest.mark.parametrize("url", ["memory:", "memory://", "MEMORY:"])
async def test_memory_url_opens_a_memory_store(url: str) -> None:
    async with open_store(url) as store:
        assert type(store) is MemoryStore


def test_ephemeral_url_opens_an_ephemeral_store() -> None:
    assert type(open_store("ephemeral:")) is EphemeralStore


@pytest.mark.parametrize("scheme", [name for name, kind in STORES.items() if kind.has_path])
@pytest.mark.parametrize("slashes", ["///", "////"])
async def test_three_and_four_slashes_name_the_same_absolute_path(
    scheme: str, slashes: str, tmp_path: Path
) -> None:
    kept = tmp_path / "a folder" / "kept"
    async with open_store(f"{scheme}:{slashes}{str(kept).lstrip('/')}") as store:
        await store.ping()
    assert kept.exists()


@pytest.mark.parametrize("scheme", [name for name, kind in STORES.items() if kind.has_path])
async def test_a_link_is_the_place_it_leads_to(scheme: str, tmp_path: Path) -> None:
    """Processes that share it under its own name meet those that use the link."""
    kept, link = tmp_path / "disk" / "kept", tmp_path / "link"
    link.symlink_to(kept)
    named, linked = f"{scheme}://{kept}", f"{scheme}://{link}"
    async with open_store(linked) as store, open_store(named) as same:
        made = await store.commit(start_run("t"))
        assert (await same.thread("t")).next_seq == made.thread.next_seq
        await store.ping()
    assert peers_folder(linked) == peers_folder(named)
    assert pins_path(linked) == pins_path(named)


@pytest.mark.parametrize("scheme", [name for name, kind in STORES.items() if kind.has_path])
def test_name_after_three_slashes_is_not_taken_for_a_place_in_the_root_folder(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{scheme}://\$PWD/kept\.db, .* four slashes"):
        place_of(f"{scheme}:///kept.db")
    assert place_of(f"{scheme}:////kept.db") == (scheme, Path("/kept.db"))
    assert place_of(f"{scheme}:///srv/kept.db") == (scheme, Path("/srv/kept.db"))


@pytest.mark.parametrize("kind", STORES.values(), ids=STORES)
def test_every_row_of_the_table_names_a_class_that_exists(kind: Kind) -> None:
    assert isinstance(getattr(importlib.import_module(kind.module), kind.class_name), type)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:/srv/teal.sqlite",
        "sqlite://teal.sqlite",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///srv/teal.sqlite?mode=ro",
        "sqlite:///srv/a\0b",
        "sqlite://someone:s3cret@host/srv/teal.sqlite",
        "file://chats",
        "memory:///s3cret",
        "memory:s3cret",
    ],
)
def test_url_of_the_wrong_form_is_refused_and_the_right_form_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    form = STORES[url.partition(":")[0]].form
    assert form in str(refused.value)
    assert "TA_STORE" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["mysql://someone:s3cret@host/db", "someone:s3cret@host", "s3cret", "", "://s3cret", "1:"],
)
def test_url_of_an_unknown_store_is_refused_with_the_supported_ones(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    assert "sqlite:///path, file:///dir" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://someone:s3c/ret@host/db", "postgresql:s3cret"])
def test_postgresql_url_that_makes_no_sense_is_refused_without_its_words(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    assert "postgresql://user" in str(refused.value)
    assert "s3c" not in str(refused.value)


def test_unknown_scheme_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'mysql'"):
        open_store("mysql://host")


@pytest.mark.parametrize(
    "url",
    [
        "redis://s3cret@",
        "redis://h:s3cret",
        "redis://h/s3cret",
        "redis://h,s3cret",
        "redis://h?s3cret=1",
        "redis://h?ttl=s3cret",
        "redis://h?prefix={s3cret}",
        "redis+sentinel://s3cret",
        "rediss+cluster://h/1?s3cret",
        "redis+cluster://h?replicas=1",
    ],
)
def test_redis_url_that_makes_no_sense_is_refused_without_its_words(url: str) -> None:
    with pytest.raises(ConfigurationError, match="Redis's") as refused:
        open_store(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:s3cret@host?ttl=5&prefix=x", "redis://host:6379/0"),
        ("rediss://:s3cret@[::1]:7000/3", "rediss://[::1]:7000/3"),
        ("redis+sentinel://:s@a,b:1/main", "redis+sentinel://a:26379,b:1/main/0"),
        ("redis+cluster://:s@a,b:1", "redis+cluster://a:6379,b:1"),
    ],
)
def test_redis_store_is_named_without_its_password(url: str, shown: str) -> None:
    assert str(open_store(url)) == shown
