"""Documents under a passphrase."""

import json
from typing import Any

import pytest

from sk_agents.cli import passphrase
from sk_agents.cli.passphrase import WrongPassphrase, decrypted, encrypted, is_encrypted

DOCUMENT = {"id": "chat_1", "said": ["canary"]}


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(passphrase, "WORK", {"n": 2**10, "r": 8, "p": 1})
    return encrypted(DOCUMENT, "correct horse")


def test_document_opens_with_its_passphrase_alone(sealed: dict[str, Any]) -> None:
    assert "canary" not in json.dumps(sealed)
    assert is_encrypted(sealed) and not is_encrypted(DOCUMENT)
    assert decrypted(sealed, "correct horse") == DOCUMENT
    with pytest.raises(WrongPassphrase):
        decrypted(sealed, "battery staple")


def test_two_exports_of_one_document_have_nothing_in_common(sealed: dict[str, Any]) -> None:
    again = encrypted(DOCUMENT, "correct horse")
    assert again["scrypt"]["salt"] != sealed["scrypt"]["salt"]
    assert again["data"] != sealed["data"]


@pytest.mark.parametrize(
    "changed",
    [
        {"data": "AAAA"},
        {"data": None},
        {"nonce": "!"},
        {"version": 2},
        {"scrypt": {"n": 2**30, "r": 8, "p": 1, "salt": "AAAA"}},
        {"scrypt": {"n": 1024, "r": 8, "p": 10**6, "salt": "AAAA"}},
        {"scrypt": {"n": 1023, "r": 8, "p": 1, "salt": "AAAA"}},
        {"scrypt": {}},
        {"scrypt": []},
    ],
)
def test_changed_document_is_refused(sealed: dict[str, Any], changed: dict[str, Any]) -> None:
    with pytest.raises((WrongPassphrase, ValueError)):
        decrypted({**sealed, **changed}, "correct horse")
