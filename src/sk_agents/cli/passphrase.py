"""Documents under a passphrase: scrypt makes the key, AES-256-GCM encrypts."""

from __future__ import annotations

import base64
import binascii
import json
import os
from pathlib import Path
from typing import Any

import typer
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

FORMAT = "teal-encrypted-export"
VERSION = 1
# 128 MB and about half a second for each guess: RFC 7914 with OWASP's choice of numbers.
WORK = {"n": 2**17, "r": 8, "p": 1}
# A document from elsewhere must not make us work for hours.
MOST_MEMORY = 1024 * 1024 * 1024
MOST_PARALLEL = 16


class WrongPassphrase(Exception):
    """The passphrase is not the document's, or the document was changed."""


def is_encrypted(document: dict[str, Any]) -> bool:
    return document.get("format") == FORMAT


def encrypted(document: dict[str, Any], passphrase: str) -> dict[str, Any]:
    salt, nonce = os.urandom(16), os.urandom(12)
    header = {"format": FORMAT, "version": VERSION, "scrypt": {**WORK, "salt": _text(salt)}}
    cipher = AESGCM(_key(passphrase, salt, **WORK))
    sealed = cipher.encrypt(nonce, json.dumps(document).encode(), _bound(header))
    return {**header, "nonce": _text(nonce), "data": _text(sealed)}


def decrypted(document: dict[str, Any], passphrase: str) -> dict[str, Any]:
    """Raises WrongPassphrase; ValueError: it is no such document."""
    try:
        header = {name: document[name] for name in ("format", "version", "scrypt")}
        if header["version"] != VERSION:
            raise ValueError("a newer version wrote it")
        work = dict(header["scrypt"])
        salt = base64.b64decode(work.pop("salt"), validate=True)
        nonce, sealed = (base64.b64decode(document[name]) for name in ("nonce", "data"))
        if 128 * work["n"] * work["r"] > MOST_MEMORY or work["p"] > MOST_PARALLEL:
            raise ValueError("its passphrase would take too much work to check")
        cipher = AESGCM(_key(passphrase, salt, **work))
        opened: dict[str, Any] = json.loads(cipher.decrypt(nonce, sealed, _bound(header)))
    except InvalidTag:
        raise WrongPassphrase(WrongPassphrase.__doc__) from None
    except (KeyError, TypeError, binascii.Error) as error:
        raise ValueError("it is not a whole encrypted export") from error
    return opened


def ask_for_new(file: Path | None) -> str:
    return _given(file) or typer.prompt(
        "Passphrase", hide_input=True, confirmation_prompt=True, err=True
    )


def ask_for(file: Path | None) -> str:
    return _given(file) or typer.prompt("Passphrase", hide_input=True, err=True)


def _given(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        passphrase = file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    if not passphrase:
        raise typer.BadParameter(f"{file} is empty")
    return passphrase


def _key(passphrase: str, salt: bytes, *, n: int, r: int, p: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode())


def _bound(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
