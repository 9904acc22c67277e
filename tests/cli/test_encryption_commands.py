"""`teal encryption-key`, `encrypt` and `rekey`, as an operator uses them."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sk_agents.cli import app
from sk_agents.persistence.store_factory import open_store
from tests.stores.encrypted import codec, contents, fill, hits


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def teal(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output


def test_new_keys_encrypt_a_store_and_take_over_from_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path / 'teal.sqlite'}"

    async def filled() -> None:
        async with open_store(url) as store:
            await fill(store, 3)

    async def titles(*keys: str) -> list[object]:
        async with open_store(url, codec=codec(*keys)) as store:
            return [head.metadata["title"] for head, _ in (await contents(store, 3)).values()]

    asyncio.run(filled())
    (_, old), (_, new) = teal("encryption-key"), teal("encryption-key")
    old, new = old.strip(), new.strip()
    monkeypatch.setenv("TA_STORE", url)
    assert teal("encrypt")[0] == 78, "there are no keys"
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", old)
    code, said = teal("encrypt")
    assert (code, hits(tmp_path)) == (0, [])
    assert "3 threads were encrypted" in said
    assert teal("encrypt") == (0, f"{url}: 0 threads were encrypted\n")
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", new)
    code, said = teal("rekey")
    assert code == 78
    assert "not among the encryption keys" in said
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", f"{new},{old}")
    code, said = teal("rekey")
    assert (code, said) == (0, f"{url}: 3 threads were wrapped by the first key\n")
    assert len(asyncio.run(titles(new))) == 3


def test_a_store_in_use_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{tmp_path / 'chats'}"
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", teal("encryption-key")[1].strip())

    async def encrypt_while_open() -> tuple[int, str]:
        async with open_store(url):
            return await asyncio.to_thread(teal, "encrypt", "--store", url)

    code, said = asyncio.run(encrypt_while_open())
    assert code == 75
    assert "stop it first" in said


def test_a_store_that_keeps_nothing_cannot_be_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", teal("encryption-key")[1].strip())
    code, said = teal("encrypt", "--store", "memory:")
    assert code == 78
    assert "memory:" in said
